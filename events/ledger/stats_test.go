package ledger

import (
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

func TestStatsCountAppends(t *testing.T) {
	l := open(t, t.TempDir())
	for range 5 {
		if _, err := l.Append(t.Context(), event("S", "E", events.Queued{})); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second is refused
		_, _ = l.Append(t.Context(), event("S", "E", events.Settled{}))
	}
	s := l.Stats()
	var counted uint64
	for _, n := range s.Latency {
		counted += n
	}
	if s.Appended != 6 || s.Refused != 1 || counted != 6 || s.LatencySum <= 0 || s.Queued != 0 || s.StalledSeconds != 0 {
		t.Errorf("%+v", s)
	}
}

func TestStatsCountAStallOnce(t *testing.T) {
	var c tally
	c.stored(5 * time.Second)
	c.stored(4900 * time.Millisecond) // waited behind it
	if s := c.read(); s.Stalls != 1 || s.Appended != 2 {
		t.Errorf("%+v", s)
	}
}
