package replay

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// Recording is where a history is read from; *ledger.Ledger is one.
type Recording interface {
	Outputs
	// Read: see [Source].
	Read(ctx context.Context, f events.Filter, from, to uint64) iter.Seq2[events.Event, error]
}

// Frame is an event of a history at its place in time.
type Frame struct {
	events.Event
	// At is the time since the first frame. It never goes back, though clocks do.
	At time.Duration
}

// Timeline is a history as it looked: the lifecycle events that the filter
// selects, up to a sequence (0 is all), and the output of their executions
// between them. Lifecycle events are in the order of their sequences and the
// output of an execution in the order of its offsets, each before or after the
// lifecycle events that tell an offset; where neither orders two events, their
// clocks do. It reads as it goes and holds one chunk for each execution.
func Timeline(ctx context.Context, src Recording, f events.Filter, to uint64) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		p := projector{ctx: ctx, src: src, yield: yield}
		defer p.close()
		for e, err := range src.Read(ctx, f, 1, to) {
			if err != nil {
				yield(Frame{}, fmt.Errorf("reading the history: %w", err))
				return
			}
			if !p.lifecycle(e) {
				return
			}
		}
		if to == 0 {
			p.outputBefore(time.Time{}, nil, 0)
		}
	}
}

// projector merges the lifecycle and the output of each running execution.
type projector struct {
	ctx   context.Context
	src   Recording
	yield func(Frame, error) bool
	reels []*reel
	first time.Time
	at    time.Duration
	ended bool
}

// reel is the output of one execution that was not shown yet.
type reel struct {
	execution string
	pull      func() (events.Event, error, bool)
	stop      func()
	// next is the chunk at its beginning; its body is nil at the end.
	next   events.Event
	output events.Output
}

func (p *projector) close() {
	for _, r := range p.reels {
		r.stop()
	}
}

// show passes an event on. false means that the reader has enough.
func (p *projector) show(e events.Event) bool {
	if p.first.IsZero() {
		p.first = e.Time
	}
	p.at = max(p.at, e.Time.Sub(p.first))
	p.ended = p.ended || !p.yield(Frame{Event: e, At: p.at}, nil)
	return !p.ended
}

func (p *projector) fail(err error) bool {
	if !p.ended {
		p.yield(Frame{}, err)
	}
	p.ended = true
	return false
}

// lifecycle shows the output that came before a lifecycle event, and the event.
func (p *projector) lifecycle(e events.Event) bool {
	var own *reel
	offset, tells := offsetOf(e)
	if i := slices.IndexFunc(p.reels, func(r *reel) bool { return r.execution == e.Execution() }); i >= 0 && tells {
		own = p.reels[i]
	}
	if !p.outputBefore(e.Time, own, offset) || !p.show(e) {
		return false
	}
	switch e.Body.(type) {
	case events.Spawned:
		return p.open(e)
	case events.Settled:
		p.reels = slices.DeleteFunc(p.reels, func(r *reel) bool {
			if r.execution != e.Subject {
				return false
			}
			r.stop()
			return true
		})
	}
	return true
}

// offsetOf is the output offset at which a lifecycle event happened.
func offsetOf(e events.Event) (int64, bool) {
	switch b := e.Body.(type) {
	case events.Yielded:
		return b.Offset, true
	case events.Input:
		return b.Offset, true
	case events.Stopping:
		return b.Offset, true
	case events.Settled:
		return b.Offset, true
	}
	return 0, false
}

func (p *projector) open(e events.Event) bool {
	r := &reel{execution: e.Subject}
	r.pull, r.stop = iter.Pull2(p.src.Output(p.ctx, e.Session, e.Subject, 0, -1))
	p.reels = append(p.reels, r)
	return p.advance(r)
}

// advance takes the next chunk to the reel's beginning.
func (p *projector) advance(r *reel) bool {
	for {
		e, err, ok := r.pull()
		if err != nil {
			return p.fail(fmt.Errorf("reading the output of %s: %w", r.execution, err))
		}
		if !ok {
			r.next.Body = nil
			return true
		}
		if out, is := e.Body.(events.Output); is {
			r.next, r.output = e, out
			return true
		}
	}
}

// outputBefore shows all output whose clock is not after t (zero is all). The
// reel own shows what is below offset, whatever its clock, and nothing else.
func (p *projector) outputBefore(t time.Time, own *reel, offset int64) bool {
	for {
		var first *reel
		for _, r := range p.reels {
			switch {
			case r.next.Body == nil, r == own && r.output.Offset >= offset:
			case r != own && !t.IsZero() && r.next.Time.After(t):
			case first == nil || r.next.Time.Before(first.next.Time):
				first = r
			}
		}
		if first == nil {
			return true
		}
		if !p.show(first.next) || !p.advance(first) {
			return false
		}
	}
}
