package replay_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

func (h history) LastSeq(context.Context) (uint64, error) { return uint64(len(h)), nil }

// TestNewestIsTheListsBeginning: reading the end alone lists what a fold of
// everything lists first.
func TestNewestIsTheListsBeginning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h history
		apply := func(session, subject string, b events.Body) {
			h = append(h, events.Event{Seq: uint64(len(h) + 1), Session: session, Owner: "/root", Subject: subject, Body: b})
		}
		var live []string
		for i := range rapid.IntRange(0, 400).Draw(t, "executions") {
			session := rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "session")
			id := fmt.Sprintf("%s-%d", session, i)
			apply(session, id, events.Requested{Command: "make"})
			live = append(live, id)
			if rapid.IntRange(0, 20).Draw(t, "rewinds") == 0 {
				apply(session, session, events.Rewound{To: rapid.Uint64Range(1, uint64(len(h))).Draw(t, "to")})
			}
			for len(live) > 0 && rapid.Bool().Draw(t, "ends") {
				n := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				apply(live[n][:2], live[n], rapid.SampledFrom([]events.Body{
					events.Settled{Status: events.StatusCompleted}, events.Refused{Reason: "limit"}, events.Pruned{Reason: "cleanup"},
				}).Draw(t, "end"))
				live = append(live[:n], live[n+1:]...)
			}
		}
		f := events.Filter{Session: rapid.SampledFrom([]string{"", "s1"}).Draw(t, "filter")}
		all := projections.NewProcesses()
		if err := replay.NewEngine(all).RunTo(context.Background(), h, f, 0); err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 30).Draw(t, "n")
		got, err := replay.Newest(context.Background(), h, f, n)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all.List()[:min(n, len(all.List()))], got); diff != "" {
			t.Fatal(diff)
		}
	})
}
