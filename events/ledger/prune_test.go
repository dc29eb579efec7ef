package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// postOutput appends n chunks of incompressible size to an execution.
func postOutput(t *testing.T, l *Ledger, execution string, from, n, size int) {
	t.Helper()
	var wg sync.WaitGroup
	for i := from; i < from+n; i++ {
		data := make([]byte, size)
		copy(data, fmt.Sprint(execution, i))
		for j := range data {
			data[j] ^= byte(j * (i + j>>8 + 7))
		}
		wg.Add(1)
		e := event("S", execution, events.Output{Stream: events.KindStdout, Offset: int64(i * size), Data: data})
		err := l.Post(t.Context(), e, func(_ events.Event, err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// roll seals the active segment.
func roll(t *testing.T, l *Ledger) {
	t.Helper()
	if err := l.store.order(t.Context(), orderRoll, ""); err != nil {
		t.Fatal(err)
	}
}

func TestPruneDeletesWholeSegments(t *testing.T) {
	dir := t.TempDir()
	host := open(t, dir)
	l := open(t, dir) // whoever prunes need not host
	for i := range 3 {
		postOutput(t, l, "A", i*10, 10, 3000)
		postOutput(t, l, "B"+fmt.Sprint(i), 0, 5, 3000)
		roll(t, l)
	}
	postOutput(t, l, "A", 30, 10, 3000)
	noted := map[string]events.Pruned{}
	note := func(_ context.Context, session, owner, execution string, p events.Pruned) error {
		if session != "S" || owner != events.RootOwner {
			t.Errorf("noted for %s %s", session, owner)
		}
		noted[execution] = p
		return nil
	}
	before, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Prune(t.Context(), before.Bytes-1, "size", note)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Segments) != 1 || r.Segments[0] != segmentName(1) || r.Executions != 2 {
		t.Errorf("pruned %+v", r)
	}
	want := map[string]events.Pruned{"A": {To: 30_000, Reason: "size"}, "B0": {To: 15_000, Reason: "size"}}
	if fmt.Sprint(noted) != fmt.Sprint(want) {
		t.Errorf("noted %v, want %v", noted, want)
	}
	if _, err := os.Stat(host.store.dir.stream(segmentName(1))); err == nil {
		t.Error("the segment is still on disk")
	}
	wantOutput(t, l, 30_000, 120_000)
	if _, err := l.PruneBefore(t.Context(), time.Now().Add(time.Hour), "asked", note); err != nil {
		t.Fatal(err)
	}
	if got := l.dir().segments(); len(got) != 1 || got[0] != segmentName(5) {
		t.Errorf("segments %v are left", got)
	}
}

// TestTwoPruneAtOnce has another prune what the first is about to.
func TestTwoPruneAtOnce(t *testing.T) {
	dir := t.TempDir()
	l, other := open(t, dir), open(t, dir)
	for i := range 3 {
		postOutput(t, l, "A", i*10, 10, 3000)
		roll(t, l)
	}
	soon, nothing := time.Now().Add(time.Hour), func(context.Context, string, string, string, events.Pruned) error { return nil }
	r, err := l.PruneBefore(t.Context(), soon, "asked", func(ctx context.Context, _, _, _ string, _ events.Pruned) error {
		_, err := other.PruneBefore(ctx, soon, "asked", nothing)
		return err
	})
	if err != nil || len(r.Segments) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAutoPruneKeepsTheLimit writes more than the ledger may hold.
func TestAutoPruneKeepsTheLimit(t *testing.T) {
	l, err := Open(t.Context(), Options{Dir: t.TempDir(), Sync: SyncRelaxed, MaxBytes: 8 << 20, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	pruned := make(chan string, 1000)
	l.AutoPrune(func(_ context.Context, _, _, execution string, _ events.Pruned) error {
		pruned <- execution
		return nil
	})
	for i := 0; ; i++ {
		postOutput(t, l, "A", i*10, 10, 60_000)
		if len(pruned) >= 5 {
			break
		}
		if i > 100_000 {
			t.Fatal("nothing is pruned")
		}
	}
	ents, err := filepath.Glob(filepath.Join(l.store.dir.streams(), segmentPrefix+"*"))
	if err != nil || len(ents) == 0 || filepath.Base(ents[0]) == segmentName(1) {
		t.Errorf("segments on disk: %v, %v", ents, err)
	}
}

// TestNothingOvertakesWhatIsInDoubt resends a chunk to a segment that was sealed
// meanwhile, with another behind it: that one must not be stored first, or the
// chunk would seem to be.
func TestNothingOvertakesWhatIsInDoubt(t *testing.T) {
	l := open(t, t.TempDir())
	postOutput(t, l, "A", 0, 1, 3000)
	old, _ := l.store.ingest(events.ClassOutput)
	roll(t, l)
	postOutput(t, l, "B", 0, 1, 3000) // finds the next segment
	var stored sync.WaitGroup
	stored.Add(2)
	chunk := func(i int) *entry {
		e := event("S", "A", events.Output{Stream: events.KindStdout, Offset: int64(i * 3000), Data: make([]byte, 3000)})
		e.ID = events.NewID()
		m, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		return &entry{event: e, msg: m, done: func(_ events.Event, err error) {
			if err != nil {
				t.Error(err)
			}
			stored.Done()
		}}
	}
	lost, next := chunk(1), chunk(2)
	lost.doubt, lost.ingest = true, old
	n := l.output
	n.mu.Lock()
	n.queue = append(n.queue, lost, next)
	n.send()
	if lost.state != inFlight || next.state != waiting {
		t.Errorf("sent %v and %v", lost.state, next.state)
	}
	n.mu.Unlock()
	stored.Wait()
	end := int64(0)
	for e, err := range l.Output(t.Context(), "S", "A", 0, -1) {
		if err != nil {
			t.Fatal(err)
		}
		if o := e.Body.(events.Output); o.Offset == end {
			end = o.End()
		}
	}
	if end != 9000 {
		t.Errorf("the output is whole up to %d of 9000", end)
	}
}

// wantOutput fails the test unless the output of execution A of session S is
// what lies between two offsets, without a gap.
func wantOutput(t *testing.T, l *Ledger, from, to int64) {
	t.Helper()
	next := from
	for e, err := range l.Output(t.Context(), "S", "A", 0, -1) {
		if err != nil {
			t.Fatal(err)
		}
		o := e.Body.(events.Output)
		if o.Offset != next {
			t.Fatalf("chunk at %d, want %d", o.Offset, next)
		}
		next = o.End()
	}
	if next != to {
		t.Errorf("output ends at %d, want %d", next, to)
	}
}
