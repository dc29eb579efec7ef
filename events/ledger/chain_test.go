package ledger

import (
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

// Processes write in turn to a session that has ended, each under its claim; each
// goes on where the one before it stopped.
func TestChainGoesOnWithTheClaim(t *testing.T) {
	dir := t.TempDir()
	writers := []*Ledger{open(t, dir), open(t, dir)}
	var prev string
	for i, kind := range []events.Body{
		events.Requested{}, events.Pruned{From: 0, To: 1}, events.Pruned{From: 1, To: 2}, events.Pruned{From: 2, To: 3}, events.Pruned{From: 3, To: 4},
	} {
		l := writers[i%2]
		claim, err := l.ClaimSession("S")
		if err != nil {
			t.Fatal(err)
		}
		e, err := l.Append(t.Context(), event("S", "E", kind))
		if err != nil {
			t.Fatal(err)
		}
		claim.Release()
		if e.Prev != prev {
			t.Errorf("event %d follows %.8q, not %.8q", i, e.Prev, prev)
		}
		m, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		prev = events.Hash(m)
	}
}
