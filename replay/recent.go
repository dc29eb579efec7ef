package replay

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/yieldlog/yieldlog/events"
)

const (
	// recentBytes is how much of each end of an output is kept, and recentEnded
	// the number of executions of which it is kept after their end.
	recentBytes = 64 << 10
	recentEnded = 64
	// mergeBelow bounds a piece that the next bytes of its stream join.
	mergeBelow = 4 << 10
)

// Recent keeps the beginning and the end of the output of the executions that
// this process records, so that an answer about one needs no look into the
// ledger. It is a fold over recorded events: what it holds is on disk. What it
// does not hold it reads from there. Its methods are safe for concurrent use.
type Recent struct {
	ledger Outputs
	mu     sync.Mutex
	of     map[string]*ends
	ended  []string
}

// ends are the two ends of an output: [0, headEnd) and [tailStart, end).
type ends struct {
	head, tail              []piece
	headEnd, tailStart, end int64
}

// NewRecent returns an empty fold over a ledger's output. It must be told every
// event of the executions that it is told of at all, from their request on.
func NewRecent(ledger Outputs) *Recent { return &Recent{ledger: ledger, of: map[string]*ends{}} }

// Apply implements [projections.Fold].
func (r *Recent) Apply(e events.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch b := e.Body.(type) {
	case events.Requested:
		if r.of[e.Subject] == nil {
			r.of[e.Subject] = &ends{}
		}
	case events.Output:
		if x := r.of[e.Subject]; x != nil && !x.add(b) {
			delete(r.of, e.Subject) // incomplete: the ledger knows
		}
	case events.Refused, events.Pruned:
		delete(r.of, e.Subject)
	case events.Settled:
		r.end(e.Subject)
	}
}

// end forgets the execution that ended first, if too many did.
func (r *Recent) end(execution string) {
	r.ended = append(r.ended, execution)
	if len(r.ended) > recentEnded {
		delete(r.of, r.ended[0])
		r.ended = slices.Delete(r.ended, 0, 1)
	}
}

// add counts a chunk. It reports false if one before it is missing.
func (x *ends) add(out events.Output) bool {
	if out.Offset > x.end {
		return false
	}
	if out.End() <= x.end {
		return true
	}
	p := piece{out.Stream, x.end, out.Data[x.end-out.Offset:]}
	x.end = p.end()
	if room := recentBytes - x.headEnd; room > 0 {
		first := p.cut(p.offset, p.offset+room)
		x.head, x.headEnd = join(x.head, first), first.end()
		x.tailStart = x.headEnd
		p = p.cut(first.end(), p.end())
	}
	if start := p.end() - recentBytes; start > p.offset {
		p = p.cut(start, p.end())
		x.tail, x.tailStart = nil, start
	}
	x.tail = join(x.tail, p)
	for len(x.tail) > 1 && x.end-x.tail[0].end() >= recentBytes {
		x.tail = x.tail[1:]
		x.tailStart = x.tail[0].offset
	}
	return true
}

// cut is the part of the piece within [from, to).
func (p piece) cut(from, to int64) piece {
	from, to = min(max(from, p.offset), p.end()), max(min(to, p.end()), p.offset)
	if from >= to {
		return piece{p.stream, from, nil}
	}
	return piece{p.stream, from, p.data[from-p.offset : to-p.offset]}
}

// join appends a copy of the piece. Readers may hold what was there: bytes are
// added behind it only.
func join(pieces []piece, p piece) []piece {
	if len(p.data) == 0 {
		return pieces
	}
	if n := len(pieces); n > 0 {
		last := &pieces[n-1]
		if last.stream == p.stream && last.end() == p.offset && len(last.data) < mergeBelow {
			last.data = append(last.data, p.data...)
			return pieces
		}
	}
	p.data = bytes.Clone(p.data)
	return append(pieces, p)
}

// Output implements [Outputs].
func (r *Recent) Output(ctx context.Context, session, execution string, from, to int64) iter.Seq2[events.Event, error] {
	if pieces, ok := r.held(execution, from, to); ok {
		return func(yield func(events.Event, error) bool) {
			for _, p := range pieces {
				e := events.Event{Session: session, Subject: execution, Body: events.Output{Stream: p.stream, Offset: p.offset, Data: p.data}}
				if !yield(e, nil) {
					return
				}
			}
		}
	}
	return r.ledger.Output(ctx, session, execution, from, to)
}

// held is the pieces of [from, to), if they are all here.
func (r *Recent) held(execution string, from, to int64) ([]piece, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.of[execution]
	if x == nil {
		return nil, false
	}
	if to < 0 || to > x.end {
		to = x.end
	}
	whole := x.headEnd == x.tailStart
	if !whole && to > x.headEnd && from < x.tailStart {
		return nil, false
	}
	var held []piece
	for _, p := range slices.Concat(x.head, x.tail) {
		if p = p.cut(from, to); len(p.data) > 0 {
			held = append(held, p)
		}
	}
	return held, true
}
