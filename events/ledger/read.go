package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/yieldlog/yieldlog/events"
)

// The size of one batched read.
const (
	batchMessages = queueLength - 1 // and the word that they are all
	batchBytes    = 4 << 20
	// leastFetch is the least bytes that a short read asks for.
	leastFetch = 16 << 10
)

// everything is the subject of all events.
var everything = events.Filter{}.Subject()

var errNoMessage = errors.New("no such message")

// errMoved says that a segment does not count any more: it was pruned, or its
// packed twin took its place. What is read is looked for again, from the offset
// that was reached.
var errMoved = errors.New("the segment was packed or pruned")

// unlessMoved is the error of a read, or errMoved when the segment went.
func (l *Ledger) unlessMoved(stream string, err error) error {
	if err != nil && isSegment(stream) && !l.dir().counts(stream) {
		return errMoved
	}
	return err
}

// Raw is a stored message with its sequence in its stream: the exact bytes,
// whatever its kind.
type Raw struct {
	Seq uint64
	events.Message
}

// LastSeq is the sequence of the newest lifecycle event, 0 when there is none.
func (l *Ledger) LastSeq(ctx context.Context) (uint64, error) {
	if r := l.resting(); r != nil {
		return r.last, nil
	}
	s, err := patiently(ctx, l, func(ctx context.Context) (jetstream.Stream, error) {
		return l.store.js.Stream(ctx, lifecycleStream)
	})
	if err != nil {
		return 0, fmt.Errorf("asking for the last sequence: %w", err)
	}
	return s.CachedInfo().State.LastSeq, nil
}

// Read is the lifecycle events of [from, to] that the filter selects, in order;
// to 0 means the last one now. A message that is no event is passed over, see
// [Stats].
func (l *Ledger) Read(ctx context.Context, f events.Filter, from, to uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for r, err := range l.ReadRaw(ctx, f, from, to) {
			if err != nil {
				yield(events.Event{}, err)
				return
			}
			if e, ok := l.readable(r); ok && !yield(e, nil) {
				return
			}
		}
	}
}

func decode(r Raw) (events.Event, error) {
	e, err := events.Decode(r.Message)
	if err != nil {
		return e, fmt.Errorf("reading sequence %d: %w", r.Seq, err)
	}
	e.Seq = r.Seq
	return e, nil
}

