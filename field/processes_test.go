//go:build unix

package field

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// allow lets a shell use &, which is refused otherwise.
const allow = "YIELDLOG_BACKGROUND_OPERATORS=allow"

// TestDescendants is about what commands leave behind.
func TestDescendants(t *testing.T) {
	t.Parallel()
	// A background job holds the output pipe when its shell ends.
	t.Run("pipe-bg-child", func(t *testing.T) {
		t.Parallel()
		s := start(t, allow)
		for _, way := range []string{"sleep %s & echo done", "setsid -f sleep %s; echo done", "sh -c '(sleep %s &)'; echo done", "(trap '' TERM; exec sleep %s) & echo done"} {
			job := s.unique(100)
			r := s.exec(strings.ReplaceAll(way, "%s", job))
			s.want(r, "completed", "backgrounded")
			s.wantStdout(r, "done\n")
			s.wantSoon(r, 3*time.Second)
			if live := s.alive("sleep " + job); len(live) > 0 && len(r.Descendants) == 0 {
				t.Errorf("%s: %q live on, and nobody says so: %s", way, live, r.text)
			}
		}
	})
	// What a shell wrote into a pipe of its own as it ended still arrives.
	t.Run("process-substitution", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("who reads a pipe is known on Linux alone")
		}
		s := start(t, "YIELDLOG_SHELL=bash -c")
		for range 20 {
			r := s.exec("exec > >(tee log) 2>&1; echo tested")
			s.wantStdout(r, "tested\n")
		}
		r := s.exec("seq 3 > >(sleep 0.1; cat)")
		s.wantStdout(r, "1\n2\n3\n")
		if len(r.Descendants) > 0 {
			t.Errorf("who ended by itself was ended: %s", r.text)
		}
		job := s.unique(100)
		r = s.exec("echo lost > >(sleep " + job + "); echo done")
		s.wantStdout(r, "done\n")
		s.wantSoon(r, 3*time.Second)
		s.wantGone("sleep " + job)
	})
	// The real work of a command that puts itself into the background is known.
	t.Run("self-backgrounding-command", func(t *testing.T) {
		t.Parallel()
		s := start(t, allow)
		for _, way := range []string{"nohup sleep %s >/dev/null 2>&1 & echo pid=$!", "setsid -f sleep %s >/dev/null 2>&1; echo pid=0"} {
			job := s.unique(100)
			r := s.exec(strings.ReplaceAll(way, "%s", job))
			if !strings.HasPrefix(r.Stdout, "pid=") {
				t.Errorf("%s: %s", way, r.text)
			}
			list, err := json.Marshal(s.ps(true))
			s.must(err)
			if !strings.Contains(string(list), job) {
				t.Errorf("ps does not have it: %s", list)
			}
			if e := s.settlement(r.ProcessID); len(e.Body.Descendants) == 0 {
				t.Errorf("%s: the settlement says nothing of descendants: %+v", way, e)
			}
		}
	})
	t.Run("load-generators-outlive-session", func(t *testing.T) {
		t.Parallel()
		s := start(t, allow)
		burner := "burner" + s.unique(1)
		r := s.exec("for i in 1 2 3 4 5; do sh -c 'while :; do sleep 0.5; done # " + burner + "' & done; echo started")
		s.wantStdout(r, "started\n")
		s.background("for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.5; done # " + burner + "' & done; wait")
		s.close()
		s.wantGone(burner)
	})
	t.Run("client-gone-server-stays", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		job := s.unique(100)
		r := s.background("sleep " + job)
		s.close()
		if !s.cmd.ProcessState.Exited() {
			t.Errorf("the server ended with %v", s.cmd.ProcessState)
		}
		s.wantGone("sleep " + job)
		if e := s.settlement(r.ProcessID); e.Body.Termination != "session-ended" {
			t.Errorf("it is settled as %+v", e.Body)
		}
	})
	// What a client left open in the server would stay open with each command.
	t.Run("clients-files", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		for _, tty := range []bool{false, true} {
			r := s.exec("for n in 3 4 5 6 7 8 9; do (: <&$n) 2>/dev/null && echo $n; done; true", args{"tty": tty})
			s.want(r, "completed")
			if r.Stdout+r.TTY != "" {
				t.Errorf("a command has the files %s", r.text)
			}
		}
	})
	t.Run("zombies", func(t *testing.T) {
		t.Parallel()
		s := start(t, allow)
		for range 50 {
			s.exec("(sleep 0.05 &) ; true")
		}
		s.exec("setsid -f sh -c 'setsid -f true; sleep 0.05'")
		s.eventually("no zombie is left under the server", func() bool {
			own := s.processes()
			for _, p := range processList(t) {
				for _, o := range own {
					if p.zombie && p.parent == o.pid {
						return false
					}
				}
			}
			return true
		})
	})
}

