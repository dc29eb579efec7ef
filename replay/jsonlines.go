package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/yieldlog/yieldlog/events"
)

// EventSchema is the version of [EventLine], which grows when a field changes
// its meaning.
const EventSchema = 1

// An EventLine is an event as one line of JSON: what `yieldlog events --json`
// prints, hooks are given, and an export in JSON lines holds.
type EventLine struct {
	Schema    int          `json:"schema"`
	Seq       uint64       `json:"seq"`
	ID        string       `json:"id"`
	Time      time.Time    `json:"time"`
	Session   string       `json:"session"`
	Owner     string       `json:"owner,omitempty"`
	Class     events.Class `json:"class"`
	Kind      events.Kind  `json:"kind"`
	Subject   string       `json:"subject"`
	Execution string       `json:"execution,omitempty"`
	Body      any          `json:"body"`
}

// outputLine is a chunk of output: as text where it is UTF-8, as base64 where
// it is not.
type outputLine struct {
	Offset int64  `json:"offset"`
	Text   string `json:"text,omitempty"`
	Data   []byte `json:"data,omitempty"`
}

// NewEventLine is the event as a line.
func NewEventLine(e events.Event) EventLine {
	return EventLine{
		Schema: EventSchema, Seq: e.Seq, ID: e.ID, Time: e.Time, Session: e.Session, Owner: e.Owner,
		Class: e.Class(), Kind: e.Kind(), Subject: e.Subject, Execution: e.Execution(), Body: lineBody(e.Body),
	}
}

// WriteEventLines writes frames as JSON, one event on each line, output
// included. The schema of a line is that of `yieldlog events --json`.
func WriteEventLines(w io.Writer, frames iter.Seq2[Frame, error]) error {
	for f, err := range frames {
		if err != nil {
			return err
		}
		b, err := events.EncodeJSON(NewEventLine(f.Event))
		if err != nil {
			return fmt.Errorf("encoding event %s: %w", f.ID, err)
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return fmt.Errorf("writing event %s: %w", f.ID, err)
		}
	}
	return nil
}

func lineBody(body events.Body) any {
	switch b := body.(type) {
	case events.Output:
		if utf8.Valid(b.Data) {
			return outputLine{Offset: b.Offset, Text: string(b.Data)}
		}
		return outputLine{Offset: b.Offset, Data: b.Data}
	case events.Unknown:
		if json.Valid(b.Data) {
			return json.RawMessage(b.Data)
		}
		return b.Data // as base64: nobody here knows what it is
	}
	return body
}
