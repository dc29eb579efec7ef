package main

import (
	"fmt"
	"strconv"
	"time"
)

// A moment is a place in the ledger: a lifecycle sequence, or a time. The zero
// value is the end.
type moment struct {
	seq  uint64
	time time.Time
}

// layouts are the ways to write a time; those without a date mean today.
var layouts = []struct {
	layout string
	today  bool
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
	if seq, err := strconv.ParseUint(s, 10, 64); err == nil && seq > 0 {
		return moment{seq: seq}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d != 0 {
		return moment{time: now.Add(-d.Abs())}, nil
	}
	for _, l := range layouts {
		t, err := time.ParseInLocation(l.layout, s, now.Location())
		if err != nil {
			continue
		}
		if l.today {
			y, m, d := now.Date()
			t = time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
		}
		return moment{time: t}, nil
	}
	return moment{}, fmt.Errorf("%q is neither a sequence, nor a time (RFC 3339, 2006-01-02 15:04, 15:04), nor a duration ago (90m)", s)
}
