package main

import (
	"io"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look"
)

func TestLogs(t *testing.T) {
	r := record(t)
	for _, args := range [][]string{{}, {"-f"}} {
		args = append([]string{"logs", "--dir", r.dir, look.Short(r.execution)}, args...)
		if code, out, errOut := command(args...); code != 0 || out != "hello" || errOut != "" {
			t.Errorf("%v: code %d, %q, %q", args, code, out, errOut)
		}
	}
	if _, out, _ := command("logs", "--dir", r.dir, "--from", "3", look.Short(r.execution)); out != "lo" {
		t.Errorf("from byte 3: %q", out)
	}
	if code, _, errOut := command("logs", "--dir", r.dir, r.session); code != 3 {
		t.Errorf("a session: code %d, %s", code, errOut)
	}
}

// TestLogsFollow reads the first line while the second is not written yet.
func TestLogsFollow(t *testing.T) {
	dir, session, execution := t.TempDir(), events.NewID(), events.NewID()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir, Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	post := func(subject string, b events.Body) {
		t.Helper()
		e := events.Event{Session: session, Subject: subject, Owner: events.RootOwner, Body: b}
		if err := l.Post(t.Context(), e, nil); err != nil {
			t.Fatal(err)
		}
	}
	chunk := func(at int64, s string) events.Output {
		return events.Output{Stream: events.KindStdout, Offset: at, Data: []byte(s)}
	}
	if _, err := l.Append(t.Context(), events.Event{Session: session, Subject: session, Body: events.Opened{}}); err != nil {
		t.Fatal(err)
	}
	requested := events.Event{Session: session, Subject: execution, Body: events.Requested{Command: "x"}}
	if _, err := l.Append(t.Context(), requested); err != nil {
		t.Fatal(err)
	}
	post(execution, chunk(0, "one\n"))

	in, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"logs", "-f", execution, "--dir", dir}, strings.NewReader(""), out, io.Discard)
		out.Close()
	}()
	first := make([]byte, 4)
	if _, err := io.ReadFull(in, first); err != nil || string(first) != "one\n" {
		t.Fatalf("%q, %v", first, err)
	}
	post(execution, chunk(4, "two\n"))
	done := make(chan struct{})
	err = l.Post(t.Context(), events.Event{Session: session, Subject: execution, Body: events.Output{
		Stream: events.KindStdout, Offset: 8, Data: []byte("three\n"),
	}}, func(events.Event, error) { close(done) })
	if err != nil {
		t.Fatal(err)
	}
	<-done
	post(execution, events.Settled{Status: events.StatusCompleted, Offset: 14})
	rest, err := io.ReadAll(in)
	if err != nil || string(rest) != "two\nthree\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if code := <-ended; code != 0 {
		t.Errorf("code %d", code)
	}
}
