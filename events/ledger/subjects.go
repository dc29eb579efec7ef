package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/yieldlog/yieldlog/events"
)

// Subjects is the subjects of the lifecycle events of some kinds, each kind in
// the order of the ledger. It looks at no event, so it costs a fraction of
// [Ledger.Read]. A subject that is no event's is passed over.
func (l *Ledger) Subjects(ctx context.Context, kinds ...events.Kind) iter.Seq2[events.Filter, error] {
	return func(yield func(events.Filter, error) bool) {
		each := func(subject string) bool {
			f, err := events.ParseSubject(subject)
			return err != nil || yield(f, nil)
		}
		from := uint64(1)
		if r := l.resting(); r != nil {
			next, err := r.subjects(ctx, kinds, each)
			if err = l.unlessStirred(ctx, err); err != nil && !errors.Is(err, errStirred) && !errors.Is(err, errStopped) {
				yield(events.Filter{}, fmt.Errorf("reading the subjects: %w", err))
			}
			if !errors.Is(err, errStirred) {
				return
			}
			from = next
		}
		for _, kind := range kinds {
			for r, err := range l.ReadRaw(ctx, events.Filter{Kind: kind}, from, 0) {
				if err != nil {
					yield(events.Filter{}, err)
					return
				}
				if !each(r.Subject) {
					return
				}
			}
		}
	}
}

// subjects hands on the subjects of the lifecycle that end in one of the kinds,
// and returns the sequence to go on from.
func (r *rest) subjects(ctx context.Context, kinds []events.Kind, each func(string) bool) (next uint64, err error) {
	return r.records(ctx, r.streams[lifecycleStream], lifecycleStream, 1, func(rec []byte) error {
		subject := recordSubject(rec)
		kind := subject[bytes.LastIndexByte(subject, '.')+1:]
		wanted := slices.ContainsFunc(kinds, func(k events.Kind) bool { return string(k) == string(kind) })
		if wanted && !each(string(subject)) {
			return errStopped
		}
		return nil
	})
}
