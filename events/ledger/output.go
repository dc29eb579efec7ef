package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"
	"sync"

	"github.com/yieldlog/yieldlog/events"
)

// Output is the output events of an execution, in offset order, trimmed to
// [from, to); to < 0 means the end as it is now. Bytes that were pruned are
// missing: the first event then begins after from. It costs what it returns and
// a few lookups, wherever from is.
func (l *Ledger) Output(ctx context.Context, session, execution string, from, to int64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		if to >= 0 && from >= to {
			return
		}
		subject := events.Filter{Session: session, Class: events.ClassOutput, ID: execution}.Subject()
		segs := l.store.segments()
		start, seq := 0, uint64(1)
		if p, ok := l.positions.before(execution, from); ok {
			if i := slices.Index(segs, p.segment); i >= 0 {
				start, seq = i, p.seq
			}
		}
		for i := start; i < len(segs); i++ {
			done, err := l.outputOf(ctx, segs[i], subject, seq, from, to, yield)
			if errors.Is(err, errStopped) {
				return
			}
			if err != nil {
				yield(events.Event{}, err)
				return
			}
			if done {
				return
			}
			seq = 1
		}
	}
}

var errStopped = errors.New("the reader stopped")

// outputOf yields what one segment holds of [from, to). done says that nothing
// beyond it can be asked for.
func (l *Ledger) outputOf(ctx context.Context, segment, subject string, seq uint64, from, to int64, yield func(events.Event, error) bool) (done bool, err error) {
	seq, err = l.seek(ctx, segment, subject, seq, from)
	if errors.Is(err, errNoMessage) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fetch := batchBytes
	if to >= 0 {
		fetch = int(min(max(to-from, leastFetch), batchBytes))
	}
	for r, err := range l.scan(ctx, segment, subject, seq, fetch) {
		if err != nil {
			return false, err
		}
		start, end, ok := events.OutputSpan(r.Message)
		if ok && end <= from {
			continue
		}
		if ok && to >= 0 && start >= to {
			return true, nil
		}
		e, err := decode(r)
		if err != nil {
			return false, fmt.Errorf("segment %s: %w", segment, err)
		}
		o, ok := e.Body.(events.Output)
		if !ok {
			continue
		}
		l.positions.note(e.Subject, position{offset: o.Offset, end: o.End(), segment: segment, seq: r.Seq})
		e.Body = trim(o, from, to)
		if !yield(e, nil) {
			return false, errStopped
		}
		if to >= 0 && o.End() >= to {
			return true, nil
		}
	}
	return false, nil
}

// trim cuts a chunk to [from, to).
func trim(o events.Output, from, to int64) events.Output {
	if from > o.Offset {
		o.Data = o.Data[from-o.Offset:]
		o.Offset = from
	}
	if to >= 0 && o.End() > to {
		o.Data = o.Data[:to-o.Offset]
	}
	return o
}

// seek is the sequence of the execution's first chunk, at or after seq, that
// ends beyond from. Chunks of one execution are in offset order within a
// segment, so it halves.
func (l *Ledger) seek(ctx context.Context, segment, subject string, seq uint64, from int64) (uint64, error) {
	if from <= 0 {
		return seq, nil // the scan finds the first
	}
	r, err := l.next(ctx, segment, subject, seq)
	if err != nil {
		return 0, err
	}
	if _, end, ok := events.OutputSpan(r.Message); !ok || end > from {
		return r.Seq, nil
	}
	last, err := l.last(ctx, segment, subject)
	if err != nil {
		return 0, err
	}
	if _, end, ok := events.OutputSpan(last.Message); ok && end <= from {
		return 0, errNoMessage
	}
	lo, hi := r.Seq+1, last.Seq // the answer is in [lo, hi]
	for lo < hi {
		mid := lo + (hi-lo)/2
		r, err := l.next(ctx, segment, subject, mid)
		if err != nil {
			return 0, err
		}
		if _, end, ok := events.OutputSpan(r.Message); !ok || end > from {
			hi = mid
			if r.Seq < hi {
				hi = r.Seq
			}
			continue
		}
		lo = r.Seq + 1
	}
	return lo, nil
}

// outputStored reports whether a chunk whose acknowledgement was lost is stored.
func (l *Ledger) outputStored(ctx context.Context, e events.Event, o events.Output) (bool, uint64, error) {
	subject := events.Filter{Session: e.Session, Class: events.ClassOutput, ID: e.Subject}.Subject()
	for _, segment := range slices.Backward(l.store.segments()) {
		r, err := l.last(ctx, segment, subject)
		if errors.Is(err, errNoMessage) {
			continue
		}
		if err != nil {
			return false, 0, err
		}
		_, end, ok := events.OutputSpan(r.Message)
		return ok && end >= o.End(), r.Seq, nil
	}
	return false, 0, nil
}

// Positions remember where chunks are, so that a page is found without a
// search. They are a cache: at most maxPositions for each of at most
// maxPositioned executions, thinned out evenly when an execution has more.
type positions struct {
	mu sync.Mutex
	of map[string][]position
}

type position struct {
	offset, end int64
	segment     string
	seq         uint64
}

const (
	maxPositions  = 512
	maxPositioned = 256
)

func (p *positions) note(execution string, at position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string][]position{}
	}
	list, ok := p.of[execution]
	if !ok && len(p.of) >= maxPositioned {
		for k := range p.of { // any one: a cache
			delete(p.of, k)
			break
		}
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].offset >= at.offset })
	if i < len(list) && list[i].offset == at.offset {
		return
	}
	list = slices.Insert(list, i, at)
	if len(list) > maxPositions {
		thin := list[:0]
		for i := range list {
			if i%2 == 0 {
				thin = append(thin, list[i])
			}
		}
		list = thin
	}
	p.of[execution] = list
}

// before is the last known chunk that begins at or before an offset.
func (p *positions) before(execution string, offset int64) (position, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.of[execution]
	i := sort.Search(len(list), func(i int) bool { return list[i].offset > offset })
	if i == 0 {
		return position{}, false
	}
	return list[i-1], true
}
