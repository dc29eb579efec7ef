//go:build unix

package field

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDurability is about what a kill, a full or a slow disk takes away: nothing
// that was told.
func TestDurability(t *testing.T) {
	t.Parallel()
	t.Run("acked-write-lost", func(t *testing.T) {
		t.Parallel()
		s := start(t, "YIELDLOG_SYNC=always")
		for n := range 20 {
			r := s.exec(fmt.Sprintf("echo n=%d; exit 6", n))
			s.wantExit(r, 6)
			s.kill()
			s.start()
			if got := s.logs(r.ProcessID); got != fmt.Sprintf("n=%d\n", n) {
				t.Errorf("the ledger has %q", got)
			}
		}
		settled := s.events("settled", "")
		if len(settled) != 20 {
			t.Errorf("%d settlements", len(settled))
		}
		for _, e := range settled {
			if e.Body.ExitCode == nil || *e.Body.ExitCode != 6 {
				t.Errorf("it is settled as %+v", e.Body)
			}
		}
	})
	t.Run("log-only-flushed-at-stop", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("i=0; while :; do i=$((i+1)); echo line$i; sleep 0.1; done")
		s.printed(p.ProcessID, "line20\n")
		s.kill()
		s.start()
		if lines := strings.Count(s.logs(p.ProcessID), "\n"); lines < 20 {
			t.Errorf("the ledger has %d lines, of 20 that were shown", lines)
		}
	})
	// The ledger stops now and then: that changes no command's result.
	t.Run("recorder-backpressure-kills-session", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.close()
		host := s.host()
		s.start()
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				_ = host.Signal(syscall.SIGSTOP)
				time.Sleep(20 * time.Millisecond)
				_ = host.Signal(syscall.SIGCONT)
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		}()
		r := s.exec("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo \"a fairly long line of text number $i\"; done; exit 4")
		close(stop)
		<-done
		s.want(r, "completed")
		s.wantExit(r, 4)
		if lines := strings.Count(s.logs(r.ProcessID), "\n"); lines != 2000 {
			t.Errorf("the ledger has %d lines", lines)
		}
	})
	// A ledger that stalls while a command ends holds the call no longer than it asked.
	t.Run("stalled-end-holds-call", func(t *testing.T) {
		t.Parallel()
		for name, command := range map[string]string{"said": "until [ -e go ]; do sleep 0.05; done; seq 200000; exit 4", "silent": "until [ -e go ]; do sleep 0.05; done; exit 4"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := start(t)
				s.close()
				host := s.host()
				s.start()
				_, answered := s.ask("tools/call", map[string]any{"name": "exec", "arguments": args{
					"command": command, "side_effects": []string{"NONE"}, "yield_ms": 3000,
				}})
				s.eventually("it runs", func() bool { return len(s.ps(false)) == 1 })
				id := s.ps(false)[0].ProcessID
				s.stall(host)
				s.must(os.WriteFile(filepath.Join(s.tmp, "go"), nil, 0o600))
				select {
				case raw := <-answered:
					if !strings.Contains(string(raw), id) {
						t.Errorf("it answers %s", raw)
					}
				case <-time.After(patience):
					t.Error("the call does not answer")
				}
				s.must(host.Signal(syscall.SIGCONT))
				// A wait that comes later finds the record, and claims it.
				s.eventually("its end is posted", func() bool { return strings.Contains(s.yieldlog("mailbox"), id[len(id)-8:]) })
				s.wantExit(s.wait(id), 4)
				s.settlement(id)
				if mail := s.call("mailbox", args{}); strings.Contains(mail.text, id) {
					t.Errorf("it is told twice: %s", mail.text)
				}
			})
		}
	})
	// While the ledger stalls, what runs is still listed, and can still be ended.
	t.Run("stalled-ledger-blocks-tools", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		s.close()
		host := s.host()
		s.start()
		job := s.unique(100)
		id := s.background("sleep " + job).ProcessID
		s.stall(host)
		if list := s.call("ps", args{}); !strings.Contains(list.text, id) {
			t.Errorf("ps: %s", list.text)
		}
		if r := s.call("stop", args{"process_id": id, "force_after_ms": 100}); r.Stopped || !strings.Contains(r.text, "not recorded yet") {
			t.Errorf("stop: %s", r.text)
		}
		s.wantGone("sleep " + job)
		if list := s.call("ps", args{}); !strings.Contains(list.text, "does not answer") {
			t.Errorf("ps says nothing of the ledger: %s", list.text)
		}
		s.must(host.Signal(syscall.SIGCONT))
		s.want(s.wait(id), "stopped")
	})
	t.Run("transcript-fills-disk", func(t *testing.T) {
		t.Parallel()
		s := start(t, "YIELDLOG_OUTPUT_LIMIT_BYTES=20000000")
		// Lines that do not compress to nothing.
		r := s.exec("od -An -v -tx1 /dev/urandom")
		s.want(r, "failed")
		if r.Termination != "output-limit" || !strings.Contains(r.text, "it wrote more than 20000000 bytes") {
			t.Errorf("%s", r.text)
		}
		if e := s.settlement(r.ProcessID); e.Body.Termination != "output-limit" {
			t.Errorf("it is settled as %+v", e.Body)
		}
		var total int
		s.files(func(_ string, data []byte) { total += len(data) })
		if total > 60_000_000 {
			t.Errorf("the ledger has %d bytes", total)
		}
		s.wantStdout(s.exec("echo on"), "on\n")
	})
}

