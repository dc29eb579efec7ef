//go:build unix

package field

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAnswers is about when a call answers.
func TestAnswers(t *testing.T) {
	t.Parallel()
	t.Run("yield-waits-full-window", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		for _, a := range []args{{}, {"tty": true}, {"side_effects": []string{"OTHER"}}, {"close_stdin": true}} {
			r := s.exec("echo x", a)
			s.want(r, "completed")
			s.wantSoon(r, 500*time.Millisecond)
			if r.Stdout+r.TTY != "x\n" && r.TTY != "x\r\n" {
				t.Errorf("%v: %s", a, r.text)
			}
		}
	})
	// Dots and a dollar sign are no prompt: only the end or the yield ends the call.
	t.Run("false-prompt", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("printf 'collecting ... '; sleep 1; printf 'total: 5 $'; sleep 1; printf 'password: '; echo END")
		s.want(r, "completed")
		s.wantStdout(r, "collecting ... total: 5 $password: END\n")
		if r.took < 1900*time.Millisecond {
			t.Errorf("it answered after %v", r.took)
		}
	})
	t.Run("no-blocking-wait", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("sleep 1.5; echo fin; exit 4")
		r := s.wait(p.ProcessID)
		s.want(r, "completed")
		s.wantExit(r, 4)
		s.wantStdout(r, "fin\n")
		s.wantSoon(r, 2500*time.Millisecond)
	})
	t.Run("flood-blocks-other-calls", func(t *testing.T) {
		t.Parallel()
		s := start(t, "YIELDLOG_OUTPUT_LIMIT_BYTES=100000000000")
		p := s.background("yes")
		s.wantSoon(p, 1500*time.Millisecond)
		for range 5 {
			r := s.exec("echo hi")
			s.wantStdout(r, "hi\n")
			s.wantSoon(r, time.Second)
		}
		s.wantSoon(s.read(p.ProcessID), time.Second)
		s.stop(p.ProcessID, 500)
	})
	t.Run("process-limit-no-eviction", func(t *testing.T) {
		t.Parallel()
		s := start(t, "YIELDSHELL_MAX_PROCESSES=2")
		a, b := s.background("sleep 100"), s.background("sleep 101")
		r := s.exec("true")
		s.want(r, "failed_to_start")
		if !strings.Contains(r.Error, "limit") {
			t.Errorf("it does not name the limit: %s", r.text)
		}
		if list := s.ps(false); len(list) != 2 {
			t.Errorf("%d run, not 2", len(list))
		}
		s.stop(a.ProcessID, 300)
		r = s.exec("true")
		s.want(r, "completed")
		s.wantExit(r, 0)
		s.want(s.read(b.ProcessID), "running")
	})
	// An agent that forgot the handle finds it again.
	t.Run("handle-lost-after-compaction", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("sleep 100", args{"name": "nightly-build"})
		s.exec("true")
		list := s.ps(false)
		if len(list) != 1 || list[0].ProcessID != p.ProcessID || list[0].Name != "nightly-build" || list[0].Command != "sleep 100" || list[0].StartedAt == "" {
			t.Fatalf("ps: %+v", list)
		}
		s.stop(list[0].ProcessID, 300)
	})
	t.Run("bg-exit-code-lies", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("sleep 0.5; exit 7")
		r := s.wait(p.ProcessID)
		s.want(r, "completed")
		s.wantExit(r, 7)
		s.wantExit(s.ps(true)[0], 7)
		if e := s.settlement(p.ProcessID); e.Body.ExitCode == nil || *e.Body.ExitCode != 7 {
			t.Errorf("it is settled as %+v", e.Body)
		}
	})
}

