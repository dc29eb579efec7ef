//go:build unix

// Package field holds what users of such servers reported in the field, each
// report as a test of the real binary: its MCP tools, and the commands that
// read the ledger beside it. The subtests bear the names of the reports.
//
// The machine may be slow: what must happen soon is given [slow] times as long,
// and a test waits for facts, not for the time that they should take.
package field

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/internal/realbinary"
)

const (
	// slow is how much longer than it should something may take.
	slow = 10
	// patience bounds what a test waits for; it is no expectation.
	patience = time.Minute
	// longYield is a yield delay that no command of a test reaches on its own, in milliseconds.
	longYield = 120_000
)

// binary is the real yieldlog, built once for the run.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == flag.Lookup("test.parallel").DefValue {
		_ = flag.Set("test.parallel", "6") // most of the time they wait
	}
	os.Exit(realbinary.Run(m, &binary))
}

// A server is one MCP server after another on one ledger, with its client.
type server struct {
	t   *testing.T
	tmp string // a folder for the commands
	dir string // the state directory
	env []string

	cmd     *exec.Cmd
	in      io.WriteCloser
	mu      sync.Mutex
	calls   int
	waiting map[int]chan json.RawMessage // nil once the server is gone
	ended   chan struct{}                // closed when its output has ended
}

// start starts a server with a ledger of its own, and these settings.
func start(t *testing.T, env ...string) *server {
	t.Helper()
	s := &server{t: t, tmp: t.TempDir(), dir: filepath.Join(t.TempDir(), "ledger"), env: env}
	s.start()
	t.Cleanup(func() { s.close() })
	return s
}

// start starts the next server on the same ledger.
func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.Command(binary, "mcp")
	s.cmd.Dir = s.tmp
	// Syncing a busy machine's disk is not what most tests are about.
	s.cmd.Env = append(os.Environ(), append([]string{"YIELDLOG_DIR=" + s.dir, "YIELDLOG_SYNC=relaxed", "TMP=" + s.tmp}, s.env...)...)
	s.cmd.Stderr = &testLog{t: s.t}
	null, err := os.Open(os.DevNull)
	s.must(err)
	defer null.Close()
	s.cmd.ExtraFiles = []*os.File{null, null} // some clients leave theirs open
	out, err := s.cmd.StdoutPipe()
	s.must(err)
	s.in, err = s.cmd.StdinPipe()
	s.must(err)
	s.must(s.cmd.Start())
	s.waiting = map[int]chan json.RawMessage{}
	s.ended = make(chan struct{})
	go s.listen(out)
	s.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "field", "version": "1"},
	})
	s.notify("notifications/initialized", nil)
}

// close ends the server as a client does, by end of input, and waits for it.
func (s *server) close() {
	_ = s.in.Close()
	<-s.ended
	_ = s.cmd.Wait()
}

// kill ends the server with SIGKILL, and waits for its guardian.
func (s *server) kill() {
	s.t.Helper()
	for _, p := range s.processes() {
		if p.parent == s.cmd.Process.Pid || len(s.processes()) == 1 { // one without a guardian is its own
			kill(p.pid)
		}
	}
	_ = s.in.Close()
	<-s.ended
	_ = s.cmd.Wait()
}

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) listen(out io.Reader) {
	defer close(s.ended)
	for r := bufio.NewReaderSize(out, 1<<20); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var m struct {
			ID            int
			Result, Error json.RawMessage
		}
		if json.Unmarshal(line, &m) != nil || m.ID == 0 {
			continue
		}
		s.mu.Lock()
		if w := s.waiting[m.ID]; w != nil {
			w <- append(m.Result, m.Error...) // one of them is there
			delete(s.waiting, m.ID)
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		close(w)
	}
	s.waiting = nil
}

func (s *server) send(message map[string]any) {
	s.t.Helper()
	message["jsonrpc"] = "2.0"
	line, err := json.Marshal(message)
	s.must(err)
	_, err = s.in.Write(append(line, '\n'))
	s.must(err)
}

func (s *server) notify(method string, params any) {
	s.t.Helper()
	s.send(map[string]any{"method": method, "params": params})
}

// ask sends a request; its result will come.
func (s *server) ask(method string, params any) (id int, result <-chan json.RawMessage) {
	s.t.Helper()
	w := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.calls++
	id = s.calls
	gone := s.waiting == nil
	if !gone {
		s.waiting[id] = w
	}
	s.mu.Unlock()
	if gone {
		s.t.Fatal("the server is gone")
	}
	s.send(map[string]any{"id": id, "method": method, "params": params})
	return id, w
}

func (s *server) request(method string, params any) json.RawMessage {
	s.t.Helper()
	id, result := s.ask(method, params)
	select {
	case r, ok := <-result:
		if !ok {
			s.t.Fatalf("the server ended before it answered %s", method)
		}
		return r
	case <-time.After(4 * patience):
		s.t.Fatalf("no answer to %s, request %d", method, id)
		return nil
	}
}

// A testLog is where processes write what only a failure makes interesting.
type testLog struct {
	t  *testing.T
	mu sync.Mutex
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.Logf("stderr: %s", bytes.TrimSpace(p))
	return len(p), nil
}