// TestRecovery is about the next server on a ledger.
func TestRecovery(t *testing.T) {
	t.Parallel()
	t.Run("killed-recorder-hides-session", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		p := s.background("echo before; sleep 100", args{"name": "victim"})
		s.printed(p.ProcessID, "before")
		for range 2 {
			s.kill()
			s.start()
		}
		if r := s.call("ps", args{"include_completed": true}); !strings.Contains(r.text, p.ProcessID) && !strings.Contains(s.yieldlog("ps"), "victim") {
			t.Errorf("it is not listed: %s", r.text)
		}
		r := s.read(p.ProcessID)
		s.want(r, "lost")
		s.wantStdout(r, "before\n")
		if e := s.settlement(p.ProcessID); e.Body.Status != "lost" {
			t.Errorf("it is settled as %+v", e.Body)
		}
	})
	t.Run("stuck-running-after-crash", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		job := s.unique(100)
		s.background("sleep " + job)
		s.background("setsid sleep " + job)
		s.kill()
		s.start()
		if list := s.ps(false); len(list) != 0 {
			t.Errorf("there runs %+v", list)
		}
		s.wantGone("sleep " + job)
	})
	// Records that nobody understands stop nothing.
	t.Run("bad-record-blocks-start", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("echo good")
		s.want(r, "completed")
		session := s.events("settled", "")[0].Session
		s.close()
		s.host()
		for _, kind := range []string{"from_the_future", "settled", "requested"} {
			for _, payload := range []string{`{"type":"from_the_future","v":99}`, "not json"} {
				s.publish("yieldlog."+session+".execution."+r.ProcessID+"X."+kind, payload)
			}
		}
		s.publish("yieldlog."+session+".session."+session+".lost", "not json")
		s.start()
		s.wantStdout(s.read(r.ProcessID), "good\n")
		s.wantStdout(s.exec("echo on"), "on\n")
		if !strings.Contains(s.yieldlog("ps"), "echo good") || !strings.Contains(s.yieldlog("events"), "settled") {
			t.Error("the command line does not read on")
		}
		s.yieldlog("grep", "good")
		s.yieldlog("replay", "--instant", session)
	})
	// A damaged record costs itself alone, and who reads is told.
	t.Run("silent-gap", func(t *testing.T) {
		t.Parallel()
		s := start(t)
		r := s.exec("seq 60000")
		s.want(r, "completed")
		s.close()
		damaged := 0 // in the middle: a record holds at most 64 KiB
		s.files(func(path string, data []byte) {
			if i := bytes.Index(data, []byte("\n30000\n")); i >= 0 && filepath.Ext(path) == ".blk" {
				data[i+1] ^= 1
				s.must(os.WriteFile(path, data, 0o600))
				damaged++
			}
		})
		if damaged != 1 {
			t.Fatalf("%d files have it", damaged)
		}
		logs := exec.Command(binary, "--dir", s.dir, "logs", r.ProcessID)
		var told strings.Builder
		logs.Stderr = &told
		out, err := logs.Output()
		s.must(err)
		if !strings.HasPrefix(string(out), "1\n2\n") || !strings.HasSuffix(string(out), "\n60000\n") {
			t.Errorf("there is %d bytes left", len(out))
		}
		if !strings.Contains(told.String(), "damaged or missing") {
			t.Errorf("it says %q", told.String())
		}
	})
}

