package producers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// enter draws a ticket that is decided at once.
func (l *lanes) enter(reader bool) *ticket {
	t := l.draw()
	t.decide(reader)
	return t
}

// Places are taken in the order in which calls came, not in that in which it
// was known what they are.
func TestM124_TurnsAreDrawnAtOnce(t *testing.T) {
	l := newLanes()
	first, passed, second := l.draw(), l.draw(), l.draw()
	second.decide(false)
	if second.admitted() || second.ahead != 2 {
		t.Fatalf("admitted: %t, %d ahead", second.admitted(), second.ahead)
	}
	first.decide(true)
	if !first.admitted() || first.ahead != 0 {
		t.Fatalf("the first waits for %d", first.ahead)
	}
	first.leave()
	if second.admitted() {
		t.Fatal("one that is not decided was overtaken")
	}
	passed.leave()
	if !second.admitted() {
		t.Fatal("one that left is waited for")
	}
}

func TestM124_LanesAreFair(t *testing.T) {
	l := newLanes()
	w1, w2 := l.enter(false), l.enter(false)
	r1, r2 := l.enter(true), l.enter(true)
	w3, r3 := l.enter(false), l.enter(true)
	expect := func(when string, in ...*ticket) {
		t.Helper()
		for i, k := range []*ticket{w1, w2, r1, r2, w3, r3} {
			want := false
			for _, x := range in {
				want = want || x == k
			}
			if k.admitted() != want {
				t.Errorf("%s: ticket %d admitted: %t", when, i, !want)
			}
		}
	}
	for i, want := range []int{0, 1, 2, 2, 4, 5} {
		if got := []*ticket{w1, w2, r1, r2, w3, r3}[i].ahead; got != want {
			t.Errorf("ticket %d: %d ahead, want %d", i, got, want)
		}
	}
	expect("at first", w1)
	w1.leave()
	w1.leave()
	expect("after the first writer", w1, w2)
	w2.leave()
	expect("the readers enter together", w1, w2, r1, r2)
	r1.leave()
	expect("a writer waits for every reader", w1, w2, r1, r2)
	r2.leave()
	expect("then it enters", w1, w2, r1, r2, w3)
	w3.leave()
	expect("at last", w1, w2, r1, r2, w3, r3)
}

func TestM58_ReadersOverlap(t *testing.T) {
	l := newLanes()
	for i := range 3 {
		if k := l.enter(true); !k.admitted() || k.ahead != 0 {
			t.Fatalf("reader %d waits for %d", i, k.ahead)
		}
	}
	if w := l.enter(false); w.admitted() || w.ahead != 3 {
		t.Fatalf("the writer waits for %d", w.ahead)
	}
}

func TestM49b_CancelledInTheQueue(t *testing.T) {
	l := newLanes()
	r1, w := l.enter(true), l.enter(false)
	r2 := l.enter(true)
	if r2.admitted() {
		t.Fatal("a reader passed a waiting writer")
	}
	gone := errors.New("the owner is gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if err := w.wait(ctx); !errors.Is(err, gone) {
		t.Fatalf("waiting: %v", err)
	}
	if !r2.admitted() {
		t.Fatal("the reader waits for a writer that left")
	}
	r1.leave()
	r2.leave()
	if w.admitted() {
		t.Fatal("a cancelled ticket was admitted")
	}
	if !l.enter(false).admitted() {
		t.Fatal("the lanes are not free")
	}
}

func TestM59_LanesExclude(t *testing.T) {
	l := newLanes()
	var readers, writers atomic.Int32
	var wg sync.WaitGroup
	for i := range 1000 {
		k := l.enter(i%3 == 0)
		wg.Go(func() {
			defer k.leave()
			if i%7 == 0 {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if k.wait(ctx) != nil {
					return
				}
			} else if err := k.wait(context.Background()); err != nil {
				t.Error(err)
			}
			if k.reader {
				readers.Add(1)
				defer readers.Add(-1)
			} else {
				if writers.Add(1) != 1 || readers.Load() != 0 {
					t.Error("a writer is not alone")
				}
				defer writers.Add(-1)
			}
		})
	}
	wg.Wait()
	if l.queue.Len() != 0 || l.readers != 0 || l.writer {
		t.Errorf("left behind: %d waiting, %d readers, writer %t", l.queue.Len(), l.readers, l.writer)
	}
}
