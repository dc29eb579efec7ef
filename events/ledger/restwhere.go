package ledger

import (
	"context"
	"slices"
)

// A blockSpan is blocks by their numbers, the last one included.
type blockSpan struct{ first, last int }

// holders is the blocks of a stream that may hold a message whose subject
// matches, in order. A segment has few subjects, and its index names the blocks
// of each; the lifecycle has a subject for each event.
func (r *rest) holders(ctx context.Context, stream string, match tokens) ([]restBlock, error) {
	list, ok := r.streams[stream]
	if !ok {
		return nil, errStirred // a segment that is packed by now
	}
	if !isSegment(stream) {
		return list, nil
	}
	r.mu.Lock()
	where := r.where[stream]
	r.mu.Unlock()
	if where == nil {
		var err error
		if where, err = r.locate(ctx, stream, list); err != nil {
			return nil, err
		}
		r.mu.Lock()
		r.where[stream] = where
		r.mu.Unlock()
	}
	all := blockSpan{first: -1}
	for subject, s := range where {
		if match.matches([]byte(subject)) {
			all = all.join(s)
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(b restBlock) bool {
		n := blockNumber(b.path)
		return all.first < 0 || n < all.first || n > all.last
	}), nil
}

func (s blockSpan) join(o blockSpan) blockSpan {
	if s.first < 0 {
		return o
	}
	return blockSpan{min(s.first, o.first), max(s.last, o.last)}
}

// locate finds the blocks of each subject: in the index, or in the blocks when
// it is older than they are.
func (r *rest) locate(ctx context.Context, stream string, list []restBlock) (map[string]blockSpan, error) {
	where := map[string]blockSpan{}
	ix := readIndex(r.dir.stream(stream), stream, func(subject []byte, first, last int) {
		where[string(subject)] = blockSpan{first, last}
	})
	if ix.fresh {
		return where, nil
	}
	clear(where)
	for _, b := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := blockNumber(b.path)
		if err := r.walk(b, stream, 0, func(rec []byte) bool {
			s, ok := where[string(recordSubject(rec))]
			if !ok {
				s = blockSpan{n, n}
			}
			s.last = n
			where[string(recordSubject(rec))] = s
			return true
		}); err != nil {
			return nil, err
		}
	}
	return where, nil
}
