package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

func open(t *testing.T, dir string) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), Options{Dir: dir})
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

func event(session, id string, b events.Body) events.Event {
	if id == "" {
		id = session
	}
	return events.Event{Session: session, Subject: id, Owner: events.RootOwner, Body: b}
}

func TestAppendAndRead(t *testing.T) {
	l := open(t, t.TempDir())
	ctx := t.Context()
	var tapped []events.Kind
	defer l.Tap(func(e events.Event) { tapped = append(tapped, e.Kind()) })()
	for _, b := range []events.Body{events.Opened{Program: "test"}, events.Closed{Reason: "done"}} {
		e, err := l.Append(ctx, event("S", "", b))
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq == 0 || e.ID == "" {
			t.Fatalf("appended %+v without sequence or id", e)
		}
	}
	if len(tapped) != 2 {
		t.Errorf("tapped %v", tapped)
	}
	prev := ""
	for r, err := range l.ReadRaw(ctx, events.Filter{Session: "S"}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := decode(r)
		if err != nil {
			t.Fatal(err)
		}
		if e.Prev != prev {
			t.Errorf("%s carries prev %q, want %q", e.Kind(), e.Prev, prev)
		}
		prev = events.Hash(r.Message)
	}
	if prev == "" {
		t.Error("read nothing")
	}
}

func TestUniqueKindIsAppendedOnce(t *testing.T) {
	l := open(t, t.TempDir())
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for range 8 {
		wg.Go(func() {
			_, err := l.Append(t.Context(), event("S", "E", events.Settled{Status: events.StatusCompleted}))
			errs <- err
		})
	}
	wg.Wait()
	won := 0
	for range 8 {
		switch err := <-errs; {
		case err == nil:
			won++
		case !errors.Is(err, ErrExists):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 8 settlements were appended", won)
	}
}

// TestOutputFromAnyOffset writes chunks of odd sizes and reads ranges, with and
// without the positions that the writer remembers.
func TestOutputFromAnyOffset(t *testing.T) {
	l := open(t, t.TempDir())
	rnd := rand.New(rand.NewPCG(1, 2))
	var want []byte
	var wg sync.WaitGroup
	for i := range 300 {
		chunk := bytes.Repeat([]byte(fmt.Sprintf("%04d ", i)), 1+rnd.IntN(400))
		wg.Add(1)
		err := l.Post(t.Context(), event("S", "E", events.Output{Stream: events.KindStdout, Offset: int64(len(want)), Data: chunk}),
			func(_ events.Event, err error) {
				if err != nil {
					t.Error(err)
				}
				wg.Done()
			})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, chunk...)
	}
	wg.Wait()
	for i := range 60 {
		if i%2 == 0 {
			l.positions = positions{}
		}
		from := rnd.IntN(len(want))
		to := from + rnd.IntN(len(want)-from+1)
		var got []byte
		for e, err := range l.Output(t.Context(), "S", "E", int64(from), int64(to)) {
			if err != nil {
				t.Fatal(err)
			}
			o := e.Body.(events.Output)
			if o.Offset != int64(from+len(got)) {
				t.Fatalf("chunk at %d, want %d", o.Offset, from+len(got))
			}
			got = append(got, o.Data...)
		}
		if !bytes.Equal(got, want[from:to]) {
			t.Fatalf("bytes [%d,%d) differ: got %d bytes", from, to, len(got))
		}
	}
}

func TestFollowCatchesUpAndGoesOn(t *testing.T) {
	l := open(t, t.TempDir())
	post := func(i int) {
		if _, err := l.Append(t.Context(), event("S", "E", events.Queued{Ahead: i})); err != nil {
			t.Error(err)
		}
	}
	for i := range 10 {
		post(i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := 0
	var posts sync.WaitGroup // an event is followed before its append returns
	defer posts.Wait()
	for e, err := range l.Follow(ctx, events.Filter{Session: "S"}, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Body.(events.Queued).Ahead; got != next {
			t.Fatalf("followed %d, want %d", got, next)
		}
		next++
		if next == 30 {
			break
		}
		if next >= 10 {
			n := next
			posts.Go(func() { post(n) })
		}
	}
	if next != 30 {
		t.Errorf("followed %d events, want 30", next)
	}
}

// TestAskADeadSession asks a session that is subscribed still and whose process
// is dead, as far as its claim tells: the host has not noticed yet.
func TestAskADeadSession(t *testing.T) {
	l := open(t, t.TempDir())
	stop, err := l.Serve("S", func(ctx context.Context, _ []byte) []byte {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if _, err := l.Ask(t.Context(), "S", []byte("hey")); !errors.Is(err, ErrNoSession) {
		t.Errorf("asking a dead session: %v", err)
	}
}

func TestAskTheSession(t *testing.T) {
	l := open(t, t.TempDir())
	if _, err := l.Ask(t.Context(), "S", nil); !errors.Is(err, ErrNoSession) {
		t.Errorf("asked nobody: %v", err)
	}
	stop, err := l.Serve("S", func(_ context.Context, req []byte) []byte { return append(req, '!') })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	got, err := l.Ask(t.Context(), "S", []byte("hey"))
	if err != nil || string(got) != "hey!" {
		t.Errorf("got %q, %v", got, err)
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(b.Context(), Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for b.Loop() {
		if _, err := l.Append(b.Context(), event("S", "E", events.Queued{})); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOutput posts chunks as pumps do under load.
func BenchmarkOutput(b *testing.B) {
	l, err := Open(b.Context(), Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, size := range []int{512 << 10, 64 << 10, 4 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			line := []byte("2026-12-01T00:00:00Z some log line with numbers ")
			data := make([]byte, 0, size)
			for i := 0; len(data) < size-80; i++ {
				data = fmt.Appendf(append(data, line...), "%d\n", rand.Uint32())
			}
			b.SetBytes(int64(len(data)))
			var wg sync.WaitGroup
			window := make(chan struct{}, 8)
			off := int64(0)
			for b.Loop() {
				window <- struct{}{}
				wg.Add(1)
				err := l.Post(b.Context(), event("S", "E"+fmt.Sprint(size), events.Output{Stream: events.KindStdout, Offset: off, Data: data}),
					func(_ events.Event, err error) {
						if err != nil {
							b.Error(err)
						}
						<-window
						wg.Done()
					})
				if err != nil {
					b.Fatal(err)
				}
				off += int64(len(data))
			}
			wg.Wait()
		})
	}
}

func TestAnEventThatIsTooLargeHoldsNothingUp(t *testing.T) {
	l := open(t, t.TempDir())
	text := make([]byte, 8<<20)
	for i := range text {
		text[i] = 'x'
	}
	for _, n := range []int{1 << 20, 2 << 20, 8 << 20} {
		if _, err := l.Append(t.Context(), event("S", "", events.Opened{Program: string(text[:n])})); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, n := range []int{maxMessage - 1000, maxMessage - 400} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := l.Append(ctx, event("S", "", events.Closed{Reason: string(text[:n])}))
		cancel()
		if err != nil && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrExists) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := l.Append(t.Context(), event("T", "", events.Opened{Program: "test"})); err != nil {
		t.Error(err)
	}
}
