package replay_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

var (
	_ replay.Source  = (*ledger.Ledger)(nil)
	_ replay.Outputs = (*ledger.Ledger)(nil)
)

func openLedger(t testing.TB) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: t.TempDir(), Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// recordRandom records n bytes of output in chunks of at most size bytes.
func recordRandom(t testing.TB, l *ledger.Ledger, n, size int) []byte {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, n)
	for i := range data {
		data[i] = "abcdefgh\n"[r.IntN(9)]
	}
	done := make(chan error, 1)
	for at := 0; at < n; at += size {
		e := events.Event{Session: "s", Owner: "/root", Subject: "e", Body: events.Output{
			Stream: events.KindStdout, Offset: int64(at), Data: data[at:min(n, at+size)],
		}}
		last := at+size >= n
		if err := l.Post(t.Context(), e, func(_ events.Event, err error) {
			if last || err != nil {
				done <- err
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return data
}

func TestPagesOfALedger(t *testing.T) {
	l := openLedger(t)
	want := recordRandom(t, l, 1<<20, 3000)
	var got []byte
	r := replay.PageRequest{Limit: 20_000, End: int64(len(want)), Final: true}
	for {
		p, err := replay.ReadPage(t.Context(), l, "s", "e", r)
		if err != nil {
			t.Fatal(err)
		}
		if p.Next == r.From {
			break
		}
		got = append(got, p.Stdout...)
		r.From = p.Next
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes in pages, %d recorded", len(got), len(want))
	}
	p, err := replay.ReadPage(t.Context(), l, "s", "e", replay.PageRequest{Newest: true, Limit: 1000, End: r.End, Final: true})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.Stdout, want[len(want)-1000:]) {
		t.Errorf("the newest 1000 bytes are %q", p.Stdout)
	}
}

// TestM29_TapAndReplayAgree: what a session's own process folds as it goes is what
// a replay of the ledger folds.
func TestM29_TapAndReplayAgree(t *testing.T) {
	l := openLedger(t)
	live := projections.NewTranscript("")
	serving := replay.NewEngine(live)
	defer l.Tap(serving.Apply)()
	var last uint64
	for _, e := range night() {
		e, err := l.Append(t.Context(), events.Event{Session: e.Session, Owner: e.Owner, Subject: e.Subject, Body: e.Body})
		if err != nil {
			t.Fatal(err)
		}
		last = e.Seq
	}
	if err := serving.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	replayed := projections.NewTranscript("")
	if err := replay.NewEngine(replayed).RunTo(t.Context(), l, events.Filter{}, 0); err != nil {
		t.Fatal(err)
	}
	if a, b := asJSON(t, live.Rows("")), asJSON(t, replayed.Rows("")); a != b || len(live.Rows("")) != 1 {
		t.Errorf("live     %s\nreplayed %s", a, b)
	}
}

// BenchmarkPage reads a page anywhere in 64 MB.
func BenchmarkPage(b *testing.B) {
	for name, size := range map[string]int{"full chunks": 256 << 10, "small chunks": 4000} {
		b.Run(name, func(b *testing.B) {
			l := openLedger(b)
			const n = 64_000_000
			recordRandom(b, l, n, size)
			r := rand.New(rand.NewPCG(3, 4))
			for b.Loop() {
				_, err := replay.ReadPage(b.Context(), l, "s", "e", replay.PageRequest{From: r.Int64N(n - 20_000), Limit: 20_000, End: n, Final: true})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

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