// TestStdin is about input.
func TestStdin(t *testing.T) {
	t.Parallel()
	t.Run("stdin-prompt-roundtrip", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		for _, tty := range []bool{false, true} {
			p := s.background("printf 'proceed? '; read x; echo got:$x", args{"tty": tty})
			s.printed(p.ProcessID, "proceed? ")
			s.write(p.ProcessID, "y")
			r := s.wait(p.ProcessID)
			s.want(r, "completed")
			if !strings.Contains(r.Stdout+r.TTY, "got:y") {
				t.Errorf("in a terminal: %v; %s", tty, r.text)
			}
		}
	})
	// The child does not read: the yield is on time all the same.
	t.Run("stdin-backpressure", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		input := strings.Repeat("x", 1_000_000)
		p := s.exec("sleep 100", args{"stdin": input, "yield_ms": 300})
		s.want(p, "backgrounded")
		s.wantSoon(p, 1500*time.Millisecond)
		s.wantSoon(s.call("write", args{"process_id": p.ProcessID, "input": input}), 1500*time.Millisecond)
		s.stop(p.ProcessID, 300)
	})
	t.Run("stdin-eof-never", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("wc -c", args{"stdin": "abc", "close_stdin": true})
		s.want(r, "completed")
		s.wantSoon(r, 1500*time.Millisecond)
		if strings.TrimSpace(r.Stdout) != "3" {
			t.Errorf("%s", r.text)
		}
		p := s.background("wc -c")
		s.call("write", args{"process_id": p.ProcessID, "input": "abcd", "close_stdin": true})
		if r := s.wait(p.ProcessID); strings.TrimSpace(r.Stdout) != "4" {
			t.Errorf("closed later: %s", r.text)
		}
	})
	t.Run("write-right-after-spawn", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		for _, effect := range []string{"NONE", "OTHER"} {
			p := s.exec("read x; echo got:$x", args{"yield_ms": 0, "side_effects": []string{effect}})
			s.want(p, "backgrounded")
			s.write(p.ProcessID, "go")
			r := s.wait(p.ProcessID)
			s.want(r, "completed")
			s.wantStdout(r, "got:go\n")
		}
	})
	// It may even still wait for its turn.
	t.Run("write-before-spawn", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		_, first := s.ask("tools/call", map[string]any{"name": "exec", "arguments": args{
			"command": "read x", "side_effects": []string{"OTHER"}, "yield_ms": longYield,
		}})
		s.eventually("the first command runs", func() bool { return len(s.ps(false)) == 1 })
		running := s.ps(false)[0].ProcessID
		p := s.exec("cat", args{"stdin": "one ", "side_effects": []string{"OTHER"}, "yield_ms": 0})
		s.want(p, "backgrounded")
		if !strings.Contains(p.text, `"queued"`) {
			t.Errorf("it does not wait for its turn: %s", p.text)
		}
		s.write(p.ProcessID, "two")
		s.call("write", args{"process_id": p.ProcessID, "input": "three", "close_stdin": true})
		if r := s.call("write", args{"process_id": p.ProcessID, "input": "four"}); r.OK {
			t.Errorf("input after its end is taken: %s", r.text)
		}
		s.write(running, "go")
		<-first
		s.wantStdout(s.wait(p.ProcessID), "one two\nthree")
		s.wantExit(s.wait(p.ProcessID), 0)
	})
}

// TestCommandText is about what reaches the shell, and where it runs.
func TestCommandText(t *testing.T) {
	t.Parallel()
	t.Run("quoting-brace-heredoc", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("true | true; { echo inside; }; cat <<'MY-MARK' | cat\nit's $HOME \\\\b\nMY-MARK\n")
		s.wantExit(r, 0)
		s.wantStdout(r, "inside\nit's $HOME \\\\b\n")
	})
	t.Run("cwd-deleted", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		gone := filepath.Join(s.tmp, "wt")
		s.must(os.Mkdir(gone, 0o700))
		s.wantStdout(s.exec(`rmdir "$PWD"; echo gone`, args{"cwd": gone}), "gone\n")
		s.wantStdout(s.exec("echo hello"), "hello\n")
		r := s.exec("echo hello", args{"cwd": gone})
		s.want(r, "failed_to_start")
		if !strings.Contains(r.Error, gone) || !regexp.MustCompile("(?i)no such|not exist|cwd").MatchString(r.Error) {
			t.Errorf("it does not say what is missing: %s", r.text)
		}
		s.must(os.RemoveAll(s.tmp)) // the server's own
		s.want(s.exec("echo hello"), "failed_to_start")
		s.wantStdout(s.exec("echo hello", args{"cwd": os.TempDir()}), "hello\n")
	})
	t.Run("argv-128k", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec(": " + strings.Repeat("x", 140_000) + "; echo ok")
		s.want(r, "completed", "failed_to_start")
		if !regexp.MustCompile("ok|too long|131072|128").MatchString(r.Stdout + r.Error) {
			t.Errorf("it does not name the limit: %.1000s", r.text)
		}
		long := fmt.Sprintf("echo %s", strings.Repeat("y", 120_000))
		if r := s.exec(long + " | wc -c"); strings.TrimSpace(r.Stdout) != "120001" {
			t.Errorf("below the limit: %.1000s", r.text)
		}
		r = s.exec("echo ok", args{"env": args{"A": strings.Repeat("x", 140_000)}})
		s.want(r, "completed", "failed_to_start")
		s.wantStdout(s.exec("echo ok"), "ok\n")
	})
}

