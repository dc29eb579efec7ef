package look_test

import (
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
	"github.com/yieldlog/yieldlog/replay/look/looktest"
)

// Output that was pruned to its end is gone, and was not always empty.
func TestPrunedToTheEnd(t *testing.T) {
	l := looktest.Open(t)
	p := projections.Process{Execution: "E", Session: "S", Offset: 10, Pruned: []projections.Span{{From: 0, To: 10}}}
	for _, c := range []struct{ from, to, gone int64 }{{0, -1, 10}, {4, -1, 6}, {4, 6, 2}} {
		o, err := look.ReadOutput(t.Context(), l, p, c.from, c.to, time.Time{})
		if err != nil || !o.Empty() || o.Gone != c.gone {
			t.Errorf("of [%d, %d): %+v, %v, want %d gone", c.from, c.to, o, err, c.gone)
		}
	}
}
