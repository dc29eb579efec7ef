package hook

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/yieldlog/yieldlog/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbered is events from a sequence to n; odd ones are settled.
func numbered(from, n uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for seq := from; seq <= n; seq++ {
			e := events.Event{Seq: seq, Body: events.Queued{}}
			if seq%2 == 1 {
				e.Body = events.Settled{}
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func isSettled(e events.Event) bool { return e.Kind() == events.KindSettled }

// A recorder notes what was delivered and where to go on.
type recorder struct {
	mu   sync.Mutex
	seqs []uint64
	next uint64
}

func (r *recorder) deliver(_ context.Context, e events.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seqs = append(r.seqs, e.Seq)
	return nil
}

func (r *recorder) save(next uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next = next
	return nil
}

func TestDeliversInOrderAndGoesOn(t *testing.T) {
	var r recorder
	c := Config{Match: isSettled, Deliver: r.deliver, Save: r.save}
	if err := Run(t.Context(), numbered(1, 10), c); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{1, 3, 5, 7, 9}; !slices.Equal(r.seqs, want) || r.next != 11 {
		t.Errorf("delivered %v, goes on at %d", r.seqs, r.next)
	}
	if err := Run(t.Context(), numbered(r.next, 14), c); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{1, 3, 5, 7, 9, 11, 13}; !slices.Equal(r.seqs, want) || r.next != 15 {
		t.Errorf("delivered %v, goes on at %d", r.seqs, r.next)
	}
}

// TestGoesOnBeforeWhatIsUnderWay stops while the first delivery hangs and later
// ones are over: all of them may come again, the first must.
func TestGoesOnBeforeWhatIsUnderWay(t *testing.T) {
	var r recorder
	ctx, stop := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Add(3)
	err := Run(ctx, numbered(1, 7), Config{Match: isSettled, Save: r.save, Jobs: 4, Deliver: func(ctx context.Context, e events.Event) error {
		if e.Seq > 1 {
			over.Done()
			return nil
		}
		over.Wait()
		stop()
		<-ctx.Done()
		return ctx.Err()
	}})
	if err != nil || r.next != 1 && r.next != 0 {
		t.Errorf("goes on at %d, %v", r.next, err)
	}
}

func TestJobsAreBounded(t *testing.T) {
	var r recorder
	var now, most atomic.Int32
	err := Run(t.Context(), numbered(1, 200), Config{Save: r.save, Jobs: 3, Deliver: func(context.Context, events.Event) error {
		n := now.Add(1)
		defer now.Add(-1)
		for {
			m := most.Load()
			if n <= m || most.CompareAndSwap(m, n) {
				return nil
			}
		}
	}})
	if err != nil || r.next != 201 || most.Load() > 3 {
		t.Errorf("%d at a time, goes on at %d, %v", most.Load(), r.next, err)
	}
}

func TestTriesAgainAndGivesUp(t *testing.T) {
	var r recorder
	tries := map[uint64]int{}
	err := Run(t.Context(), numbered(1, 3), Config{Save: r.save, Retries: 2, Pause: time.Millisecond, Deliver: func(_ context.Context, e events.Event) error {
		tries[e.Seq]++
		if e.Seq == 1 && tries[1] < 3 || e.Seq == 2 {
			return errors.New("not now")
		}
		return nil
	}})
	if err != nil || r.next != 4 {
		t.Errorf("goes on at %d, %v", r.next, err)
	}
	if tries[1] != 3 || tries[2] != 3 || tries[3] != 1 {
		t.Errorf("tried %v", tries)
	}
}

func TestEndsWhenItCannotSave(t *testing.T) {
	full := errors.New("disk full")
	err := Run(t.Context(), numbered(1, 5000), Config{Save: func(uint64) error { return full }, Deliver: (&recorder{}).deliver})
	if !errors.Is(err, full) {
		t.Errorf("ended with %v", err)
	}
}

func TestBrokenSourceEndsIt(t *testing.T) {
	broken := errors.New("broken")
	source := func(yield func(events.Event, error) bool) { yield(events.Event{}, broken) }
	if err := Run(t.Context(), source, Config{Save: (&recorder{}).save, Deliver: (&recorder{}).deliver}); !errors.Is(err, broken) {
		t.Errorf("ended with %v", err)
	}
}
