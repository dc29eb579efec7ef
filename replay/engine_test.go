package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// history is a source of lifecycle events, numbered from 1.
type history []events.Event

func (h history) Read(_ context.Context, f events.Filter, from, to uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for _, e := range h {
			if e.Seq >= from && (to == 0 || e.Seq <= to) && f.Match(e) && !yield(e, nil) {
				return
			}
		}
	}
}

func (h history) Follow(ctx context.Context, f events.Filter, from uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for e, err := range h.Read(ctx, f, from, 0) {
			if !yield(e, err) {
				return
			}
		}
		<-ctx.Done()
	}
}

func (history) FollowOutput(ctx context.Context, _ events.Filter) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		if yield(events.Event{Session: "s", Subject: "e", Body: events.Output{Stream: events.KindStdout, Data: []byte("hi\n")}}, nil) {
			<-ctx.Done()
		}
	}
}

func night() history {
	var h history
	at := time.Unix(1_800_000_000, 0).UTC()
	for i, b := range []events.Body{
		events.Requested{Command: "make"},
		events.Spawned{PID: 7},
		events.Yielded{},
		events.Settled{Status: events.StatusCompleted, Outcome: events.OutcomeSuccess, Offset: 3},
	} {
		h = append(h, events.Event{
			Seq: uint64(i + 1), Time: at.Add(time.Duration(i) * time.Second), Session: "s", Owner: "/root", Subject: "e", Body: b,
		})
	}
	return h
}

func state(e *replay.Engine, p *projections.Processes) (s string) {
	e.View(func() {
		if v, ok := p.Get("e"); ok {
			s = v.State
		}
	})
	return s
}

func TestRunTo(t *testing.T) {
	p := projections.NewProcesses()
	e := replay.NewEngine(p)
	for _, step := range []struct {
		to   uint64
		want string
	}{{1, projections.StateQueued}, {2, projections.StateRunning}, {1, projections.StateRunning}, {0, projections.StateCompleted}} {
		if err := e.RunTo(t.Context(), night(), events.Filter{}, step.to); err != nil {
			t.Fatal(err)
		}
		if got := state(e, p); got != step.want {
			t.Errorf("at %d: %s, want %s", step.to, got, step.want)
		}
	}
}

// TestRunToOfAnotherSession: a sequence is reached though the filter selects
// nothing of it.
func TestRunToOfAnotherSession(t *testing.T) {
	e := replay.NewEngine()
	if err := e.RunTo(t.Context(), night(), events.Filter{Session: "other"}, 4); err != nil {
		t.Fatal(err)
	}
	if err := e.WaitFor(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
}

func TestRunUntil(t *testing.T) {
	p := projections.NewProcesses()
	e := replay.NewEngine(p)
	if err := e.RunUntil(t.Context(), night(), events.Filter{}, night()[2].Time); err != nil {
		t.Fatal(err)
	}
	if e.Seq() != 3 || state(e, p) != projections.StateRunning {
		t.Errorf("at %d: %s", e.Seq(), state(e, p))
	}
}

func TestLive(t *testing.T) {
	p := projections.NewProcesses()
	e := replay.NewEngine(p)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Live(ctx, night(), events.Filter{}) }()
	if err := e.WaitFor(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("following ended with %v", err)
	}
	if got := state(e, p); got != projections.StateCompleted {
		t.Errorf("%s after the end", got)
	}
}

func TestWaitForIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := replay.NewEngine().WaitFor(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestWaitersMissNothing: many wait while events are applied, and each returns.
func TestWaitersMissNothing(t *testing.T) {
	const last = 2000
	e := replay.NewEngine(projections.NewProcesses())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for seq := uint64(i); seq <= last; seq += 50 {
				if err := e.WaitFor(t.Context(), seq); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for seq := range uint64(last) {
		e.Apply(events.Event{Seq: seq + 1, Session: "s", Subject: "e", Body: events.Queued{}})
	}
	wg.Wait()
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
