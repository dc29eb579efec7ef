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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A killed is a client of the real binary that has it run commands which are
// hard to end, and then kills some of it.
type killed struct {
	t     *testing.T
	dir   string // of the ledger
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	calls int
}

func connect(t *testing.T, dir string) *killed {
	t.Helper()
	return connectAs(t, dir, "test")
}

// connectAs connects a client of the name.
func connectAs(t *testing.T, dir, name string) *killed {
	t.Helper()
	k := &killed{t: t, dir: dir, cmd: exec.Command(binary, "mcp")}
	k.cmd.Env = append(os.Environ(), "YIELDLOG_DIR="+dir, "YIELDLOG_SYNC=relaxed", "YIELDLOG_BACKGROUND_OPERATORS=allow")
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	k.cmd.Stderr = os.Stderr
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if k.in, err = k.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	k.out = bufio.NewReader(out)
	if err := k.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = k.in.Close()
		_ = k.cmd.Wait()
	})
	k.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": name, "version": "1"},
	})
	return k
}

// request is the result of one request.
func (k *killed) request(method string, params any) json.RawMessage {
	k.t.Helper()
	k.calls++
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": k.calls, "method": method, "params": params})
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.in.Write(append(line, '\n')); err != nil {
		k.t.Fatal(err)
	}
	for {
		line, err := k.out.ReadBytes('\n')
		if err != nil {
			k.t.Fatalf("reading the answer to %s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result json.RawMessage
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			k.t.Fatalf("%s: %v", line, err)
		}
		if answer.ID == k.calls {
			return answer.Result
		}
	}
}

// escapes are the ways in which a command may leave its server; %s is one that
// ignores what it can.
var escapes = []string{
	"%s",
	"setsid %s",
	"(setsid sh -c '(%s &)' &); sleep 600",
	"env -i %s",
	"env -i setsid sh -c '(env -i setsid %s </dev/null >/dev/null 2>&1 &)'; sleep 600",
}

const stubborn = `#!/bin/sh
trap '' TERM HUP INT
echo $$ >"$1.new" && mv "$1.new" "$1"
while :; do sleep 1; done
`

// escape has the server run the escapes, and returns their processes.
func (k *killed) escape() []proc {
	k.t.Helper()
	dir := k.t.TempDir()
	script := filepath.Join(dir, "stubborn")
	if err := os.WriteFile(script, []byte(stubborn), 0o700); err != nil {
		k.t.Fatal(err)
	}
	var procs []proc
	for i, way := range escapes {
		note := filepath.Join(dir, strconv.Itoa(i))
		result := k.request("tools/call", map[string]any{"name": "exec", "arguments": map[string]any{
			"command": fmt.Sprintf(way, script+" "+note), "side_effects": []string{"NONE"}, "yield_ms": 1,
		}})
		if !strings.Contains(string(result), "backgrounded") {
			k.t.Fatalf("%s: %s", way, result)
		}
		eventually(k.t, way+" runs", func() bool { _, err := os.Stat(note); return err == nil })
		text, err := os.ReadFile(note)
		if err != nil {
			k.t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			k.t.Fatal(err)
		}
		procs = append(procs, inspect(pid))
	}
	return procs
}

// server is the guardian's child.
func (k *killed) server() proc {
	k.t.Helper()
	id := strconv.Itoa(k.cmd.Process.Pid)
	text, err := filepath.Glob("/proc/" + id + "/task/*/children")
	if err != nil {
		k.t.Fatal(err)
	}
	for _, file := range text {
		children, _ := os.ReadFile(file)
		for _, f := range strings.Fields(string(children)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				k.t.Fatal(err)
			}
			return inspect(pid)
		}
	}
	k.t.Fatal("the guardian has no child")
	return proc{}
}

// A proc is one process, and no other that gets its number.
type proc struct {
	pid   int
	start string
}

// inspect is the process with that number, without a start when there is none.
func inspect(pid int) proc {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{pid: pid}
	}
	f := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if f[0] == "Z" || f[0] == "X" {
		return proc{pid: pid}
	}
	return proc{pid: pid, start: f[19]}
}

func (p proc) alive() bool { return p.start != "" && inspect(p.pid) == p }

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came true: %s", what)
		}
	}
}

// An ending is how an execution or a session ended.
type ending struct {
	Kind string
	Body struct{ Status, Termination, Reason string }
}

// endings are the settled, closed and lost events of the ledger.
func endings(t *testing.T, dir string) []ending {
	t.Helper()
	out, err := exec.Command(binary, "--dir", dir, "events", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []ending
	for line := range strings.Lines(string(out)) {
		var e ending
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if slices.Contains([]string{"settled", "closed", "lost"}, e.Kind) {
			list = append(list, e)
		}
	}
	return list
}

func TestNothingOutlivesAKilledServer(t *testing.T) {
	dir := t.TempDir()
	k := connect(t, dir)
	procs := k.escape()
	server := k.server()
	if err := syscall.Kill(server.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := k.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+9 {
		t.Errorf("the guardian ends with %v", err)
	}
	for i, p := range procs {
		if p.alive() {
			t.Errorf("%q outlived the guardian", escapes[i])
		}
	}
	connect(t, dir) // the next one says what became of them
	lost := 0
	for _, e := range endings(t, dir) {
		if e.Kind == "settled" && e.Body.Status == "lost" {
			lost++
		}
	}
	if lost != len(procs) {
		t.Errorf("%d executions are lost, of %d", lost, len(procs))
	}
}

func TestNothingOutlivesAKilledGuardian(t *testing.T) {
	for name, group := range map[string]int{"alone": 1, "with its group": -1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := connect(t, dir)
			procs := k.escape()
			server := k.server()
			if err := syscall.Kill(group*k.cmd.Process.Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			for i, p := range procs {
				eventually(t, escapes[i]+" is gone", func() bool { return !p.alive() })
			}
			eventually(t, "the server is gone", func() bool { return !server.alive() })
			settled, closed := 0, ""
			for _, e := range endings(t, dir) {
				switch {
				case e.Kind == "settled" && e.Body.Termination == "lost":
					settled++
				case e.Kind == "closed":
					closed = e.Body.Reason
				}
			}
			if settled != len(procs) || closed != "the guardian died" {
				t.Errorf("%d executions are settled, of %d; the session is closed: %q", settled, len(procs), closed)
			}
			out, err := exec.Command(binary, "--dir", dir, "sessions").Output()
			if want := regexp.MustCompile(fmt.Sprintf(`closed, the guardian died +%d +0 +0 +0 +%[1]d `, len(procs))); err != nil || !want.Match(out) {
				t.Errorf("%v: the sessions are\n%s", err, out)
			}
		})
	}
}