// TestStop is about commands that are ended on purpose: nothing of them may stay.
func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("pipe-timeout-pipeline", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		for _, way := range []string{"sleep %s | cat; true", "setsid sh -c 'sleep %s' | cat"} {
			job := s.unique(100)
			r := s.exec(strings.ReplaceAll(way, "%s", job), args{"timeout_ms": 1000})
			s.want(r, "timed_out")
			s.wantSoon(r, 6*time.Second)
			if r.took < 900*time.Millisecond {
				t.Errorf("it was ended after %v", r.took)
			}
			s.wantGone("sleep " + job)
		}
	})
	t.Run("stop-kills-tree", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		job := s.unique(100)
		r := s.background("sh -c 'sleep " + job + " & sleep " + job + "1 & setsid sleep " + job + "2 & wait'")
		s.eventually("all run", func() bool { return len(s.alive("sleep "+job+"2")) > 0 })
		s.wantSoon(s.stop(r.ProcessID, 1000), 5*time.Second)
		s.wantGone("sleep " + job)
	})
	// The leader heeds SIGTERM, its child does not.
	t.Run("stop-child-ignores-term", func(t *testing.T) {
		t.Parallel()
		s := start(t, allow)
		job := s.unique(100)
		r := s.background("trap 'exit 0' TERM; sh -c 'trap \"\" TERM; echo ready; sleep " + job + "; sleep " + job + "1' & wait")
		s.printed(r.ProcessID, "ready")
		s.wantSoon(s.stop(r.ProcessID, 800), 6*time.Second)
		s.wantGone("sleep " + job)
	})
	t.Run("stop-runs-exit-trap", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.background("bash -c 'trap \"echo cleaned > $TMP/trap.txt\" EXIT; trap \"exit 0\" TERM; echo ready; while :; do sleep 0.05; done'")
		s.printed(r.ProcessID, "ready")
		stopped := s.call("stop", args{"process_id": r.ProcessID, "signal": "SIGTERM", "force_after_ms": 60_000})
		if !stopped.Stopped {
			t.Errorf("stop: %s", stopped.text)
		}
		s.wantSoon(stopped, 2500*time.Millisecond)
		if text, err := os.ReadFile(filepath.Join(s.tmp, "trap.txt")); err != nil || string(text) != "cleaned\n" {
			t.Errorf("the trap left %q, %v", text, err)
		}
		if r := s.read(r.ProcessID); r.Signal == "SIGKILL" {
			t.Errorf("it was killed: %s", r.text)
		}
	})
	// The call is given up: the command is not alive and invisible.
	t.Run("interrupted-turn-leaves-process", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		job := s.unique(100)
		id, _ := s.ask("tools/call", map[string]any{"name": "exec", "arguments": args{
			"command": "setsid sh -c 'sleep " + job + "'; true", "side_effects": []string{"NONE"}, "yield_ms": longYield,
		}})
		s.eventually("it runs", func() bool { return len(s.alive("sleep "+job)) > 0 })
		s.notify("notifications/cancelled", args{"requestId": id})
		s.eventually("it is gone", func() bool { return len(s.alive("sleep "+job)) == 0 })
		s.wantStdout(s.exec("echo alive"), "alive\n")
	})
	t.Run("signal-death-status", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		for signal, code := range map[string]int{"KILL": -9, "SEGV": -11, "USR1": -10} {
			r := s.exec("kill -" + signal + " $$")
			s.want(r, "completed")
			if r.Signal != "SIG"+signal || r.ExitCode == nil || (*r.ExitCode != code && signal != "USR1") {
				t.Errorf("SIG%s: %s", signal, r.text)
			}
		}
	})
	// A recorder that ignores signals hands that down to what it starts.
	t.Run("sigpipe-inherited", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("yes | head -n 3")
		s.want(r, "completed")
		if r.Stdout != "y\ny\ny\n" || r.Stderr != "" {
			t.Errorf("%s", r.text)
		}
		if _, err := os.Stat("/proc/self/status"); err != nil {
			return
		}
		for _, tty := range []bool{false, true} {
			r = s.exec("grep -E 'SigIgn|SigBlk' /proc/self/status", args{"tty": tty})
			for line := range strings.Lines(r.Stdout + r.TTY) {
				if strings.Trim(line[len("SigXxx:"):], "0 \t\r\n") != "" {
					t.Errorf("in a terminal: %v; %s", tty, line)
				}
			}
		}
	})
}
