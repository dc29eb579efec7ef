package replay_test

import (
	"testing"

	"github.com/yieldlog/yieldlog/replay"
)

// BenchmarkSmallPage is the page of a fast command's answer, read from the
// ledger as other processes do.
func BenchmarkSmallPage(b *testing.B) {
	l := openLedger(b)
	recordRandom(b, l, 100, 100)
	for b.Loop() {
		if _, err := replay.ReadPage(b.Context(), l, "s", "e", replay.PageRequest{HeadTail: true, Limit: 20_000, End: 100, Final: true}); err != nil {
			b.Fatal(err)
		}
	}
}
