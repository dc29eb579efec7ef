package ledger

import (
	"context"
	"time"
)

// patience bounds how long a read waits while the host is being replaced.
const patience = 10 * time.Second

// hosted is a context that ends with ctx, and when the connection is lost: what
// was asked then has no answer.
func (s *store) hosted(ctx context.Context) (run context.Context, release func()) {
	run, cancel := context.WithCancel(ctx)
	lost, forget := s.onLost()
	go func() { // ends with release
		select {
		case <-lost:
			cancel()
		case <-run.Done():
		}
	}()
	return run, func() {
		cancel()
		forget()
	}
}

// once asks the host, and returns errBehind when it died meanwhile.
func once[T any](ctx context.Context, s *store, ask func(context.Context) (T, error)) (T, error) {
	run, release := s.hosted(ctx)
	defer release()
	v, err := ask(run)
	if err != nil && run.Err() != nil && ctx.Err() == nil {
		return v, errBehind
	}
	return v, err
}

// patiently asks the host, and asks again while it is being replaced.
func patiently[T any](ctx context.Context, l *Ledger, ask func(context.Context) (T, error)) (T, error) {
	for began := time.Now(); ; pause(ctx, passPause) {
		v, err := once(ctx, l.store, ask)
		if err == nil || !passes(err) || ctx.Err() != nil || time.Since(began) > patience {
			return v, err
		}
	}
}
