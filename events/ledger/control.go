package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// ErrNoSession says that no process serves the session.
var ErrNoSession = errors.New("no process serves the session")

// controlRoot begins the subjects of requests to a session's process. Readers
// cannot reach them.
const controlRoot = "control."

// answerGrace is what requests in flight have when their session ends.
const answerGrace = 2 * time.Second

// Serve answers requests to a session until stop is called. Each request runs
// on a goroutine of its own. stop takes no more requests and gives those in
// flight a moment to be answered before their context ends.
func (l *Ledger) Serve(session string, h func(ctx context.Context, req []byte) []byte) (stop func(), err error) {
	ctx, cancel := context.WithCancel(l.run)
	var (
		mu     sync.Mutex
		closed bool
		flying sync.WaitGroup
	)
	sub, err := l.store.nc.Subscribe(controlRoot+session, func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			return // as if it had come after the unsubscribe
		}
		flying.Go(func() {
			if err := m.Respond(h(ctx, m.Data)); err != nil {
				l.opts.Logger.Warn("answering a control request", "session", session, "error", err)
			}
		})
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serving session %s: %w", session, err)
	}
	return func() {
		_ = sub.Unsubscribe() // fails only when the connection is gone
		mu.Lock()
		closed = true
		mu.Unlock()
		answered := make(chan struct{})
		go func() { flying.Wait(); close(answered) }()
		select {
		case <-answered:
			_ = l.store.nc.FlushTimeout(answerGrace) // as before
		case <-time.After(answerGrace):
		}
		cancel()
	}, nil
}

// Ask sends a request to the process that serves the session and returns its
// answer, or [ErrNoSession]. A request whose host died is sent again, so it may
// arrive twice: requests must bear that. It ends with ctx at the latest.
func (l *Ledger) Ask(ctx context.Context, session string, req []byte) ([]byte, error) {
	if err := l.wake(ctx); err != nil {
		return nil, err
	}
	// A session that lives and does not answer is about to find the new host.
	for began := time.Now(); ; pause(ctx, passPause) {
		m, err := once(ctx, l.store, func(ctx context.Context) (*nats.Msg, error) {
			ctx, cancel := l.whileAlive(ctx, session)
			defer cancel()
			return l.store.nc.RequestWithContext(ctx, controlRoot+session, req)
		})
		switch {
		case err == nil:
			return m.Data, nil
		case ctx.Err() == nil && errors.Is(err, context.Canceled) && !l.Alive(session):
			return nil, ErrNoSession
		case errors.Is(err, nats.ErrNoResponders) && (!l.Alive(session) || time.Since(began) > patience):
			return nil, ErrNoSession
		case ctx.Err() != nil || !passes(err):
			return nil, fmt.Errorf("asking session %s: %w", session, err)
		}
	}
}

// aliveInterval is how often a request looks whether there is still somebody
// to answer it.
const aliveInterval = 500 * time.Millisecond

// whileAlive is a context that ends soon after the session's process: the
// server may not have noticed yet that nobody reads what it hands on.
func (l *Ledger) whileAlive(ctx context.Context, session string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the context
		t := time.NewTicker(aliveInterval)
		defer t.Stop()
		for dead := false; ; { // twice: an answer may be on its way
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if l.Alive(session) {
				continue
			}
			if dead {
				cancel()
				return
			}
			dead = true
		}
	}()
	return ctx, cancel
}
