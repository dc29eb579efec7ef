package replay

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/yieldlog/yieldlog/events"
)

const (
	// recentBytes is how much of each end of a stream is kept, and recentEnded
	// the number of executions of which it is kept after their end.
	recentBytes = 64 << 10
	recentEnded = 64
	// mergeBelow bounds a piece that the next bytes of its stream join.
	mergeBelow = 4 << 10
)

// Recent keeps the beginning and the end of each stream of the executions that
// this process records, so that an answer about one needs no look into the
// ledger. It is a fold over recorded events: what it holds is on disk. What it
// does not hold it reads from there. Its methods are safe for concurrent use.
type Recent struct {
	ledger Outputs
	mu     sync.Mutex
	of     map[string]*ends
	ended  []string
}

// ends is what is kept of an output.
type ends struct {
	sides map[events.Kind]*sides
	end   int64
}

// sides are the two ends of a stream: its first bytes, and its last of those
// that follow.
type sides struct {
	head, tail []piece
	// headBytes, tailBytes and total count bytes: what head and tail do not hold
	// is between them.
	headBytes, tailBytes, total int64
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
			r.of[e.Subject] = &ends{sides: map[events.Kind]*sides{}}
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
	s := x.sides[out.Stream]
	if s == nil {
		s = &sides{}
		x.sides[out.Stream] = s
	}
	s.add(p)
	return true
}

func (s *sides) add(p piece) {
	s.total += int64(len(p.data))
	if room := recentBytes - s.headBytes; room > 0 {
		first := p.cut(p.offset, p.offset+room)
		s.head, s.headBytes = join(s.head, first), s.headBytes+int64(len(first.data))
		p = p.cut(first.end(), p.end())
	}
	if start := p.end() - recentBytes; start > p.offset {
		p = p.cut(start, p.end())
		s.tail, s.tailBytes = nil, 0
	}
	s.tail, s.tailBytes = join(s.tail, p), s.tailBytes+int64(len(p.data))
	for len(s.tail) > 1 && s.tailBytes-int64(len(s.tail[0].data)) >= recentBytes {
		s.tailBytes -= int64(len(s.tail[0].data))
		s.tail = s.tail[1:]
	}
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
	var held []piece
	for _, s := range x.sides {
		held = append(append(held, within(s.head, from, to)...), within(s.tail, from, to)...)
	}
	slices.SortFunc(held, func(a, b piece) int { return cmp.Compare(a.offset, b.offset) })
	for _, p := range held {
		if p.offset != from {
			return nil, false
		}
		from = p.end()
	}
	return held, from >= to
}

// within is what lies within [from, to) of pieces in order.
func within(pieces []piece, from, to int64) []piece {
	first, _ := slices.BinarySearchFunc(pieces, from, func(p piece, at int64) int { return cmp.Compare(p.end(), at+1) })
	var in []piece
	for _, p := range pieces[first:] {
		if p = p.cut(from, to); len(p.data) == 0 {
			break
		}
		in = append(in, p)
	}
	return in
}

// sidesOf implements sided.
func (r *Recent) sidesOf(execution string, stream events.Kind, from, to int64) (head, tail strip, between int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.of[execution]
	if x == nil {
		return strip{}, strip{}, 0, false
	}
	s := x.sides[stream]
	if s == nil {
		return strip{}, strip{}, 0, true
	}
	head, tail = stripOf(within(s.head, from, to)), stripOf(within(s.tail, from, to))
	between = s.total - s.headBytes - s.tailBytes
	if between == 0 {
		return head.and(tail), strip{}, 0, true
	}
	firstEnd, lastStart := s.head[len(s.head)-1].end(), s.tail[0].offset
	return head, tail, between, from < firstEnd && to > lastStart
}
