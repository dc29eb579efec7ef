//go:build unix

package field

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

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

// An event is a line of `yieldlog events`.
type event struct {
	Kind, Execution, Session string
	Body                     struct {
		Status, Termination string
		ExitCode            *int `json:"exit_code"`
		Descendants         []struct{ Name string }
	}
}

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
	pid, parent     int
	zombie, stopped bool
	args            string
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
		list = append(list, process{pid, parent, strings.HasPrefix(f[2], "Z"), strings.HasPrefix(f[2], "T"), strings.Join(f[3:], " ")})
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
