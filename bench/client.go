package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A client is an MCP client on the stdio of a server that it started.
type client struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	next    atomic.Int64
	mu      sync.Mutex
	waiting map[int64]chan json.RawMessage
}

// server starts yieldlog on a ledger of its own.
func (b *bench) server(env ...string) (*client, error) {
	dir, err := os.MkdirTemp(b.dir, "ledger-")
	if err != nil {
		return nil, err
	}
	return b.connect([]string{b.binary, "mcp"}, append(env, "YIELDLOG_DIR="+dir)...)
}

// connect starts a server and does the handshake.
func (b *bench) connect(argv []string, env ...string) (*client, error) {
	c := &client{cmd: exec.Command(argv[0], argv[1:]...), waiting: map[int64]chan json.RawMessage{}}
	c.cmd.Env = append(os.Environ(), env...)
	log, err := os.OpenFile(filepath.Join(b.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c.cmd.Stderr = log
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.listen(out)
	_, err = c.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "bench", "version": "1"},
	})
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	_, err = fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c, err
}

func (c *client) listen(out io.Reader) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var m struct {
			ID     int64           `json:"id"`
			Result json.RawMessage `json:"result"`
		}
		if json.Unmarshal(line, &m) != nil || m.Result == nil {
			continue
		}
		c.mu.Lock()
		w := c.waiting[m.ID]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		if w != nil {
			w <- m.Result
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		close(w)
	}
	c.waiting = nil
}

func (c *client) request(method string, params any) (json.RawMessage, error) {
	id := c.next.Add(1)
	w := make(chan json.RawMessage, 1)
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return nil, errors.New("the server is gone")
	}
	c.waiting[id] = w
	c.mu.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	select {
	case r, ok := <-w:
		if !ok {
			return nil, errors.New("the server is gone")
		}
		return r, nil
	case <-time.After(5 * time.Minute):
		return nil, fmt.Errorf("no answer to %s in five minutes", method)
	}
}

// An answer is what the tools return that is measured here.
type answer struct {
	ProcessID   string `json:"process_id"`
	Status      string `json:"status"`
	ExitCode    *int   `json:"exit_code"`
	Stdout      string `json:"stdout"`
	Error       string `json:"error"`
	StdoutBytes int64  `json:"stdout_bytes"`
	NextSeq     int64  `json:"next_seq"`
}

func (c *client) call(tool string, args map[string]any) (answer, error) {
	raw, err := c.request("tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return answer{}, err
	}
	var r struct {
		Structured json.RawMessage         `json:"structuredContent"`
		Content    []struct{ Text string } `json:"content"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return answer{}, err
	}
	if r.Structured == nil && len(r.Content) > 0 {
		r.Structured = json.RawMessage(r.Content[0].Text)
	}
	var a answer
	if err := json.Unmarshal(r.Structured, &a); err != nil {
		return answer{}, fmt.Errorf("%s answered %.200s: %w", tool, raw, err)
	}
	return a, nil
}

func (c *client) exec(command string, more ...any) (answer, error) {
	args := map[string]any{"command": command, "side_effects": []string{"NONE"}}
	for i := 0; i+1 < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	return c.call("exec", args)
}

// peak is the most memory that the server held, in bytes: the larger of the
// process that was started and the one that it watches over.
func (c *client) peak() int64 {
	var most int64
	dirs, _ := filepath.Glob("/proc/[0-9]*/status") // elsewhere: 0
	for _, d := range dirs {
		data, err := os.ReadFile(d)
		if err != nil {
			continue
		}
		var pid, parent int
		var name string
		var kb int64
		for line := range strings.Lines(string(data)) {
			_, _ = fmt.Sscanf(line, "Name: %s", &name)
			_, _ = fmt.Sscanf(line, "Pid: %d", &pid)
			_, _ = fmt.Sscanf(line, "PPid: %d", &parent)
			_, _ = fmt.Sscanf(line, "VmHWM: %d kB", &kb)
		}
		if name == "yieldlog" && (pid == c.cmd.Process.Pid || parent == c.cmd.Process.Pid) {
			most = max(most, kb<<10)
		}
	}
	return most
}

// close ends the server as a client does, by end of input.
func (c *client) close() error {
	return errors.Join(c.in.Close(), c.cmd.Wait())
}
