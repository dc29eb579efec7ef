package replay_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

func TestTranscriptOfAForkBeginsWithWhatItShares(t *testing.T) {
	l := openLedger(t)
	post := func(session, id string, b events.Body) uint64 {
		t.Helper()
		e, err := l.Append(t.Context(), events.Event{Session: session, Subject: id, Owner: events.RootOwner, Body: b})
		if err != nil {
			t.Fatal(err)
		}
		return e.Seq
	}
	post("A", "A", events.Opened{Program: "mcp"})
	post("A", "A1", events.Requested{Command: "shared"})
	at := post("A", "A1", events.Settled{Status: events.StatusCompleted})
	post("A", "A2", events.Requested{Command: "later"})
	post("B", "B", events.Opened{Program: "mcp"})
	post("B", "B", events.Forked{From: "A", At: at})
	post("B", "B1", events.Requested{Command: "own"})
	rows, err := replay.Transcript(t.Context(), l, "B", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, r.Session+" "+strings.Fields(r.Text + " ")[0])
	}
	want := []string{"A Session", "A shared", "B Session", "B Session", "B own"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
