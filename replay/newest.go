package replay

import (
	"context"
	"fmt"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Tail is a source that knows its end; *ledger.Ledger is one.
type Tail interface {
	Source
	// LastSeq is the sequence of the newest lifecycle event, 0 if there is none.
	LastSeq(ctx context.Context) (uint64, error)
}

// Newest is the newest n executions that the filter, a session or nothing,
// selects: what the fold of everything lists first, at the cost of the
// end of the ledger alone. n must be above 0.
func Newest(ctx context.Context, src Tail, f events.Filter, n int) ([]projections.Process, error) {
	last, err := src.LastSeq(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the newest executions: %w", err)
	}
	for window := uint64(16*n + 128); ; window *= 8 {
		from := uint64(1)
		if window < last {
			from = last - window + 1
		}
		list, err := since(ctx, src, f, from, last)
		if err != nil {
			return nil, fmt.Errorf("listing the newest executions: %w", err)
		}
		if len(list) >= n || from == 1 {
			return list[:min(n, len(list))], nil
		}
	}
}

// since is the executions that were asked for in [from, to], the newest first.
// Everything that became of them follows their request, so it is whole.
func since(ctx context.Context, src Source, f events.Filter, from, to uint64) ([]projections.Process, error) {
	if to == 0 {
		return nil, nil
	}
	fold, begun := projections.NewProcesses(), map[string]bool{}
	for e, err := range src.Read(ctx, f, from, to) {
		if err != nil {
			return nil, err
		}
		if k := e.Kind(); from == 1 || k == events.KindRequested || k == events.KindRewound || begun[e.Subject] {
			begun[e.Subject] = true
			fold.Apply(e)
		}
	}
	return fold.List(), nil
}
