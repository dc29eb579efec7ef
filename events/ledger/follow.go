package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yieldlog/yieldlog/events"
)

// The most that a follower may lag behind before it is dropped and reads again.
const (
	followMessages = queueLength
	followBytes    = 64 << 20
)

// Follow is the lifecycle events that the filter selects, from a sequence on,
// and then live until ctx ends. It survives reconnects: no event is missed and
// none comes twice.
func (l *Ledger) Follow(ctx context.Context, f events.Filter, from uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		next := max(from, 1)
		l.goOn(ctx, yield, func() error { return l.followOnce(ctx, f, &next, yield) })
	}
}

// goOn follows, again after each error that passes, until ctx ends or the reader
// has enough.
func (l *Ledger) goOn(ctx context.Context, yield func(events.Event, error) bool, follow func() error) {
	if err := l.wake(ctx); err != nil {
		yield(events.Event{}, err)
		return
	}
	for ctx.Err() == nil {
		err := follow()
		if errors.Is(err, errStopped) || ctx.Err() != nil {
			return
		}
		if err != nil && !passes(err) {
			yield(events.Event{}, err)
			return
		}
		pause(ctx, passPause)
	}
}

// passes reports whether an error ends by itself: the host died and another
// takes over.
func passes(err error) bool {
	return errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, errBehind) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// passPause is the wait before something that passes is tried again.
const passPause = 50 * time.Millisecond

// errBehind says that a subscription lost messages: read again from the ledger.
var errBehind = errors.New("the subscription fell behind")

// followOnce subscribes, catches up, and goes on live until the connection is
// lost or the subscription falls behind.
func (l *Ledger) followOnce(ctx context.Context, f events.Filter, next *uint64, yield func(events.Event, error) bool) error {
	sub, err := l.subscribe(f)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	lost, cancel := l.store.onLost()
	defer cancel()
	for e, err := range l.Read(ctx, f, *next, 0) {
		if err != nil {
			return err
		}
		*next = e.Seq + 1
		if !yield(e, nil) {
			return errStopped
		}
	}
	return live(ctx, sub, lost, func(r Raw) error {
		if r.Seq < *next || r.Header[nats.JSStream] != nil && r.Header[nats.JSStream][0] != lifecycleStream {
			return nil
		}
		*next = r.Seq + 1
		if e, ok := l.readable(r); ok && !yield(e, nil) {
			return errStopped
		}
		return nil
	})
}

// FollowOutput is the output events that the filter selects, live from now
// until ctx ends. A follower that falls far behind, or a lost host, leaves a
// gap in the offsets: [Ledger.Output] fills it.
func (l *Ledger) FollowOutput(ctx context.Context, f events.Filter) iter.Seq2[events.Event, error] {
	f.Class = events.ClassOutput
	return func(yield func(events.Event, error) bool) {
		l.goOn(ctx, yield, func() error { return l.followOutputOnce(ctx, f, yield) })
	}
}

func (l *Ledger) followOutputOnce(ctx context.Context, f events.Filter, yield func(events.Event, error) bool) error {
	sub, err := l.subscribe(f)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	lost, cancel := l.store.onLost()
	defer cancel()
	return live(ctx, sub, lost, func(r Raw) error {
		if e, ok := l.readable(r); ok && !yield(e, nil) {
			return errStopped
		}
		return nil
	})
}

func (l *Ledger) subscribe(f events.Filter) (*nats.Subscription, error) {
	sub, err := l.store.nc.SubscribeSync(f.Subject())
	if err != nil {
		return nil, fmt.Errorf("subscribing: %w", err)
	}
	if err := sub.SetPendingLimits(followMessages, followBytes); err != nil {
		return nil, fmt.Errorf("subscribing: %w", err)
	}
	if err := l.store.nc.FlushTimeout(5 * time.Second); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribing: %w", err), sub.Unsubscribe())
	}
	return sub, nil
}

// live hands each message that was told after it was stored to each.
func live(ctx context.Context, sub *nats.Subscription, lost <-chan struct{}, each func(Raw) error) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // ends with live
		select {
		case <-lost:
			cancel()
		case <-stop:
		}
	}()
	for {
		m, err := sub.NextMsgWithContext(run)
		if err != nil {
			if run.Err() != nil || errors.Is(err, nats.ErrSlowConsumer) {
				return errBehind
			}
			return fmt.Errorf("following: %w", err)
		}
		seq, err := strconv.ParseUint(m.Header.Get(nats.JSSequence), 10, 64)
		if err != nil {
			continue // published by hand on an event subject, not stored: no event
		}
		if err := each(Raw{Seq: seq, Message: events.Message{Subject: m.Subject, Header: m.Header, Data: m.Data}}); err != nil {
			return err
		}
	}
}
