package producers

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/yieldlog/yieldlog/events/ledger"
)

const (
	// lookEvery is how often a lookout looks, more or less: what a server and its
	// guardian that died in one moment left to run is ended within a second.
	lookEvery = 500 * time.Millisecond
	// lookMost bounds one look beside others, and turnMost the wait for their looks.
	lookMost = 10 * time.Second
	turnMost = 3 * time.Second
	// lookAgain is the wait before a session is tried again that could not be recovered.
	lookAgain = 10 * time.Second
)

// A lookout finds sessions whose process died, and declares them lost.
type lookout struct {
	ledger *ledger.Ledger
	by     string // the session that looks, if it is one
	// done holds the sessions that ended, and the time before which those that
	// could not be recovered are left alone.
	done map[string]time.Time
}

func newLookout(l *ledger.Ledger, by string) *lookout {
	return &lookout{ledger: l, by: by, done: map[string]time.Time{}}
}

// LookOut declares sessions lost whose process dies, and ends what they left to
// run, until stop is called: for a process that stays and has no session. A
// [Session] does so itself.
func LookOut(l *ledger.Ledger) (stop func()) { return newLookout(l, "").start() }

// start looks now and then until stop is called.
func (o *lookout) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookEvery*3/4 + rand.N(lookEvery/2)): // not all at once
			}
			if err := o.glance(ctx); err != nil && ctx.Err() == nil {
				slog.Warn("looking for dead sessions", "error", err)
			}
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// glance looks if nobody else does, and the ledger is there and takes appends.
func (o *lookout) glance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	if errors.Is(o.ledger.Writable(), ledger.ErrUnavailable) {
		return nil // what has the state directory's place is another ledger
	}
	end, ok, err := o.ledger.RecoveryTurn(ctx, 0)
	if err != nil || !ok {
		return err
	}
	defer end()
	return o.look(ctx)
}

// first looks when its turn comes: what died is then over for who opens a
// session. Somebody who takes too long is not waited for.
func (o *lookout) first(ctx context.Context) error {
	end, _, err := o.ledger.RecoveryTurn(ctx, turnMost)
	if err != nil {
		return err
	}
	defer end()
	return o.look(ctx)
}

// look declares lost what dead processes left open. A session that cannot be
// recovered does not keep a new one from opening: it stays for the next look.
func (o *lookout) look(ctx context.Context) error {
	ids, err := o.ledger.Claimed()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if again, known := o.done[id]; known && (again.IsZero() || time.Now().Before(again)) {
			continue
		}
		release, err := takeOver(ctx, o.ledger, id, o.by)
		if errors.Is(err, ledger.ErrLive) {
			continue
		}
		if err == nil {
			release()
			o.done[id] = time.Time{}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			o.done[id] = time.Now().Add(lookAgain)
			slog.Warn("recovering a dead session", "session", id, "error", err)
		}
	}
	return nil
}
