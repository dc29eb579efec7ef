package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// ErrDiffers says that the ledger has the session already, with another history.
var ErrDiffers = errors.New("the session here has another history")

// Summary says what an import did.
type Summary struct {
	// Sessions are those that the archive holds, in its order.
	Sessions []string `json:"sessions"`
	// Open are those of them that had not ended.
	Open []string `json:"open,omitempty"`
	// Appended counts the messages that are new, and Present those that were
	// there already.
	Appended int `json:"appended"`
	Present  int `json:"present"`
}

// Import appends what an archive holds and the ledger does not. An import that
// was cut off goes on when it is done again, and one that was done changes
// nothing. A session that is here with another history is refused with
// [ErrDiffers]: what was imported before it stays.
func Import(ctx context.Context, l *ledger.Ledger, r io.Reader) (Summary, error) {
	return importAll(ctx, l, read(r))
}

func importAll(ctx context.Context, l *ledger.Ledger, source iter.Seq2[record, error]) (Summary, error) {
	m := &importer{ledger: l, past: map[string][]place{}}
	var err error
	for r, readErr := range source {
		if err = readErr; err == nil {
			err = m.take(ctx, r)
		}
		if err != nil {
			break
		}
	}
	return m.sum, errors.Join(err, m.leave(ctx))
}

// An importer appends records. It has one session at a time.
type importer struct {
	ledger *ledger.Ledger
	sum    Summary

	session string
	claim   *ledger.Claim
	ended   bool
	here    []place            // the session's lifecycle messages in this ledger, as far as they came
	past    map[string][]place // those of the sessions before it
	passed  int                // how many of them the archive had
	ends    map[string]int64   // of executions: where their output in this ledger ends
	output  bool               // what is under way is output

	mu      sync.Mutex // guards failure, and here while messages are under way
	flying  sync.WaitGroup
	failure error
}

// A place is where a message is here, and where it was.
type place struct {
	id        string
	seq, from uint64
}

func (m *importer) take(ctx context.Context, r record) error {
	e, err := events.Decode(r.Message)
	if err != nil {
		return err
	}
	if e.Session != m.session {
		if err := m.leave(ctx); err != nil {
			return err
		}
		if err := m.enter(ctx, e.Session); err != nil {
			return err
		}
	}
	isOutput := e.Class() == events.ClassOutput
	if isOutput != m.output { // what came before must be on disk first
		if err := m.settle(ctx); err != nil {
			return err
		}
		m.output = isOutput
	}
	if isOutput {
		return m.takeOutput(ctx, e, r)
	}
	if k := e.Kind(); k == events.KindClosed || k == events.KindLost {
		m.ended = true
	}
	return m.takeLifecycle(ctx, e, r)
}

// enter begins a session: what the ledger has of it must be what the archive
// begins with.
func (m *importer) enter(ctx context.Context, session string) error {
	claimed, err := m.ledger.Claimed()
	if err != nil {
		return err
	}
	if slices.Contains(claimed, session) {
		return fmt.Errorf("session %s belongs to this ledger, and runs or was not recovered yet", session)
	}
	// A name of its own: a session of its name would be declared lost when this
	// process dies.
	if m.claim, err = m.ledger.ClaimSession("import-" + session); err != nil {
		return err
	}
	m.session, m.here, m.passed, m.ended, m.ends = session, nil, 0, false, map[string]int64{}
	m.sum.Sessions = append(m.sum.Sessions, session)
	for r, err := range m.ledger.ReadRaw(ctx, events.Filter{Session: session}, 1, 0) {
		if err != nil {
			return err
		}
		e, err := events.Decode(r.Message)
		if err != nil {
			return fmt.Errorf("reading sequence %d: %w", r.Seq, err)
		}
		m.here = append(m.here, place{id: e.ID, seq: r.Seq})
	}
	return nil
}

// leave ends the session.
func (m *importer) leave(ctx context.Context) error {
	if m.claim == nil {
		return nil
	}
	err := m.settle(ctx)
	if !m.ended {
		m.sum.Open = append(m.sum.Open, m.session)
	}
	m.past[m.session] = m.here
	m.claim.Release()
	m.claim, m.session = nil, ""
	return err
}

func (m *importer) takeLifecycle(ctx context.Context, e events.Event, r record) error {
	i := m.passed
	m.passed++
	if i < len(m.here) {
		if m.here[i].id != e.ID {
			return fmt.Errorf("session %s: its event %d is %s here and %s in the archive: %w", e.Session, i+1, m.here[i].id, e.ID, ErrDiffers)
		}
		m.here[i].from = r.seq
		m.sum.Present++
		return nil
	}
	switch b := e.Body.(type) {
	case events.Rewound:
		if err := m.settle(ctx); err != nil { // so that all places are known
			return err
		}
		r.Message = events.Localize(r.Message, localSeq(m.here, b.To))
	case events.Forked:
		if from, ok := m.past[b.From]; ok {
			r.Message = events.Localize(r.Message, localSeq(from, b.At))
		}
	}
	m.mu.Lock()
	m.here = append(m.here, place{id: e.ID, from: r.seq})
	m.mu.Unlock()
	return m.post(ctx, r.Message, func(stored events.Event) { m.here[i].seq = stored.Seq })
}

// localSeq is the sequence here of a session's last message at or before a
// sequence of the other ledger.
func localSeq(places []place, from uint64) uint64 {
	var seq uint64
	for _, p := range places {
		if p.from > from {
			break
		}
		seq = p.seq
	}
	return seq
}

func (m *importer) takeOutput(ctx context.Context, e events.Event, r record) error {
	o, ok := e.Body.(events.Output)
	if !ok {
		return fmt.Errorf("%s is no output that can be placed", e.Kind())
	}
	end, known := m.ends[e.Subject]
	if !known {
		var err error
		if end, err = m.ledger.OutputEnd(ctx, e.Session, e.Subject); err != nil {
			return err
		}
	}
	m.ends[e.Subject] = max(end, o.End())
	switch {
	case o.End() <= end:
		m.sum.Present++
		return nil
	case o.Offset < end: // the chunks were cut elsewhere
		cut := events.Event{
			Session: e.Session, Owner: e.Owner, Subject: e.Subject, Time: e.Time,
			ID: events.NewID(), Body: events.Output{Stream: o.Stream, Offset: end, Data: o.Data[end-o.Offset:]},
		}
		message, err := events.Encode(cut)
		if err != nil {
			return err
		}
		return m.post(ctx, message, nil)
	}
	return m.post(ctx, r.Message, nil)
}

// post appends a message; note is called with the event under the lock.
func (m *importer) post(ctx context.Context, message events.Message, note func(events.Event)) error {
	m.flying.Add(1)
	err := m.ledger.PostRaw(ctx, message, func(e events.Event, err error) {
		defer m.flying.Done()
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case err == nil && note != nil:
			note(e)
		case err != nil && m.failure == nil:
			m.failure = fmt.Errorf("appending %s %s: %w", e.Kind(), e.ID, err)
		}
	})
	if err != nil {
		m.flying.Done()
		return err
	}
	m.sum.Appended++
	return nil
}

// settle waits until everything that was posted is durable.
func (m *importer) settle(ctx context.Context) error {
	done := make(chan struct{})
	go func() { m.flying.Wait(); close(done) }() // ends when the ledger has answered, at its close at the latest
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for what was appended: %w", ctx.Err())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failure
}
