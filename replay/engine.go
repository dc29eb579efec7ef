package replay

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Source is where events come from; *ledger.Ledger is one.
type Source interface {
	// Read is the lifecycle events of [from, to]; to 0 is the last one now.
	Read(ctx context.Context, f events.Filter, from, to uint64) iter.Seq2[events.Event, error]
	// Follow is the lifecycle events from a sequence on, until the context ends.
	Follow(ctx context.Context, f events.Filter, from uint64) iter.Seq2[events.Event, error]
	// FollowOutput is the output events from now on, until the context ends.
	FollowOutput(ctx context.Context, f events.Filter) iter.Seq2[events.Event, error]
}

// Engine applies events to folds, one at a time, and lets readers look between
// two of them. Its methods are safe for concurrent use.
type Engine struct {
	mu    sync.RWMutex
	folds []projections.Fold
	seq   uint64
	// changed is closed at the next change, and nil while nobody waits.
	changed chan struct{}
}

// NewEngine returns an engine that drives the folds, which from now on are
// read in [Engine.View] only.
func NewEngine(folds ...projections.Fold) *Engine { return &Engine{folds: folds} }

// Apply applies an event. Lifecycle events come in the order of their
// sequences, the output of an execution in the order of its offsets.
func (e *Engine) Apply(ev events.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.folds {
		f.Apply(ev)
	}
	if ev.Body != nil && ev.Class() != events.ClassOutput {
		e.seq = max(e.seq, ev.Seq)
	}
	e.announce()
}

// reached says that no event up to seq is missing, whether or not there was one.
func (e *Engine) reached(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if seq > e.seq {
		e.seq = seq
		e.announce()
	}
}

func (e *Engine) announce() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// Seq is the last lifecycle sequence that the folds have reached.
func (e *Engine) Seq() uint64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.seq
}

// View calls f while no event is applied: all that f reads of the folds
// belongs to one moment. f must not block, and not call the engine.
func (e *Engine) View(f func()) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	f()
}

// Changed returns a channel that is closed when an event was applied after the
// call. Ask for it before looking, then wait on it: nothing is missed.
func (e *Engine) Changed() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return e.changed
}

// WaitFor returns once the folds have reached a lifecycle sequence, or with the
// context's error.
func (e *Engine) WaitFor(ctx context.Context, seq uint64) error {
	for e.Seq() < seq {
		changed := e.Changed()
		if e.Seq() >= seq {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for event %d: %w", seq, context.Cause(ctx))
		}
	}
	return nil
}

// RunTo applies the lifecycle events up to a sequence, and with 0 up to the
// last one there is. Where the engine has been already it does not go again.
func (e *Engine) RunTo(ctx context.Context, src Source, f events.Filter, to uint64) error {
	if to != 0 && to <= e.Seq() {
		return nil
	}
	for ev, err := range src.Read(ctx, f, e.Seq()+1, to) {
		if err != nil {
			return fmt.Errorf("replaying to event %d: %w", to, err)
		}
		e.Apply(ev)
	}
	e.reached(to)
	return nil
}

// RunUntil applies the lifecycle events before the first that is later than t.
// Clocks step and the sequence does not: an event that follows that one is left
// out even if its clock says earlier.
func (e *Engine) RunUntil(ctx context.Context, src Source, f events.Filter, t time.Time) error {
	for ev, err := range src.Read(ctx, f, e.Seq()+1, 0) {
		if err != nil {
			return fmt.Errorf("replaying until %s: %w", t.Format(time.RFC3339), err)
		}
		if ev.Time.After(t) {
			return nil
		}
		e.Apply(ev)
	}
	return nil
}

// Live applies what there is and then what comes, output included, until the
// context ends, which is no error.
func (e *Engine) Live(ctx context.Context, src Source, f events.Filter) error {
	g, following := errgroup.WithContext(ctx)
	g.Go(func() error { return e.drain(src.FollowOutput(following, f)) })
	g.Go(func() error { return e.drain(src.Follow(following, f, e.Seq()+1)) })
	err := g.Wait()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("following the ledger: %w", err)
	}
	return nil
}

func (e *Engine) drain(es iter.Seq2[events.Event, error]) error {
	for ev, err := range es {
		if err != nil {
			return err
		}
		e.Apply(ev)
	}
	return nil
}
