package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// ErrNoSession says that no process serves the session.
var ErrNoSession = errors.New("no process serves the session")

// controlRoot begins the subjects of requests to a session's process. Readers
// cannot reach them.
const controlRoot = "control."

// Serve answers requests to a session until stop is called. Each request runs
// on a goroutine of its own, with a context that ends with stop.
func (l *Ledger) Serve(session string, h func(ctx context.Context, req []byte) []byte) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	sub, err := l.store.nc.Subscribe(controlRoot+session, func(m *nats.Msg) {
		go func() {
			if err := m.Respond(h(ctx, m.Data)); err != nil {
				l.opts.Logger.Warn("answering a control request", "session", session, "error", err)
			}
		}()
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serving session %s: %w", session, err)
	}
	return func() {
		cancel()
		_ = sub.Unsubscribe() // fails only when the connection is gone
	}, nil
}

// Ask sends a request to the process that serves the session and returns its
// answer, or [ErrNoSession]. A request whose host died is sent again, so it may
// arrive twice: requests must bear that. It ends with ctx at the latest.
func (l *Ledger) Ask(ctx context.Context, session string, req []byte) ([]byte, error) {
	for {
		answer, err := l.askOnce(ctx, session, req)
		switch {
		case err == nil:
			return answer, nil
		case errors.Is(err, nats.ErrNoResponders):
			return nil, ErrNoSession
		case ctx.Err() != nil || !passes(err):
			return nil, fmt.Errorf("asking session %s: %w", session, err)
		}
		pause(ctx, passPause)
	}
}

func (l *Ledger) askOnce(ctx context.Context, session string, req []byte) ([]byte, error) {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	lost, forget := l.store.onLost()
	defer forget()
	go func() { // ends with askOnce
		select {
		case <-lost:
			cancel()
		case <-run.Done():
		}
	}()
	m, err := l.store.nc.RequestWithContext(run, controlRoot+session, req)
	if err != nil {
		if run.Err() != nil && ctx.Err() == nil {
			return nil, errBehind
		}
		return nil, err
	}
	return m.Data, nil
}
