// Package hook hands events to something outside, at least once each: it keeps
// where to go on, and goes on there after a restart.
//
// [Run] owns one goroutine for each delivery that is under way, at most
// [Config.Jobs] of them, and they end before it returns.
package hook

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yieldlog/yieldlog/events"
)

// Config says what is delivered and how.
type Config struct {
	// Match selects the events; nil selects all.
	Match func(events.Event) bool
	// Deliver hands an event over. An error means that it should be tried again.
	Deliver func(context.Context, events.Event) error
	// Save keeps the sequence to go on from. Every event before it was delivered,
	// given up, or not selected.
	Save func(next uint64) error
	// Jobs is how many deliveries may be under way; 0 means 1, in order.
	Jobs int
	// Retries is how often a delivery is tried again before it is given up: one
	// that can never succeed must not hold up all others for ever.
	Retries int
	// Pause is the wait before the first retry, which doubles with each; 0
	// means one second.
	Pause time.Duration
	// Logger takes failed deliveries; nil discards them.
	Logger *slog.Logger
}

// saveEvery is how many events that nobody wants may pass before the position
// is saved.
const saveEvery = 1000

// Run delivers the events of source, in order of their beginning, until the
// source or ctx ends. What was under way when ctx ended is not counted as
// delivered, unless it succeeded.
func Run(ctx context.Context, source iter.Seq2[events.Event, error], c Config) error {
	if c.Pause == 0 {
		c.Pause = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	p := &progress{save: c.Save}
	jobs, running := errgroup.WithContext(ctx)
	jobs.SetLimit(max(c.Jobs, 1))
	var failed error
	for e, err := range source {
		if err != nil {
			failed = fmt.Errorf("reading the events: %w", err)
			break
		}
		if running.Err() != nil {
			break
		}
		wanted := c.Match == nil || c.Match(e)
		d, err := p.begin(e.Seq, wanted)
		if err != nil {
			failed = err
			break
		}
		if wanted {
			jobs.Go(func() error { return c.attempt(running, e, func() error { return p.end(d) }) })
		}
	}
	err := jobs.Wait()
	if saveErr := p.flush(); err == nil {
		err = saveErr
	}
	if err == nil && ctx.Err() == nil {
		err = failed
	}
	return err
}

// attempt delivers one event, and calls done when it is not to be tried again.
func (c Config) attempt(ctx context.Context, e events.Event, done func() error) error {
	pause := c.Pause
	for tried := 0; ; tried++ {
		err := c.Deliver(ctx, e)
		if err == nil {
			return done()
		}
		if ctx.Err() != nil {
			return nil // it comes again after the restart
		}
		if tried == c.Retries {
			c.Logger.Error("giving up an event", "seq", e.Seq, "kind", e.Kind(), "tries", tried+1, "error", err)
			return done()
		}
		c.Logger.Warn("delivering an event failed, trying again", "seq", e.Seq, "kind", e.Kind(), "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// progress knows which events are over: those before the first that is not
// need not come again.
type progress struct {
	save func(uint64) error

	mu      sync.Mutex
	pending []*delivery // in order; the first is not over
	last    uint64      // the newest event that was seen
	passed  int         // events since the position was saved
}

type delivery struct {
	seq  uint64
	over bool
}

// begin notes an event. The result is nil for one that is not wanted.
func (p *progress) begin(seq uint64, wanted bool) (*delivery, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = seq
	p.passed++
	if wanted {
		d := &delivery{seq: seq}
		p.pending = append(p.pending, d)
		return d, nil
	}
	if p.passed < saveEvery {
		return nil, nil
	}
	return nil, p.keep()
}

func (p *progress) end(d *delivery) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.over = true
	if p.pending[0] != d {
		return nil
	}
	for len(p.pending) > 0 && p.pending[0].over {
		p.pending = p.pending[1:]
	}
	return p.keep()
}

func (p *progress) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keep()
}

// keep saves where to go on. The caller holds the lock.
func (p *progress) keep() error {
	next := p.last + 1
	if len(p.pending) > 0 {
		next = p.pending[0].seq
	}
	if next == 1 {
		return nil // nothing was seen
	}
	p.passed = 0
	return p.save(next)
}