// ReadRaw is Read without decoding: every byte, for verification and export.
func (l *Ledger) ReadRaw(ctx context.Context, f events.Filter, from, to uint64) iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		if to == 0 {
			last, err := l.LastSeq(ctx)
			if err != nil {
				yield(Raw{}, err)
				return
			}
			to = last
		}
		for r, err := range l.scan(ctx, lifecycleStream, f.Subject(), from, batchBytes) {
			if err == nil && r.Seq > to {
				return
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// scan is the messages of a stream whose subject matches, from a sequence to
// the end as it is when it gets there. It fetches about so many bytes at first,
// and more each time. It goes on with a new host when the old one dies.
func (l *Ledger) scan(ctx context.Context, stream, subject string, from uint64, fetch int) iter.Seq2[Raw, error] {
	return func(yield func(Raw, error) bool) {
		next, err := l.scanAtRest(ctx, stream, subject, max(from, 1), yield)
		if !errors.Is(err, errStirred) {
			if err != nil && !errors.Is(err, errStopped) {
				yield(Raw{}, fmt.Errorf("reading %s from sequence %d: %w", stream, next, err))
			}
			return
		}
		progress, left := time.Now(), 0
		for ; ; fetch = min(2*fetch, batchBytes) {
			began := next
			if left > manyLeft {
				next, err = l.readFilled(ctx, stream, subject, next, yield)
				if !errors.Is(err, errStirred) {
					if !errors.Is(err, errStopped) {
						yield(Raw{}, fmt.Errorf("reading %s from sequence %d: %w", stream, next, err))
					}
					return
				}
			}
			more, err := once(ctx, l.store, func(ctx context.Context) (bool, error) {
				return l.batch(ctx, stream, subject, &next, &left, fetch, yield)
			})
			if next > began {
				progress = time.Now()
			}
			err = l.unlessMoved(stream, err)
			switch {
			case err == nil && more:
			case err == nil:
				return
			case passes(err) && ctx.Err() == nil && time.Since(progress) < patience:
				pause(ctx, passPause)
			default:
				yield(Raw{}, fmt.Errorf("reading %s from sequence %d: %w", stream, next, err))
				return
			}
		}
	}
}

// batch yields the next messages and moves next behind them, and says how many
// are left. more is false at the end of the stream, and when the reader stopped.
func (l *Ledger) batch(ctx context.Context, stream, subject string, next *uint64, left *int, fetch int, yield func(Raw, error) bool) (more bool, err error) {
	opts := []jetstreamext.GetBatchOpt{jetstreamext.GetBatchSeq(*next), jetstreamext.GetBatchMaxBytes(fetch)}
	if subject != everything { // a filter costs the server a count of all that match, each time
		opts = append(opts, jetstreamext.GetBatchSubject(subject))
	}
	batch, err := jetstreamext.GetBatch(ctx, l.store.js, stream, batchMessages, opts...)
	if err != nil {
		return false, err
	}
	for m, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		*next = m.Sequence + 1
		*left, _ = strconv.Atoi(m.Header.Get(pendingHeader)) // a help, if it is there
		more = true
		if !yield(raw(m), nil) {
			return false, nil
		}
	}
	if !more {
		return false, errUnanswered
	}
	return more, nil
}

// pendingHeader says of a message in a batch how many there are behind it.
const pendingHeader = "Nats-Num-Pending"

// errUnanswered is a batch without a message, and without the word that there is
// none: GetBatch ends so when no answer comes in time, with no error of its own.
var errUnanswered = fmt.Errorf("the host did not answer: %w", nats.ErrTimeout)

func raw(m *jetstream.RawStreamMsg) Raw {
	return Raw{Seq: m.Sequence, Message: events.Message{Subject: m.Subject, Header: m.Header, Data: m.Data}}
}

// last is the newest message of a subject, which may have wildcards, or errNoMessage.
func (l *Ledger) last(ctx context.Context, stream, subject string) (Raw, error) {
	if r := l.resting(); r != nil {
		m, err := r.newest(ctx, stream, subject)
		if err = l.unlessStirred(ctx, err); !errors.Is(err, errStirred) {
			return m, err
		}
	}
	m, err := patiently(ctx, l, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		s, err := l.store.js.Stream(ctx, stream)
		if err != nil {
			return nil, l.unlessMoved(stream, err)
		}
		m, err := s.GetLastMsgForSubject(ctx, subject)
		return m, l.unlessMoved(stream, err)
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Raw{}, errNoMessage
	}
	if err != nil {
		return Raw{}, fmt.Errorf("reading %s: %w", subject, err)
	}
	return raw(m), nil
}

// next is the first message at or after a sequence whose subject matches, or errNoMessage.
func (l *Ledger) next(ctx context.Context, stream, subject string, from uint64) (Raw, error) {
	if r := l.resting(); r != nil {
		m, err := r.next(ctx, stream, subject, max(from, 1))
		if err = l.unlessStirred(ctx, err); !errors.Is(err, errStirred) {
			return m, err
		}
	}
	r, err := patiently(ctx, l, func(ctx context.Context) (Raw, error) {
		batch, err := jetstreamext.GetBatch(ctx, l.store.js, stream, 1,
			jetstreamext.GetBatchSeq(max(from, 1)), jetstreamext.GetBatchSubject(subject))
		if err != nil {
			return Raw{}, l.unlessMoved(stream, err)
		}
		for m, err := range batch {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				err = errNoMessage
			}
			if err != nil {
				return Raw{}, l.unlessMoved(stream, err)
			}
			return raw(m), nil
		}
		return Raw{}, l.unlessMoved(stream, errUnanswered)
	})
	if err != nil && !errors.Is(err, errNoMessage) {
		err = fmt.Errorf("reading %s: %w", stream, err)
	}
	return r, err
}
