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
// a few lookups, wherever from is. Packed output comes as it was appended.
func (l *Ledger) Output(ctx context.Context, session, execution string, from, to int64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for c, err := range l.pieces(ctx, session, execution, from, to) {
			if err != nil {
				yield(events.Event{}, err)
				return
			}
			e, err := decode(c.Raw)
			if _, _, bytes := events.OutputSpan(c.Message); err != nil && bytes {
				yield(events.Event{}, fmt.Errorf("segment %s: %w", c.segment, err))
				return
			}
			if err != nil { // nobody's bytes
				l.passOver(c.Raw, err)
				continue
			}
			for e := range events.Unpack(e) {
				o, ok := e.Body.(events.Output)
				if !ok || o.End() <= from {
					continue
				}
				if to >= 0 && o.Offset >= to {
					return
				}
				e.Body = trim(o, from, to)
				if !yield(e, nil) {
					return
				}
				from = o.End() // a twin's chunks may begin before it
			}
		}
	}
}

// A piece is an output message and the segment that it was read from.
type piece struct {
	Raw
	segment string
}

// pieces is the output messages of an execution that hold bytes of [from, to),
// in offset order. When a segment is packed meanwhile, they go on in its twin,
// with the message that holds the next byte.
func (l *Ledger) pieces(ctx context.Context, session, execution string, from, to int64) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		if to >= 0 && from >= to {
			return
		}
		w := walk{
			l: l, execution: execution, next: from, to: to, yield: yield,
			subject: events.Filter{Session: session, Class: events.ClassOutput, ID: execution}.Subject(),
		}
		err := errMoved
		for errors.Is(err, errMoved) {
			err = w.pass(ctx)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(piece{}, err)
		}
	}
}

var errStopped = errors.New("the reader stopped")

// A walk goes through the segments once, or again when one moved.
type walk struct {
	l                  *Ledger
	subject, execution string
	next, to           int64 // next is the first offset that was not handed on
	yield              func(piece, error) bool
}

func (w *walk) pass(ctx context.Context) error {
	segs := w.l.dir().segments()
	start, seq := 0, uint64(1)
	if p, ok := w.l.positions.before(w.execution, w.next); ok {
		if i := slices.Index(segs, p.segment); i >= 0 {
			start, seq = i, p.seq
		}
	}
	for _, segment := range segs[start:] {
		done, err := w.read(ctx, segment, seq)
		if done || err != nil {
			return err
		}
		// A segment that was deleted meanwhile ends early.
		if !w.l.dir().counts(segment) {
			return errMoved
		}
		seq = 1
	}
	return nil
}

// read hands on what one segment holds. done says that nothing beyond it can be
// asked for.
func (w *walk) read(ctx context.Context, segment string, seq uint64) (done bool, err error) {
	seq, err = w.l.seek(ctx, segment, w.subject, seq, w.next)
	if errors.Is(err, errNoMessage) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fetch := batchBytes
	if w.to >= 0 {
		fetch = int(min(max(w.to-w.next, leastFetch), batchBytes))
	}
	for r, err := range w.l.scan(ctx, segment, w.subject, seq, fetch) {
		if err != nil {
			return false, err
		}
		start, end, ok := events.OutputSpan(r.Message)
		if ok && end <= w.next {
			continue
		}
		if ok && w.to >= 0 && start >= w.to {
			return true, nil
		}
		if ok {
			w.l.positions.note(w.execution, position{offset: start, segment: segment, seq: r.Seq})
		}
		if !w.yield(piece{Raw: r, segment: segment}, nil) {
			return false, errStopped
		}
		w.next = max(w.next, end)
		if ok && w.to >= 0 && end >= w.to {
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
			continue
		}
		lo = r.Seq + 1
	}
	return lo, nil
}

// outputStored reports whether a chunk whose acknowledgement was lost is stored.
func (l *Ledger) outputStored(ctx context.Context, e events.Event, o events.Output) (bool, uint64, error) {
	r, err := l.lastOutput(ctx, e.Session, e.Subject)
	if errors.Is(err, errNoMessage) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	_, end, ok := events.OutputSpan(r.Message)
	return ok && end >= o.End(), r.Seq, nil
}

// lastOutput is the newest output message of an execution, or errNoMessage.
func (l *Ledger) lastOutput(ctx context.Context, session, execution string) (r Raw, err error) {
	subject := events.Filter{Session: session, Class: events.ClassOutput, ID: execution}.Subject()
	err = errMoved
	for errors.Is(err, errMoved) {
		r, err = Raw{}, errNoMessage
		for _, segment := range slices.Backward(l.dir().segments()) {
			if r, err = l.last(ctx, segment, subject); !errors.Is(err, errNoMessage) {
				break
			}
		}
	}
	return r, err
}

// Positions remember where chunks are, so that a page is found without a
// search. They are a cache: at most maxPositions for each of at most
// maxPositioned executions, thinned out evenly when an execution has more.
type positions struct {
	mu sync.Mutex
	of map[string][]position
}

type position struct {
	offset  int64
	segment string
	seq     uint64
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
		list[i] = at // its segment may have been packed
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
