package replay_test

import (
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
)

// recordSession appends the life of a session: it opens, settles one execution with
// the status, and ends with the last body, if any.
func recordSession(t *testing.T, l *ledger.Ledger, cwd, client string, status events.Status, end events.Body) (session, execution string) {
	t.Helper()
	session, execution = events.NewID(), events.NewID()
	add := func(subject string, b events.Body) {
		t.Helper()
		if _, err := l.Append(t.Context(), events.Event{Session: session, Owner: "/root", Subject: subject, Body: b}); err != nil {
			t.Fatal(err)
		}
	}
	add(session, events.Opened{Program: "mcp", Client: client, Cwd: cwd})
	add(execution, events.Requested{Command: "sleep 1", Cwd: cwd})
	if status != "" {
		add(execution, events.Settled{Status: status})
	}
	if end != nil {
		add(session, end)
	}
	return session, execution
}

func TestEarlier(t *testing.T) {
	l := openLedger(t)
	lost := events.Lost{Reason: "test"}
	_, beforeTheClose := recordSession(t, l, "/a", "a 1", events.StatusLost, lost)
	_, closed := recordSession(t, l, "/a", "a 1", events.StatusCompleted, events.Closed{})
	_, first := recordSession(t, l, "/a", "a 1", events.StatusLost, lost)
	_, elsewhere := recordSession(t, l, "/b", "a 1", events.StatusLost, lost)
	_, another := recordSession(t, l, "/a", "b 1", events.StatusLost, lost)
	_, second := recordSession(t, l, "/a", "a 1", events.StatusLost, lost)
	_, ended := recordSession(t, l, "/a", "a 1", events.StatusCompleted, lost)
	_, alive := recordSession(t, l, "/a", "a 1", events.StatusCompleted, nil)
	own, running := recordSession(t, l, "/a", "a 2", "", nil)

	e := replay.Earlier{Source: l, Session: own}
	for id, want := range map[string]bool{
		beforeTheClose: true, closed: true, first: true, elsewhere: true, another: true, second: true, ended: true,
		alive: false, running: false, events.NewID(): false, "proc_nope": false, "*": false, ">": false, "": false,
	} {
		p, ok, err := e.Execution(t.Context(), id)
		if err != nil || ok != want || ok && p.Execution != id {
			t.Errorf("%q: %v, %v", id, ok, err)
		}
	}
	list, err := e.Lost(t.Context())
	if err != nil || len(list) != 2 || list[0].Execution != second || list[1].Execution != first {
		t.Errorf("lost: %+v, %v", list, err)
	}
}

// What was lost says when it printed last, as far as that is known.
func TestLostTellsItsLastOutput(t *testing.T) {
	l := openLedger(t)
	session, id := events.NewID(), events.NewID()
	add := func(subject string, b events.Body) events.Event {
		t.Helper()
		e, err := l.Append(t.Context(), events.Event{Session: session, Owner: "/root", Subject: subject, Body: b})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	add(session, events.Opened{Program: "mcp", Client: "a 1", Cwd: "/a"})
	add(id, events.Requested{Command: "echo one; sleep 600", Cwd: "/a"})
	add(id, events.Output{Stream: events.KindStdout, Data: []byte("one\n")})
	last := add(id, events.Output{Stream: events.KindStdout, Offset: 4, Data: []byte("two\n")})
	add(id, events.Settled{Status: events.StatusLost, Offset: 8})
	silent := events.NewID()
	add(silent, events.Requested{Command: "sleep 600", Cwd: "/a"})
	add(silent, events.Settled{Status: events.StatusLost})
	add(session, events.Lost{Reason: "test"})
	own, _ := recordSession(t, l, "/a", "a 2", "", nil)

	list, err := replay.Earlier{Source: l, Session: own}.Lost(t.Context())
	if err != nil || len(list) != 2 || !list[0].LastOutputAt.IsZero() || !list[1].LastOutputAt.Equal(last.Time) {
		t.Errorf("lost: %+v, %v, want the last output at %v", list, err, last.Time)
	}
}