// host starts a process that does nothing but host the ledger.
func (s *server) host() *os.Process {
	s.t.Helper()
	cmd := exec.Command(binary, "--dir", s.dir, "serve")
	cmd.Env = append(os.Environ(), "YIELDLOG_SYNC=relaxed")
	cmd.Stderr = &testLog{t: s.t}
	s.must(cmd.Start())
	s.t.Cleanup(func() {
		s.close() // first who depends on it
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	s.eventually("the ledger is hosted", func() bool {
		endpoint, err := os.ReadFile(filepath.Join(s.dir, "endpoint.json"))
		return err == nil && strings.Contains(string(endpoint), fmt.Sprintf(`"pid": %d`, cmd.Process.Pid))
	})
	return cmd.Process
}

// stall stops the process, and returns once it is: on a busy machine its threads
// go on for a while after the signal.
func (s *server) stall(p *os.Process) {
	s.t.Helper()
	s.must(p.Signal(syscall.SIGSTOP))
	s.eventually("it is stopped", func() bool {
		return slices.ContainsFunc(processList(s.t), func(o process) bool { return o.pid == p.Pid && o.stopped })
	})
}

// publish puts a message into the ledger as any NATS client could that has the
// host's key: it speaks the protocol itself.
func (s *server) publish(subject, payload string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "credentials.json"))
	s.must(err)
	var key struct {
		Port int
		Seed string
	}
	s.must(json.Unmarshal(text, &key))
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", key.Port))
	s.must(err)
	defer conn.Close()
	s.must(conn.SetDeadline(time.Now().Add(patience)))
	in := bufio.NewReader(conn)
	greeting, err := in.ReadString('\n')
	s.must(err)
	var info struct{ Nonce string }
	s.must(json.Unmarshal([]byte(strings.TrimPrefix(greeting, "INFO ")), &info))
	public, signature := sign(s.t, key.Seed, info.Nonce)
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"nkey\":%q,\"sig\":%q}\r\nSUB answer 1\r\nPUB ingest.LIFECYCLE.%s answer %d\r\n%s\r\nPING\r\n",
		public, signature, subject, len(payload), payload)
	for {
		line, err := in.ReadString('\n')
		s.must(err)
		switch {
		case strings.HasPrefix(line, "-ERR"):
			s.t.Fatalf("publishing to %s: %s", subject, line)
		case strings.HasPrefix(line, `{"stream"`): // it is stored
			return
		case strings.HasPrefix(line, `{"error"`):
			s.t.Fatalf("publishing to %s: %s", subject, line)
		}
	}
}

// sign is the public key of a NATS user's seed, and its signature.
func sign(t *testing.T, seed, nonce string) (public, signature string) {
	t.Helper()
	encoding := base32.StdEncoding.WithPadding(base32.NoPadding)
	raw, err := encoding.DecodeString(seed)
	if err != nil {
		t.Fatal(err)
	}
	key := ed25519.NewKeyFromSeed(raw[2:34])
	const user = 20 << 3
	named := append([]byte{user}, key.Public().(ed25519.PublicKey)...)
	var crc uint16 // CCITT, as XMODEM has it
	for _, b := range named {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	named = append(named, byte(crc), byte(crc>>8))
	return encoding.EncodeToString(named), base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(nonce)))
}
