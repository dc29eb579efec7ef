//go:build unix

package field

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestText is about output as text.
func TestText(t *testing.T) {
	t.Parallel()
	t.Run("utf8-split-chunks", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("printf '\\342'; sleep 0.2; printf '\\211'; sleep 0.2; printf '\\244\\n'")
		s.want(r, "completed")
		s.wantStdout(r, "≤\n")
	})
	// The yield falls into the middle of a character.
	t.Run("utf8-split-over-yield", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("printf 'a\\342'; read x; printf '\\211\\244b\\n'")
		r := s.printed(p.ProcessID, "a")
		if r.Stdout != "a" {
			t.Errorf("half a character is shown: %q", r.Stdout)
		}
		next := s.call("read", args{"process_id": p.ProcessID, "since_seq": 1})
		s.wantStdout(next, "a")
		s.write(p.ProcessID, "go on")
		r = s.wait(p.ProcessID)
		s.want(r, "completed")
		s.wantStdout(r, "a≤b\n")
		s.wantStdout(s.call("read", args{"process_id": p.ProcessID, "since_seq": 1}), "a≤b\n")
		s.wantStdout(s.call("read", args{"process_id": p.ProcessID, "since_seq": next.NextSeq}), "≤b\n")
	})
	t.Run("cr-progress", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("i=0; while [ $i -le 100 ]; do printf '\\rProgress %d%%' $i; i=$((i+1)); done; echo")
		s.want(r, "completed")
		if !strings.HasSuffix(r.Stdout, "Progress 100%\n") {
			t.Errorf("stdout is %q", r.Stdout)
		}
		if n := strings.Count(s.logs(r.ProcessID), "\r"); n != 101 {
			t.Errorf("the ledger has %d carriage returns", n)
		}
		s.wantStdout(s.call("read", args{"process_id": r.ProcessID, "rendered": true}), "Progress 100%\n")
		r = s.exec(`for i in 1 22 3; do printf '\033[2K\033[1G- building %d' $i; done; printf '\r\033[Kbuilt\n'`)
		s.wantStdout(s.call("read", args{"process_id": r.ProcessID, "rendered": true}), "built\n")
	})
	t.Run("binary-nul", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("printf 'a\\000b\\n'")
		s.want(r, "completed")
		s.wantStdout(r, "a\x00b\n")
		if got := s.logs(r.ProcessID); got != "a\x00b\n" {
			t.Errorf("the ledger has %q", got)
		}
	})
	// A pipe is no terminal, and the child is told so; what it prints is kept.
	t.Run("ansi-preserved-not-forced", func(t *testing.T) {
		t.Parallel()
		s := start(t, "TERM=xterm-256color")
		r := s.exec("printf '\\033[31mred\\033[0m\\n'; echo T=$TERM N=$NO_COLOR")
		s.want(r, "completed")
		s.wantStdout(r, "\x1b[31mred\x1b[0m\nT=dumb N=1\n")
		s.wantStdout(s.call("read", args{"process_id": r.ProcessID, "rendered": true}), "red\nT=dumb N=1\n")
	})
	t.Run("stream-order", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		// Each write waits for the answer that the one before was seen.
		p := s.background("for i in 1 2 3; do echo o$i; read x; echo e$i >&2; read x; done")
		for _, word := range []string{"o1", "e1", "o2", "e2", "o3", "e3"} {
			s.eventually(word+" is there", func() bool {
				r := s.read(p.ProcessID)
				return strings.Contains(r.Stdout+r.Stderr, word)
			})
			s.write(p.ProcessID, "")
		}
		s.want(s.wait(p.ProcessID), "completed")
		played := s.yieldlog("replay", "--instant", p.ProcessID)
		at := -1
		for _, word := range []string{"o1", "e1", "o2", "e2", "o3", "e3"} {
			i := strings.Index(played, word+"\n")
			if i <= at {
				t.Errorf("%s is not in its place: %s", word, played)
			}
			at = i
		}
	})
	t.Run("search-across-chunks", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("printf 'ERR'; read x; printf 'OR42 here\\n'")
		s.printed(p.ProcessID, "ERR")
		s.write(p.ProcessID, "go on")
		s.want(s.wait(p.ProcessID), "completed")
		if r := s.call("search", args{"pattern": "ERROR42"}); len(r.Matches) == 0 {
			t.Errorf("the tool finds nothing: %s", r.text)
		}
		if found := s.yieldlog("grep", "ERROR42"); !strings.Contains(found, "ERROR42 here") {
			t.Errorf("the command finds %q", found)
		}
	})
	// A terminal's output is recorded like any other.
	t.Run("pty-output-missing-from-log", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("test -t 1 && echo tty-yes", args{"tty": true})
		s.want(r, "completed")
		if !strings.Contains(r.TTY, "tty-yes") || !strings.Contains(s.logs(r.ProcessID), "tty-yes") {
			t.Errorf("%s", r.text)
		}
		if out, err := exec.Command("script", "-qec", "true", "/dev/null").CombinedOutput(); err != nil {
			t.Logf("there is no such script: %v, %s", err, out)
			return
		}
		r = s.exec("script -qec 'test -t 1 && echo tty-yes' /dev/null; test -t 1 && echo outer-tty || echo outer-pipe")
		s.want(r, "completed")
		if !strings.Contains(r.Stdout, "tty-yes") || !strings.HasSuffix(r.Stdout, "outer-pipe\n") || s.logs(r.ProcessID) != r.Stdout {
			t.Errorf("%s", r.text)
		}
	})
}

