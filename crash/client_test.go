//go:build linux

package crash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// errGone says that the server ended.
var errGone = errors.New("the server is gone")

// A client is an MCP client over the stdio of a server that it started.
type client struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	log   *logBuffer
	calls int
	left  int // commands that go on until the server ends
}

// logBuffer keeps what a process logs; it is safe for concurrent use.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a server in a process group of its own, as clients do.
func start(env []string) (*client, error) {
	c := &client{cmd: exec.Command(binary, "--verbose", "mcp"), log: &logBuffer{}}
	c.cmd.Env, c.cmd.Stderr = env, c.log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	return c, c.cmd.Start()
}

func (c *client) initialize() error {
	_, err := c.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "crash", "version": "1"},
	})
	return err
}

// request is the result of one request, or errGone.
func (c *client) request(method string, params any) (json.RawMessage, error) {
	c.calls++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.calls, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return nil, errGone
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return nil, errGone
		}
		var m struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("the server wrote %.200q: %w", line, err)
		}
		if m.ID != c.calls {
			continue // a notification
		}
		if m.Error != nil {
			return nil, fmt.Errorf("%s was answered with %s", method, m.Error)
		}
		return m.Result, nil
	}
}

// An observation is what exec, wait, read and stop and mailbox answer, as far as it is checked.
type observation struct {
	ProcessID string `json:"process_id"`
	Status    string `json:"status"`
	Reason    string `json:"reason"`
	Error     string `json:"error"`
	ExitCode  *int   `json:"exit_code"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated"`
	StartSeq  int64  `json:"start_seq"`
	NextSeq   int64  `json:"next_seq"`
	// Records is what mailbox answers.
	Records []letter `json:"records"`
	More    int      `json:"more"`
}

func (c *client) call(tool string, args map[string]any) (observation, error) {
	raw, err := c.request("tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return observation{}, err
	}
	var r struct {
		Structured *observation    `json:"structuredContent"`
		Content    json.RawMessage `json:"content"`
		IsError    bool            `json:"isError"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return observation{}, fmt.Errorf("%s answered %.200q: %w", tool, raw, err)
	}
	if r.IsError || r.Structured == nil {
		return observation{}, fmt.Errorf("%s answered %.400q", tool, raw)
	}
	return *r.Structured, nil
}

// close ends the server as a client does, by end of input.
func (c *client) close() error {
	_ = c.in.Close() // the server may be gone
	return c.cmd.Wait()
}
