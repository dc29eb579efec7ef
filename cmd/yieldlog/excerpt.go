package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// excerptBytes is how much of the output is looked at for a few lines of it.
const excerptBytes = 64 << 10

// printExcerpt prints lines of the output, of all its streams in order: those
// from an offset on, or for a negative one the last, as far as they were there at
// the moment until (zero: now). It is made harmless for a terminal.
func (a *app) printExcerpt(ctx context.Context, l *ledger.Ledger, p projections.Process, from int64, lines int, until time.Time) error {
	if lines <= 0 {
		return nil
	}
	cut, to := firstLines, from+excerptBytes
	if from < 0 {
		cut, from, to = lastLines, max(0, p.Offset-excerptBytes), -1
		if p.Settled != nil {
			to = p.Settled.Offset
		}
	}
	var part []byte
	for e, err := range l.Output(ctx, p.Session, p.Execution, from, to) {
		if err != nil {
			return fmt.Errorf("reading the output: %w", err)
		}
		// What had ended by then had printed everything, whatever its clock says.
		if p.Settled == nil && !until.IsZero() && e.Time.After(until) {
			break
		}
		if out, ok := e.Body.(events.Output); ok {
			part = append(part, out.Data...)
			// The length of a running command's output is not known beforehand.
			if n := len(part) - 2*excerptBytes; n > 0 && to < 0 {
				part = append([]byte(nil), part[n:]...)
			}
		}
	}
	if len(part) == 0 {
		return nil
	}
	_, err := io.WriteString(a.out, "\n"+cut(replay.Plain(part), lines))
	return err
}

// lastLines is the end of s, from a line's beginning, with a newline at its end.
func lastLines(s string, n int) string {
	s = strings.TrimSuffix(s, "\n")
	at := len(s)
	for range n {
		if at = strings.LastIndexByte(s[:at], '\n'); at < 0 {
			return s + "\n"
		}
	}
	return s[at+1:] + "\n"
}

// firstLines is the beginning of s, with a newline at its end.
func firstLines(s string, n int) string {
	at := 0
	for range n {
		i := strings.IndexByte(s[at:], '\n')
		if i < 0 {
			return strings.TrimSuffix(s, "\n") + "\n"
		}
		at += i + 1
	}
	return s[:at]
}
