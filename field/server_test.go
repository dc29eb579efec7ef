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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
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

// An answer is what a tool answered.
type answer struct {
	ProcessID   string `json:"process_id"`
	Status      string `json:"status"`
	Name        string `json:"name"`
	Command     string `json:"command"`
	PID         int    `json:"pid"`
	ExitCode    *int   `json:"exit_code"`
	Signal      string `json:"signal"`
	Termination string `json:"termination"`
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	TTY         string `json:"tty"`
	NextSeq     int64  `json:"next_seq"`
	LatestSeq   int64  `json:"latest_seq"`
	DurationMS  int64  `json:"duration_ms"`
	StartedAt   string `json:"started_at"`
	OK          bool   `json:"ok"`
	Stopped     bool   `json:"stopped"`
	Removed     int    `json:"removed"`
	Error       string `json:"error"`

	Descendants []struct{ Name string } `json:"descendants"`
	Processes   []answer                `json:"processes"`
	Matches     []answer                `json:"matches"`

	text string        // the whole result
	took time.Duration // from the request on
}

// args are the arguments of a tool.
type args map[string]any

func (s *server) call(tool string, a args) answer {
	s.t.Helper()
	began := time.Now()
	raw := s.request("tools/call", map[string]any{"name": tool, "arguments": a})
	var result struct {
		StructuredContent answer
		Content           []struct{ Text string }
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		s.t.Fatalf("%s answered %s: %v", tool, raw, err)
	}
	r := result.StructuredContent
	for _, c := range result.Content {
		r.text += c.Text
	}
	r.took = time.Since(began)
	return r
}

// exec runs a command; without a yield delay it is run to its end.
func (s *server) exec(command string, more ...args) answer {
	s.t.Helper()
	a := args{"command": command, "side_effects": []string{"NONE"}, "yield_ms": longYield}
	for _, m := range more {
		for k, v := range m {
			a[k] = v
		}
	}
	return s.call("exec", a)
}

// background starts a command that cannot end by itself.
func (s *server) background(command string, more ...args) answer {
	s.t.Helper()
	r := s.exec(command, append([]args{{"yield_ms": 100}}, more...)...)
	s.want(r, "backgrounded")
	return r
}

func (s *server) read(id string) answer {
	s.t.Helper()
	return s.call("read", args{"process_id": id})
}

func (s *server) write(id, line string) {
	s.t.Helper()
	if r := s.call("write", args{"process_id": id, "input": line, "newline": true}); !r.OK {
		s.t.Errorf("write: %s", r.text)
	}
}

func (s *server) wait(id string) answer {
	s.t.Helper()
	return s.call("wait", args{"process_id": id, "timeout_ms": 55_000})
}

func (s *server) stop(id string, force int) answer {
	s.t.Helper()
	r := s.call("stop", args{"process_id": id, "force_after_ms": force})
	if !r.Stopped {
		s.t.Errorf("stop: %s", r.text)
	}
	return r
}

func (s *server) ps(completed bool) []answer {
	s.t.Helper()
	return s.call("ps", args{"include_completed": completed}).Processes
}

// printed waits until the output of a running command has the text.
func (s *server) printed(id, text string) answer {
	s.t.Helper()
	var r answer
	s.eventually("the output has "+text, func() bool {
		r = s.read(id)
		return strings.Contains(r.Stdout+r.TTY, text)
	})
	return r
}

func (s *server) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it never came true: %s", what)
		}
	}
}

// yieldlog runs the command line on the same ledger, and is what it prints.
func (s *server) yieldlog(arguments ...string) string {
	s.t.Helper()
	cmd := exec.Command(binary, append([]string{"--dir", s.dir}, arguments...)...)
	cmd.Stderr = &testLog{t: s.t}
	out, err := cmd.Output()
	if err != nil {
		s.t.Errorf("yieldlog %s: %v", strings.Join(arguments, " "), err)
	}
	return string(out)
}

// An event is a line of `yieldlog events`.
type event struct {
	Kind, Execution, Session string
	Body                     struct {
		Status, Termination string
		ExitCode            *int `json:"exit_code"`
		Descendants         []struct{ Name string }
	}
}

