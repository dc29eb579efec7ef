package replay_test

import (
	"context"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

// counting counts how often the ledger is asked.
type counting struct {
	tape
	asked int
}

func (c *counting) Output(ctx context.Context, s, e string, from, to int64) iter.Seq2[events.Event, error] {
	c.asked++
	return c.tape.Output(ctx, s, e, from, to)
}

// long draws an output of up to some hundred kilobytes in chunks of any size.
func long(t *rapid.T) (tp tape) {
	for i := range rapid.IntRange(0, 30).Draw(t, "chunks") {
		data := make([]byte, rapid.IntRange(1, 30_000).Draw(t, "size"))
		for j := range data {
			data[j] = byte('a' + (i+j)%26)
		}
		stream := rapid.SampledFrom([]events.Kind{events.KindStdout, events.KindStderr}).Draw(t, "stream")
		tp = append(tp, events.Output{Stream: stream, Offset: tp.end(), Data: data})
	}
	return tp
}

func told(r *replay.Recent, tp tape) {
	r.Apply(events.Event{Seq: 1, Subject: "e", Body: events.Requested{}})
	for _, o := range tp {
		r.Apply(events.Event{Subject: "e", Body: o})
	}
}

// TestRecentIsTheLedger: whatever is asked, the answer is the ledger's.
func TestRecentIsTheLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := long(t)
		r := replay.NewRecent(&counting{tape: tp})
		told(r, tp)
		from := rapid.Int64Range(0, tp.end()).Draw(t, "from")
		to := rapid.Int64Range(-1, tp.end()+10).Draw(t, "to")
		bytesOf := func(src replay.Outputs) map[events.Kind]string {
			got := map[events.Kind]string{}
			next := from
			for e := range src.Output(context.Background(), "s", "e", from, to) {
				o := e.Body.(events.Output)
				if o.Offset != next {
					t.Fatalf("a chunk at %d, after %d", o.Offset, next)
				}
				next = o.End()
				got[o.Stream] += string(o.Data)
			}
			return got
		}
		if diff := cmp.Diff(bytesOf(tp), bytesOf(r)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestRecentAnswersAlone: neither the answer of a small command nor that of a
// flood, nor the reading on at its end, asks the ledger.
func TestRecentAnswersAlone(t *testing.T) {
	for _, tp := range []tape{nil, lines(10), lines(100_000)} {
		ledger := &counting{tape: tp}
		r := replay.NewRecent(ledger)
		told(r, tp)
		for _, q := range []replay.PageRequest{
			{HeadTail: true, Limit: 20_000, End: tp.end()},
			{Newest: true, Limit: 20_000, End: tp.end()},
			{From: max(0, tp.end()-1000), Limit: 20_000, End: tp.end()},
			{Limit: 20_000, End: tp.end()},
		} {
			q.Totals = map[events.Kind]int64{events.KindStdout: tp.end()}
			want := read(t, tp, q)
			got, err := replay.ReadPage(t.Context(), r, "s", "e", q)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		if ledger.asked > 0 {
			t.Errorf("the ledger was asked %d times about %d bytes", ledger.asked, tp.end())
		}
	}
}

// TestRecentForgets: what it was not told from the beginning, what is missing a
// chunk, and what ended long ago, is the ledger's to tell.
func TestRecentForgets(t *testing.T) {
	tp := lines(3)
	ledger := &counting{tape: tp}
	r := replay.NewRecent(ledger)
	for _, o := range tp {
		r.Apply(events.Event{Subject: "e", Body: o})
	}
	read := func() {
		if _, err := replay.ReadPage(t.Context(), r, "s", "e", replay.PageRequest{Limit: 100, End: tp.end()}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	told(r, tp[1:])
	read()
	told(r, tp)
	for _, id := range []string{"e", "f"} {
		for range 64 {
			r.Apply(events.Event{Subject: id, Body: events.Settled{}})
		}
	}
	read()
	if ledger.asked != 3 {
		t.Errorf("the ledger was asked %d times, not 3", ledger.asked)
	}
}
