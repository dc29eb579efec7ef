package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

// recorded is a ledger with one session of one execution, written here.
type recorded struct{ dir, session, execution string }

func record(t *testing.T) recorded {
	t.Helper()
	r := recorded{dir: t.TempDir(), session: events.NewID(), execution: events.NewID()}
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: r.dir, Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	for _, e := range []events.Event{
		{Subject: r.session, Body: events.Opened{Program: "test", Host: "here", Cwd: "/tmp"}},
		{Subject: r.execution, Owner: events.RootOwner, Body: events.Requested{Command: "printf hello", Cwd: "/tmp"}},
		{Subject: r.execution, Owner: events.RootOwner, Body: events.Spawned{PID: 42}},
		{Subject: r.execution, Owner: events.RootOwner, Body: events.Output{Stream: events.KindStdout, Data: []byte("hello")}},
		{Subject: r.execution, Owner: events.RootOwner, Body: events.Settled{
			Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess,
			ExitCode: &zero, DurationMS: 12, Offset: 5, Stdout: events.StreamSum{Bytes: 5, Raw: 5},
		}},
		{Subject: r.session, Body: events.Closed{Reason: "client left"}},
	} {
		e.Session = r.session
		done := make(chan error, 1)
		if err := l.Post(t.Context(), e, func(_ events.Event, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// command runs yieldlog in this process and returns its exit code and streams.
func command(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

func TestEvents(t *testing.T) {
	r := record(t)
	code, out, errOut := command("events", "--dir", r.dir)
	if code != 0 || strings.Count(out, "\n") != 5 || !strings.Contains(out, "settled      completed (exit code 0), 12ms, 5 B") {
		t.Fatalf("code %d, %s\n%s", code, errOut, out)
	}
	for _, tc := range []struct {
		filter string
		want   []events.Kind
	}{
		{"settled", []events.Kind{events.KindSettled}},
		{"session", []events.Kind{events.KindOpened, events.KindClosed}},
		{"settled,requested,outcome=success", []events.Kind{events.KindSettled}},
		{"owner=/root,kind!=spawned", []events.Kind{events.KindRequested, events.KindSettled}},
		{"exit_code=1", nil},
	} {
		code, out, errOut := command("events", look.Short(r.session), "--json", "--dir", r.dir, "--filter", tc.filter)
		if code != 0 {
			t.Fatalf("%s: code %d, %s", tc.filter, code, errOut)
		}
		var got []events.Kind
		for line := range strings.Lines(out) {
			var e replay.EventLine
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Schema != jsonSchema {
				t.Fatalf("%s: %q: %v", tc.filter, line, err)
			}
			got = append(got, e.Kind)
		}
		if len(got) != len(tc.want) || strings.Join(kinds(got), ",") != strings.Join(kinds(tc.want), ",") {
			t.Errorf("%s: %v, not %v", tc.filter, got, tc.want)
		}
	}
}

func kinds(list []events.Kind) []string {
	var s []string
	for _, k := range list {
		s = append(s, string(k))
	}
	return s
}

func TestEventsRefuses(t *testing.T) {
	r := record(t)
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"--filter", "settle"}, 2},
		{[]string{"nobody"}, 3},
		{[]string{"--dir", t.TempDir()}, 4},
	} {
		args := append([]string{"events", "--dir", r.dir}, tc.args...)
		if code, _, errOut := command(args...); code != tc.code || errOut == "" {
			t.Errorf("%v: code %d, not %d: %s", tc.args, code, tc.code, errOut)
		}
	}
}

func TestOneLineIsHarmless(t *testing.T) {
	if got := oneLine("a\x1b[31mb\nc\u009bd", 100); got != "a·[31mb⏎c·d" {
		t.Errorf("%q", got)
	}
	if got := oneLine("exe.\u202etxt", 100); got != `exe.\u202etxt` {
		t.Errorf("what turns the text round is not named: %q", got)
	}
	if got := oneLine("äöüä", 3); got != "äöü…" {
		t.Errorf("%q", got)
	}
}
