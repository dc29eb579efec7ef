package main

import (
	"testing"
	"time"
)

func TestParseMoment(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		in   string
		want moment
	}{
		{"", moment{}},
		{"17", moment{seq: 17}},
		{"now", moment{time: now}},
		{"90m", moment{time: now.Add(-90 * time.Minute)}},
		{"5m ago", moment{time: now.Add(-5 * time.Minute)}},
		{"7d", moment{time: now.Add(-7 * 24 * time.Hour)}},
		{"1d ago", moment{time: now.Add(-24 * time.Hour)}},
		{"12:00", moment{time: now}},
		{"12:00:01", moment{time: now.Add(time.Second - 24*time.Hour)}},
		{"23:00", moment{time: time.Date(2026, 5, 3, 23, 0, 0, 0, time.UTC)}},
		{"08:30", moment{time: time.Date(2026, 5, 4, 8, 30, 0, 0, time.UTC)}},
		{"2026-05-03", moment{time: time.Date(2026, 5, 3, 0, 0, 0, 0, time.UTC)}},
		{"2026-05-03 23:15", moment{time: time.Date(2026, 5, 3, 23, 15, 0, 0, time.UTC)}},
		{"2026-05-03T23:15:01+02:00", moment{time: time.Date(2026, 5, 3, 21, 15, 1, 0, time.UTC)}},
	} {
		got, err := parseMoment(tc.in, now)
		if err != nil || got.seq != tc.want.seq || !got.time.Equal(tc.want.time) {
			t.Errorf("%q: %v, %v; want %v", tc.in, got, err, tc.want)
		}
	}
	for _, in := range []string{"0", "-1", "d", "40000d", "yesterday", "25:00", "2026-05-04 12:01", "2999-01-01"} {
		if got, err := parseMoment(in, now); err == nil {
			t.Errorf("%q: %v, no error", in, got)
		}
	}
}