// TestBulk is about much output, and none of it lost.
func TestBulk(t *testing.T) {
	t.Parallel()
	t.Run("single-line-50mb", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("head -c 50000000 /dev/zero | tr '\\000' x")
		s.want(r, "completed")
		s.wantExit(r, 0)
		s.wantSoon(r, 15*time.Second)
		if len(r.Stdout) > 20_000 {
			t.Errorf("the answer has %d bytes", len(r.Stdout))
		}
		s.wantStdout(s.exec("echo ok"), "ok\n")
		s.wantMemory("VmHWM", 400)
	})
	t.Run("fast-exit-big-output", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		var want strings.Builder
		for i := range 3000 {
			want.WriteString(strconv.Itoa(i+1) + "\n")
		}
		for range 60 {
			r := s.exec("seq 1 3000")
			s.want(r, "completed")
			s.wantStdout(r, want.String())
		}
	})
	t.Run("read-after-exit", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.exec("echo compiled")
		s.want(p, "completed")
		for range 2 {
			r := s.read(p.ProcessID)
			s.want(r, "completed")
			s.wantExit(r, 0)
			s.wantStdout(r, "compiled\n")
			s.close() // and again from the next server
			s.start()
		}
	})
	// Finished commands take no memory for ever; the ledger has them still.
	t.Run("memory-growth", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		var last answer
		for range 1000 {
			last = s.exec("seq 1 200")
			s.want(last, "completed")
		}
		if r := s.call("cleanup", args{"completed_older_than_ms": 0, "stopped_older_than_ms": 0}); r.Removed != 1000 {
			t.Errorf("%d are removed", r.Removed)
		}
		if list := s.ps(true); len(list) != 0 {
			t.Errorf("%d are listed", len(list))
		}
		if lines := strings.Count(s.logs(last.ProcessID), "\n"); lines != 200 {
			t.Errorf("the ledger has %d lines of the last", lines)
		}
		s.wantMemory("VmRSS", 200)
	})
	// One write is larger than one record may be.
	t.Run("payload-over-1mb", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("cat > $TMP/in; wc -c < $TMP/in", args{"stdin": strings.Repeat("z", 3_000_000), "close_stdin": true})
		s.want(r, "completed")
		if strings.TrimSpace(r.Stdout) != "3000000" {
			t.Errorf("the input arrives as %q", r.Stdout)
		}
		r = s.exec("head -c 4194304 /dev/zero | tr '\\000' q >$TMP/q; cat $TMP/q")
		s.want(r, "completed")
		if got := s.logs(r.ProcessID); got != strings.Repeat("q", 4194304) {
			t.Errorf("the ledger has %d bytes", len(got))
		}
	})
	t.Run("replay-large-history", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done")
		s.want(r, "completed")
		if lines := strings.Count(s.logs(r.ProcessID), "\n"); lines != 60_000 {
			t.Errorf("the ledger has %d lines", lines)
		}
		began := time.Now()
		if list := s.events("execution", r.ProcessID); len(list) < 3 || len(list) > 100 {
			t.Errorf("it has %d lifecycle events", len(list))
		}
		if took := time.Since(began); took > slow*500*time.Millisecond {
			t.Errorf("its events took %v", took)
		}
	})
}

// wantMemory fails the test if a process of the server uses more than so many MiB.
func (s *server) wantMemory(kind string, most int) {
	s.t.Helper()
	for _, p := range s.processes() {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/status")
		if err != nil {
			s.t.Logf("the memory cannot be measured here: %v", err)
			continue
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); f[0] == kind+":" {
				if kb, err := strconv.Atoi(f[1]); err != nil || kb/1024 > most {
					s.t.Errorf("%s: %s", p.args, line)
				}
			}
		}
	}
}
