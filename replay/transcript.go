package replay

import (
	"context"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// maxForks bounds how far back the history of a fork of a fork is followed.
const maxForks = 32

// Transcript is the rows of a session up to a lifecycle sequence, 0 for all of
// them, as the owner sees them, or with "" people. A fork begins with the rows
// that it shares.
func Transcript(ctx context.Context, src Source, session, owner string, to uint64) ([]projections.Row, error) {
	var parts [][]projections.Row // the newest first
	for range maxForks {
		t, from := projections.NewTranscript(session), &origin{}
		if err := NewEngine(t, from).RunTo(ctx, src, events.Filter{Session: session}, to); err != nil {
			return nil, err
		}
		parts = append(parts, t.Rows(owner))
		if from.session == "" {
			break
		}
		session, to = from.session, from.at
	}
	var rows []projections.Row
	for i := len(parts) - 1; i >= 0; i-- {
		rows = append(rows, parts[i]...)
	}
	return rows, nil
}

// An origin is the fold that knows where a fork comes from.
type origin struct {
	session string
	at      uint64
}

// Apply implements [projections.Fold].
func (o *origin) Apply(e events.Event) {
	if b, ok := e.Body.(events.Forked); ok && o.session == "" {
		o.session, o.at = b.From, b.At
	}
}
