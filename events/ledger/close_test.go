package ledger

import (
	"testing"
	"time"
)

// A ledger that does not answer is not waited for again and again.
func TestAClosingLedgerWaitsForAStallOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	for stalled, want := range map[time.Time]time.Duration{
		{}:                         10 * time.Second,
		now.Add(-4 * time.Second):  6 * time.Second,
		now.Add(-10 * time.Second): time.Second,
		now.Add(-time.Hour):        time.Second,
		now.Add(time.Hour):         10 * time.Second,
	} {
		if got := closePatience(stalled, now); got != want {
			t.Errorf("stalled since %v: %v, want %v", stalled, got, want)
		}
	}
}
