package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/yieldlog/yieldlog/events"
)

// ErrChain says that a message does not follow the session's last event.
var ErrChain = errors.New("the message does not follow the session's last event")

// transportPrefix begins the headers that belong to the store, not to the event.
const transportPrefix = "Nats-"

// OutputRaw is the output messages of an execution as they were appended, in
// offset order, beginning with the one that holds the offset from. Those that
// were packed are made anew: with the same bytes at the same offsets, and
// readable for a yieldlog that does not pack.
func (l *Ledger) OutputRaw(ctx context.Context, session, execution string, from int64) iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		for c, err := range l.pieces(ctx, session, execution, from, -1) {
			if err != nil {
				yield(Raw{}, err)
				return
			}
			for r, err := range unpackRaw(c.Raw) {
				_, end, ok := events.OutputSpan(r.Message)
				if err == nil && ok && end <= from {
					continue
				}
				if !yield(r, err) || err != nil {
					return
				}
				from = max(from, end)
			}
		}
	}
}

// unpackRaw is the messages that a packed one holds, and any other itself.
func unpackRaw(r Raw) iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		if !strings.HasSuffix(r.Subject, "."+string(events.KindPacked)) {
			yield(r, nil)
			return
		}
		e, err := decode(r)
		if _, ok := e.Body.(events.Packed); !ok || err != nil {
			yield(r, err)
			return
		}
		for e := range events.Unpack(e) {
			m, err := events.Encode(e)
			if !yield(Raw{Seq: r.Seq, Message: m}, err) || err != nil {
				return
			}
		}
	}
}

// OutputEnd is the offset after the last stored byte of an execution's output,
// 0 when there is none.
func (l *Ledger) OutputEnd(ctx context.Context, session, execution string) (int64, error) {
	r, err := l.lastOutput(ctx, session, execution)
	if errors.Is(err, errNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, end, _ := events.OutputSpan(r.Message)
	return end, nil
}

// Portable is the message without what the store added to it: as it may go to
// another ledger. The data is shared.
func Portable(m events.Message) events.Message {
	header := make(map[string][]string, len(m.Header))
	for name, values := range m.Header {
		if !strings.HasPrefix(name, transportPrefix) {
			header[name] = values
		}
	}
	m.Header = header
	return m
}

// PostRaw queues a message of another ledger as it is, byte for byte, and
// otherwise does what [Ledger.Post] does. A lifecycle message must continue its
// session's hash chain: it fails with [ErrChain] if it does not. The caller
// holds the session's claim.
func (l *Ledger) PostRaw(ctx context.Context, m events.Message, done func(events.Event, error)) error {
	if l.opts.ReadOnly {
		return ErrReadOnly
	}
	m = Portable(m)
	e, err := events.Decode(m)
	if err != nil {
		return err
	}
	if done == nil {
		done = func(events.Event, error) {}
	}
	m.Header[nats.MsgIdHdr] = []string{e.ID}
	en := &entry{event: e, msg: m, done: done}
	if e.Class() == events.ClassOutput {
		return l.output.put(ctx, en, func() error { return nil })
	}
	if e.Kind().Unique() {
		m.Header[nats.ExpectedLastSubjSeqHdr] = []string{"0"}
	}
	if err := l.chain.load(ctx, l, e); err != nil {
		return err
	}
	return l.lifecycle.put(ctx, en, func() error {
		if en.prev = l.chain.head(e.Session); e.Prev != en.prev {
			return fmt.Errorf("appending %s %s: %w", e.Kind(), e.ID, ErrChain)
		}
		en.hash = events.Hash(m)
		l.chain.set(e.Session, en.hash)
		return nil
	})
}