// TestSecrets is about what must not come out, nor be kept.
func TestSecrets(t *testing.T) {
	t.Parallel()
	t.Run("env-leak", func(t *testing.T) {
		t.Parallel()
		const secret = "sk-leak-0123456789"
		s := start(t, "DEMO_API_KEY="+secret)
		s.must(os.Mkdir(filepath.Join(s.tmp, secret), 0o700))
		for _, command := range []string{"printenv; true", "echo $DEMO_API_KEY >&2", "echo x" + secret + "x", "pwd", "pwd & # " + secret} {
			r := s.exec(command, args{"name": "with " + secret, "cwd": filepath.Join(s.tmp, secret), "tty": command == "pwd"})
			s.want(r, "completed", "failed_to_start")
			if strings.Contains(r.text, secret) {
				t.Errorf("%s: %s", command, r.text)
			}
		}
		if list := s.call("ps", args{}); strings.Contains(list.text, secret) {
			t.Errorf("ps: %s", list.text)
		}
		s.close()
		s.wantNowhere(secret)
	})
	t.Run("secret-split-chunks", func(t *testing.T) {
		t.Parallel()
		const secret = "tok-ABCDEFGH-12345678"
		s := start(t, "DEMO_TOKEN="+secret)
		p := s.background("printf 'see tok-ABCDE'; read x; printf 'FGH-1'; read x; printf '2345678.\\n'")
		r := s.printed(p.ProcessID, "see ")
		if strings.Contains(p.Stdout+r.Stdout, "tok") {
			t.Errorf("the first part is shown: %s", r.text)
		}
		s.write(p.ProcessID, "")
		s.write(p.ProcessID, "")
		r = s.wait(p.ProcessID)
		s.want(r, "completed")
		s.wantStdout(r, "see [REDACTED].\n")
		if logs := s.logs(p.ProcessID); logs != r.Stdout {
			t.Errorf("the ledger has %q", logs)
		}
	})
	// A terminal ends the lines of a key in its own way, and programs indent them.
	t.Run("secret-of-several-lines", func(t *testing.T) {
		t.Parallel()
		const body = "MIIEpAIBAAKCAQEA7bq0"
		s := start(t, "DEPLOY_KEY=-----BEGIN RSA PRIVATE KEY-----\n"+body+"\nQAB=\n-----END RSA PRIVATE KEY-----\n")
		for _, command := range []string{`echo "$DEPLOY_KEY"`, `echo "$DEPLOY_KEY" | sed "s/^/    /"`, `echo $DEPLOY_KEY`} {
			for _, tty := range []bool{false, true} {
				r := s.exec(command, args{"tty": tty})
				s.want(r, "completed")
				if strings.Contains(r.text, body) || !strings.Contains(r.text, "[REDACTED]") {
					t.Errorf("%s: %s", command, r.text)
				}
			}
		}
		s.close()
		s.wantNowhere(body)
	})
	t.Run("password-typed", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("read pw; echo len=${#pw}")
		s.write(p.ProcessID, "hunter2-hunter2")
		s.wantStdout(s.wait(p.ProcessID), "len=15\n")
		s.exec("wc -c", args{"stdin": "hunter2-hunter2", "close_stdin": true})
		s.close()
		s.wantNowhere("hunter2")
	})
}

// TestNotices is about completions that nobody waited for.
func TestNotices(t *testing.T) {
	t.Parallel()
	t.Run("notice-survives-restart", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("sleep 0.3; exit 2")
		s.eventually("it ends", func() bool {
			return !slices.ContainsFunc(s.ps(false), func(a answer) bool { return a.ProcessID == p.ProcessID })
		})
		s.kill()
		s.start()
		if r := s.exec("true"); !strings.Contains(r.text, p.ProcessID) {
			t.Errorf("nothing tells of %s: %s", p.ProcessID, r.text)
		}
	})
}