// events are the facts of a kind: of an execution, or of all with "".
func (s *server) events(kind, id string) []event {
	s.t.Helper()
	arguments := []string{"events", "--json", "--filter", kind}
	if id != "" {
		arguments = append(arguments, id)
	}
	var list []event
	for line := range strings.Lines(s.yieldlog(arguments...)) {
		var e event
		s.must(json.Unmarshal([]byte(line), &e))
		list = append(list, e)
	}
	return list
}

// settlement is the one end of an execution.
func (s *server) settlement(id string) event {
	s.t.Helper()
	list := s.events("settled", id)
	if len(list) != 1 {
		s.t.Fatalf("%d settlements of %s", len(list), id)
	}
	return list[0]
}

// logs is the output of an execution as the ledger has it.
func (s *server) logs(id string) string {
	s.t.Helper()
	return s.yieldlog("logs", id)
}

func (s *server) want(r answer, status ...string) {
	s.t.Helper()
	for _, w := range status {
		if r.Status == w {
			return
		}
	}
	s.t.Fatalf("status %q, not %s: %.2000s", r.Status, strings.Join(status, " or "), r.text)
}

func (s *server) wantExit(r answer, code int) {
	s.t.Helper()
	if r.ExitCode == nil || *r.ExitCode != code {
		s.t.Errorf("the exit code is not %d: %.2000s", code, r.text)
	}
}

func (s *server) wantStdout(r answer, stdout string) {
	s.t.Helper()
	if r.Stdout != stdout {
		s.t.Errorf("stdout is %.300q, not %.300q", r.Stdout, stdout)
	}
}

// wantSoon fails the test if the answer took slow times longer than that.
func (s *server) wantSoon(r answer, most time.Duration) {
	s.t.Helper()
	if r.took > slow*most {
		s.t.Errorf("it took %v, and should take at most %v", r.took, most)
	}
}

// A process is one of the operating system.
type process struct {
	pid, parent int
	zombie      bool
	args        string
}

// processList is the processes of this machine.
func processList(t *testing.T) []process {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=,args=").Output()
	if err != nil {
		t.Fatalf("listing the processes: %v", err)
	}
	var list []process
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		pid, _ := strconv.Atoi(f[0])
		parent, _ := strconv.Atoi(f[1])
		list = append(list, process{pid, parent, strings.HasPrefix(f[2], "Z"), strings.Join(f[3:], " ")})
	}
	return list
}

// processes are the server's: its own, and its guardian's.
func (s *server) processes() []process {
	s.t.Helper()
	var list []process
	for _, p := range processList(s.t) {
		if (p.pid == s.cmd.Process.Pid || p.parent == s.cmd.Process.Pid) && strings.HasPrefix(p.args, binary) {
			list = append(list, p)
		}
	}
	return list
}

// unique is a duration for sleep that no other test's process has.
func (s *server) unique(seconds int) string {
	return fmt.Sprintf("%d.%09d", seconds, (time.Now().UnixNano()+int64(os.Getpid()))%1_000_000_000)
}

// alive are the processes whose arguments have the text.
func (s *server) alive(text string) []string {
	s.t.Helper()
	var list []string
	for _, p := range processList(s.t) {
		if !p.zombie && strings.Contains(p.args, text) {
			list = append(list, p.args)
		}
	}
	return list
}

func (s *server) wantGone(text string) {
	s.t.Helper()
	if list := s.alive(text); len(list) > 0 {
		s.t.Errorf("it is still alive: %q", list)
	}
}

// wantNowhere fails the test if a file of the ledger holds the text.
func (s *server) wantNowhere(text string) {
	s.t.Helper()
	s.files(func(path string, data []byte) {
		if bytes.Contains(data, []byte(text)) {
			s.t.Errorf("%s holds %q", path, text)
		}
	})
}

// files visits the files of the ledger.
func (s *server) files(visit func(path string, data []byte)) {
	s.t.Helper()
	s.must(filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			if errors.Is(err, os.ErrNotExist) { // a temporary file
				return nil
			}
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		visit(path, data)
		return err
	}))
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
