//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// settleOne appends an execution that ends with the outcome.
func settleOne(t *testing.T, l *ledger.Ledger, session string, outcome events.Outcome) string {
	t.Helper()
	id := events.NewID()
	for _, b := range []events.Body{
		events.Requested{Command: "true", Cwd: "/"},
		events.Settled{Status: events.StatusCompleted, Termination: events.TermExited, Outcome: outcome},
	} {
		if _, err := l.Append(t.Context(), events.Event{Session: session, Subject: id, Owner: events.RootOwner, Body: b}); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func waitForText(t *testing.T, file, text string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		data, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(data), text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not have %q: %q, %v", file, text, data, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestOnIsKilledAndGoesOn kills the hook while its command runs: the event of
// that command comes again, the earlier one does not.
func TestOnIsKilledAndGoesOn(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir, Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	session := events.NewID()
	first := settleOne(t, l, session, events.OutcomeFailure)
	settleOne(t, l, session, events.OutcomeSuccess) // is not selected
	second := settleOne(t, l, session, events.OutcomeFailure)

	log, gate := filepath.Join(work, "log"), filepath.Join(work, "gate")
	script := `echo "$YIELDLOG_EXECUTION" >>` + log + `; cat >>` + log + `.json; [ "$YIELDLOG_EXECUTION" != ` + second + ` ] || [ -e ` + gate + ` ] || exec sleep 1000`
	args := []string{"--dir", dir, "on", "settled", "--filter", "outcome=failure", "--from", "1", "--exec", script}
	hook := exec.Command(binary, args...)
	hook.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := hook.Start(); err != nil {
		t.Fatal(err)
	}
	waitForText(t, log, second)
	_ = syscall.Kill(-hook.Process.Pid, syscall.SIGKILL)
	_ = hook.Wait() // it was killed

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	third := settleOne(t, l, session, events.OutcomeFailure)
	for range 2 { // the second time there is nothing new
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		out, err := exec.CommandContext(ctx, binary, append(args, "--once")...).CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{first, second, second, third}
	if diff := cmp.Diff(want, strings.Fields(string(data))); diff != "" {
		t.Errorf("ran for (-want +got):\n%s", diff)
	}
	waitForText(t, log+".json", `"outcome":"failure"`)
}

func TestOnBeginsNow(t *testing.T) {
	dir := t.TempDir()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir, Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	session := events.NewID()
	run := func() string {
		out, err := exec.Command(binary, "--dir", dir, "on", "requested", "--once", "--name", "n", "--exec", `echo "$YIELDLOG_EXECUTION"`).CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	settleOne(t, l, session, events.OutcomeSuccess)
	if got := run(); got != "" {
		t.Errorf("the past came: %q", got)
	}
	id := settleOne(t, l, session, events.OutcomeSuccess)
	if got := run(); got != id {
		t.Errorf("got %q, want %q", got, id)
	}
}
