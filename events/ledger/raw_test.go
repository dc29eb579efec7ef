package ledger

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
)

// TestM67_RawGoesToAnotherLedger moves a session, and finds the same bytes.
func TestM67_RawGoesToAnotherLedger(t *testing.T) {
	from, to := open(t, t.TempDir()), open(t, t.TempDir())
	bodies := []events.Body{
		events.Opened{Program: "test"},
		events.Requested{Command: "x"},
		events.Output{Stream: events.KindStdout, Data: bytes.Repeat([]byte("long enough to be compressed\n"), 1000)},
		events.Output{Stream: events.KindStderr, Offset: 29000, Data: []byte("short")},
		events.Unknown{UnknownKind: "frozen", UnknownClass: events.ClassExecution, ContentType: "text/plain", Data: []byte("?")},
		events.Settled{Status: events.StatusCompleted},
		events.Closed{Reason: "done"},
	}
	for _, b := range bodies {
		id := "E"
		if b.Class() == events.ClassSession {
			id = "S"
		}
		stored := make(chan error, 1)
		if err := from.Post(t.Context(), event("S", id, b), func(_ events.Event, err error) { stored <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
	messages := rawOf(t, from)
	if len(messages) != len(bodies) {
		t.Fatalf("read %d messages", len(messages))
	}
	for _, m := range messages {
		stored := make(chan error, 1)
		if err := to.PostRaw(t.Context(), m, func(_ events.Event, err error) { stored <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-stored; err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(messages, rawOf(t, to)); diff != "" {
		t.Errorf("the bytes changed (-from +to):\n%s", diff)
	}
	if end, err := to.OutputEnd(t.Context(), "S", "E"); err != nil || end != 29005 {
		t.Errorf("the output ends at %d, %v", end, err)
	}
	if end, err := to.OutputEnd(t.Context(), "S", "none"); err != nil || end != 0 {
		t.Errorf("no output ends at %d, %v", end, err)
	}
	if err := to.PostRaw(t.Context(), messages[1], nil); !errors.Is(err, ErrChain) {
		t.Errorf("a message that does not follow was taken: %v", err)
	}
}

// rawOf is the portable messages of session S: lifecycle, then output of E.
func rawOf(t *testing.T, l *Ledger) []events.Message {
	t.Helper()
	var out []events.Message
	for r, err := range l.ReadRaw(t.Context(), events.Filter{Session: "S"}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Portable(r.Message))
	}
	for r, err := range l.OutputRaw(t.Context(), "S", "E", 0) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Portable(r.Message))
	}
	return out
}
