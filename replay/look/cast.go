package look

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// The terminal of a recording whose command had none, and the longest pause.
const (
	castCols  = 100
	castRows  = 28
	idleLimit = 2 * time.Second
)

// WriteCast writes an execution as a recording that asciinema and its player
// play: the first limit bytes of its output, as far as they were there at the
// moment until (zero: now). JSON carries the bytes, so no output can break out.
func WriteCast(ctx context.Context, w io.Writer, l *ledger.Ledger, p projections.Process, limit int64, until time.Time) error {
	b := bufio.NewWriter(w)
	frames := beginning(replay.Timeline(ctx, l, events.Filter{Session: p.Session, ID: p.Execution}, 0), limit, until)
	c := replay.Cast{Title: NewRow(p, until).Title, Cols: castCols, Rows: castRows, IdleLimit: idleLimit}
	if err := replay.WriteAsciicast(b, frames, c); err != nil {
		return fmt.Errorf("writing a recording of %s: %w", p.Execution, err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing a recording of %s: %w", p.Execution, err)
	}
	return nil
}

// beginning ends frames at a length of output, or at a moment.
func beginning(frames iter.Seq2[replay.Frame, error], limit int64, until time.Time) iter.Seq2[replay.Frame, error] {
	return func(yield func(replay.Frame, error) bool) {
		for f, err := range frames {
			if err == nil && !until.IsZero() && f.Time.After(until) {
				return
			}
			out, isOutput := f.Body.(events.Output)
			if isOutput && out.End() > limit {
				out.Data = out.Data[:max(limit-out.Offset, 0)]
				f.Body = out
				yield(f, err)
				return
			}
			if !yield(f, err) {
				return
			}
		}
	}
}
