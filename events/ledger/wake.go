package ledger

import (
	"context"
	"errors"
	"fmt"
)

// resting is the ledger at rest, nil once its store is open.
func (l *Ledger) resting() *rest { return l.atRest.Load() }

// wake opens the store of a ledger that was read at rest: it joins the host that
// appeared meanwhile, or becomes it. Without need it does nothing.
func (l *Ledger) wake(ctx context.Context) error {
	l.waking.Lock()
	defer l.waking.Unlock()
	if l.resting() == nil {
		return nil
	}
	if l.run.Err() != nil {
		return ErrClosed
	}
	s, err := openStore(ctx, l.opts)
	if err != nil {
		return fmt.Errorf("opening the ledger in %s: %w", l.opts.Dir, err)
	}
	l.store = s
	l.atRest.Store(nil) // whoever sees this sees the store too
	return nil
}

// unlessStirred is the error of a look into a ledger at rest. With errStirred
// the store is open, and is to be asked.
func (l *Ledger) unlessStirred(ctx context.Context, err error) error {
	if errors.Is(err, errStirred) {
		if err := l.wake(ctx); err != nil {
			return err
		}
	}
	return err
}

// scanAtRest is [Ledger.scan] of a ledger at rest, as far as it gets. With
// errStirred the store goes on, from the sequence that it returns.
func (l *Ledger) scanAtRest(ctx context.Context, stream, subject string, from uint64, yield func(Raw, error) bool) (next uint64, err error) {
	r := l.resting()
	if r == nil {
		return l.scanFilled(ctx, stream, subject, from, yield)
	}
	next, err = r.scan(ctx, stream, subject, from, yield)
	return next, l.unlessStirred(ctx, err)
}
