package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// A moment is a place in the ledger: a lifecycle sequence, or a time. The zero
// value is the end.
type moment struct {
	seq  uint64
	time time.Time
}

// timeHelp is what the help of a flag that takes a time says about it.
const timeHelp = "a time (15:04[:05], 2006-01-02 15:04, RFC 3339, or 5m or 7d ago)"

// atHelp is the help of --at.
const atHelp = "as it was at a sequence, or at " + timeHelp

// layouts are the ways to write a time; those without a date mean the last 24 hours.
var layouts = []struct {
	layout string
	clock  bool
}{
	{time.RFC3339Nano, false},
	{"2006-01-02 15:04:05", false},
	{"2006-01-02 15:04", false},
	{"2006-01-02", false},
	{"15:04:05", true},
	{"15:04", true},
}

func parseMoment(s string, now time.Time) (moment, error) {
	if s == "" {
		return moment{}, nil
	}
	if s == "now" {
		return moment{time: now}, nil
	}
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil && seq > 0 {
		return moment{seq: seq}, nil
	}
	if d, err := parseDuration(strings.TrimSuffix(s, " ago")); err == nil && d != 0 {
		return moment{time: now.Add(-d.Abs())}, nil
	}
	for _, l := range layouts {
		t, err := time.ParseInLocation(l.layout, s, now.Location())
		if err != nil {
			continue
		}
		if l.clock {
			y, m, d := now.Date()
			clock := t
			on := func(d int) time.Time {
				return time.Date(y, m, d, clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
			}
			if t = on(d); t.After(now) {
				t = on(d - 1)
			}
		}
		if t.After(now) {
			return moment{}, fmt.Errorf("%q is in the future", s)
		}
		return moment{time: t}, nil
	}
	return moment{}, fmt.Errorf("%q is neither a sequence, nor %s", s, timeHelp)
}

// pastMoment is a moment of the ledger, and with a sequence also its time.
func pastMoment(ctx context.Context, l *ledger.Ledger, s string) (moment, error) {
	m, err := parseMoment(s, time.Now())
	if err != nil {
		return moment{}, usageError{err}
	}
	if m.seq == 0 {
		return m, nil
	}
	if err := checkSeq(ctx, l, m.seq); err != nil {
		return moment{}, err
	}
	for e, err := range l.Read(ctx, events.Filter{}, m.seq, m.seq) {
		if err != nil {
			return moment{}, fmt.Errorf("reading event %d: %w", m.seq, err)
		}
		m.time = e.Time
	}
	return m, nil
}

// checkSeq refuses a sequence that no event has yet.
func checkSeq(ctx context.Context, l *ledger.Ledger, seq uint64) error {
	last, err := l.LastSeq(ctx)
	if err != nil {
		return fmt.Errorf("reading the last sequence: %w", err)
	}
	if seq > last {
		return usageError{fmt.Errorf("there is no event %d: the last one is %d", seq, last)}
	}
	return nil
}
