package archive

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// Export writes sessions as they are now to w, and returns the count of
// records. Its memory does not grow with the output.
func Export(ctx context.Context, l *ledger.Ledger, w io.Writer, sessions []string) (int, error) {
	a, err := newWriter(w)
	if err != nil {
		return 0, err
	}
	for _, s := range sessions {
		e := exporter{ledger: l, to: a, session: s, open: map[string]bool{}}
		if err := e.export(ctx); err != nil {
			return a.n, fmt.Errorf("exporting session %s: %w", s, err)
		}
	}
	if err := a.close(); err != nil {
		return a.n, fmt.Errorf("writing the archive: %w", err)
	}
	return a.n, nil
}

type exporter struct {
	ledger  *ledger.Ledger
	to      *writer
	session string
	open    map[string]bool // executions whose output was not written yet
}

func (x *exporter) export(ctx context.Context) error {
	for r, err := range x.ledger.ReadRaw(ctx, events.Filter{Session: x.session}, 1, 0) {
		if err != nil {
			return err
		}
		e, err := events.Decode(r.Message)
		if err != nil {
			return fmt.Errorf("reading sequence %d: %w", r.Seq, err)
		}
		switch e.Kind() {
		case events.KindSpawned:
			x.open[e.Subject] = true
		case events.KindSettled:
			if err := x.output(ctx, e.Subject); err != nil {
				return err
			}
		}
		if err := x.put(r); err != nil {
			return err
		}
	}
	// What has not settled, in a stable order.
	for _, id := range slices.Sorted(maps.Keys(x.open)) {
		if err := x.output(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) output(ctx context.Context, execution string) error {
	delete(x.open, execution)
	for r, err := range x.ledger.OutputRaw(ctx, x.session, execution, 0) {
		if err != nil {
			return err
		}
		if err := x.put(r); err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) put(r ledger.Raw) error {
	if err := x.to.write(record{seq: r.Seq, Message: ledger.Portable(r.Message)}); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}
