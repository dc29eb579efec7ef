package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// A demoServer is a real server in a process of its own, and the client that
// talks to it over its standard streams. One call at a time.
type demoServer struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	calls   int
}

// startDemoServer starts this program as a server, and greets it.
func startDemoServer(ctx context.Context, dir string) (*demoServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	server := exec.CommandContext(ctx, self, "--dir", dir, "mcp")
	server.Env = withoutSettings(os.Environ())
	return greet(server)
}

// greet starts a server, and initializes it as a client does.
func greet(server *exec.Cmd) (_ *demoServer, err error) {
	s := &demoServer{process: server}
	s.process.Stderr = os.Stderr
	if s.in, err = s.process.StdinPipe(); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	s.out = bufio.NewReader(out)
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	hello := map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "yieldlog-demo", "version": buildVersion()},
	}
	if _, err := s.request("initialize", hello); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// withoutSettings is the environment without yieldlog's own variables: the
// demo shows the defaults.
func withoutSettings(environ []string) []string {
	var kept []string
	for _, v := range environ {
		if !strings.HasPrefix(v, "YIELDLOG_") && !strings.HasPrefix(v, "YIELDSHELL_") && !strings.HasPrefix(v, "MCP_YIELDSHELL_") {
			kept = append(kept, v)
		}
	}
	return kept
}

// A demoAnswer is what the demo reads of a tool's structured answer.
type demoAnswer struct {
	ProcessID  string `json:"process_id"`
	PID        int    `json:"pid"`
	Status     string `json:"status"`
	ExitCode   *int   `json:"exit_code"`
	Stdout     string `json:"stdout"`
	NextSeq    int64  `json:"next_seq"`
	DurationMS int64  `json:"duration_ms"`
	Error      string `json:"error"`
}

// call calls a tool.
func (s *demoServer) call(tool string, args map[string]any) (demoAnswer, error) {
	var result struct {
		Structured demoAnswer `json:"structuredContent"`
	}
	raw, err := s.request("tools/call", map[string]any{"name": tool, "arguments": args})
	if err != nil {
		return demoAnswer{}, err
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return demoAnswer{}, fmt.Errorf("reading the answer of %s: %w", tool, err)
	}
	if result.Structured.Error != "" {
		return result.Structured, fmt.Errorf("calling %s: %s", tool, result.Structured.Error)
	}
	return result.Structured, nil
}

// request sends a request and returns its result, past any notifications.
func (s *demoServer) request(method string, params any) (json.RawMessage, error) {
	s.calls++
	if err := s.send(map[string]any{"jsonrpc": "2.0", "id": s.calls, "method": method, "params": params}); err != nil {
		return nil, err
	}
	for {
		line, err := s.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("waiting for the answer to %s: %w", method, err)
		}
		var m struct {
			ID     *int            `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("reading the answer to %s: %w", method, err)
		}
		switch {
		case m.ID == nil || *m.ID != s.calls:
		case m.Error != nil:
			return nil, fmt.Errorf("%s failed: %s", method, m.Error)
		default:
			return m.Result, nil
		}
	}
}

func (s *demoServer) send(message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	if _, err := s.in.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("writing to the server: %w", err)
	}
	return nil
}

// close ends the input, and waits for the server to end.
func (s *demoServer) close() error {
	if err := s.in.Close(); err != nil {
		return fmt.Errorf("closing the server's input: %w", err)
	}
	if err := s.process.Wait(); err != nil {
		return fmt.Errorf("the server ended: %w", err)
	}
	return nil
}
