//go:build linux

package producers

import (
	"errors"
	"sync"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// TestM52RewindRefusesLiveExecutions rewinds a session in its own process.
func TestM52RewindRefusesLiveExecutions(t *testing.T) {
	b := newBench(t)
	first := b.run(request("true")).id
	point, err := b.ledger.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := b.background("sleep 600")
	if err := Rewind(t.Context(), b.ledger, b.ID(), point); !errors.Is(err, ErrBusy) {
		t.Fatalf("rewound while an execution is live: %v", err)
	}
	if _, err := b.Stop(t.Context(), "", second, StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Rewind(t.Context(), b.ledger, b.ID(), point); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context(), "", second, 0); !errors.Is(err, ErrUnknown) {
		t.Errorf("the hidden execution is known: %v", err)
	}
	if _, err := b.Wait(t.Context(), "", first, 0); err != nil {
		t.Errorf("the earlier execution is not known: %v", err)
	}
	p := processesOf(t, b.ledger)
	for id, listed := range map[string]bool{first: true, second: false} {
		if v, ok := p.Get(id); !ok || v.Listed() != listed {
			t.Errorf("execution %s: there %v, listed %v", id, ok, v.Listed())
		}
	}
	b.run(request("true")) // the session goes on
}

func TestRewindWhereTheSessionWasNot(t *testing.T) {
	b := newBench(t)
	if err := Rewind(t.Context(), b.ledger, b.ID(), 1000); !errors.Is(err, ErrNoPoint) {
		t.Errorf("rewound to the future: %v", err)
	}
	if err := Rewind(t.Context(), b.ledger, "NONE", 1); !errors.Is(err, ErrNoPoint) {
		t.Errorf("rewound no session: %v", err)
	}
}

// TestRewindOfADeadSession kills the session's process first: it is declared
// lost, then rewound.
func TestRewindOfADeadSession(t *testing.T) {
	dir := t.TempDir()
	b := newBenchIn(t, dir)
	v := newVictim(t, dir)
	v.run("true")
	v.kill()
	opened := firstSeq(t, b.ledger, v.session)
	if err := Rewind(t.Context(), b.ledger, v.session, opened); err != nil {
		t.Fatal(err)
	}
	var kinds []events.Kind
	for _, e := range lifecycle(t, b.ledger, events.Filter{Session: v.session}) {
		kinds = append(kinds, e.Kind())
	}
	if n := len(kinds); n < 3 || kinds[n-1] != events.KindRewound || kinds[n-2] != events.KindLost {
		t.Errorf("events: %v", kinds)
	}
}

// TestRewindBesideRequests races rewinds and requests: whichever is refused,
// no execution is hidden while it is live.
func TestRewindBesideRequests(t *testing.T) {
	b := newBench(t)
	b.run(request("true"))
	opened := firstSeq(t, b.ledger, b.ID())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				if _, err := b.Exec(t.Context(), request("true")); err != nil {
					t.Errorf("running: %v", err)
				}
			}
		})
		wg.Go(func() {
			for range 10 {
				if err := Rewind(t.Context(), b.ledger, b.ID(), opened); err != nil && !errors.Is(err, ErrBusy) {
					t.Errorf("rewinding: %v", err)
				}
			}
		})
	}
	wg.Wait()
	live := 0
	for _, e := range lifecycle(t, b.ledger, events.Filter{Session: b.ID()}) {
		switch e.Kind() {
		case events.KindRequested:
			live++
		case events.KindSettled:
			live--
		case events.KindRewound:
			if live > 0 {
				t.Fatalf("rewound at %d with %d live executions", e.Seq, live)
			}
		}
	}
}

// TestM53ForkNeverCopiesExecutions forks a session.
func TestM53ForkNeverCopiesExecutions(t *testing.T) {
	b := newBench(t)
	b.run(request("echo hello"))
	id, err := Fork(t.Context(), b.ledger, DefaultConfig(), events.Opened{Program: "fork"}, b.ID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	sessions := projections.NewSessions()
	for _, e := range lifecycle(t, b.ledger, events.Filter{Session: id}) {
		if e.Class() != events.ClassSession {
			t.Errorf("the fork has %s", e.Kind())
		}
		sessions.Apply(e)
	}
	v, ok := sessions.Get(id)
	if !ok || v.ForkedFrom != b.ID() || v.ForkedAt == 0 || len(v.Anomalies) > 0 {
		t.Errorf("forked: %+v", v)
	}
	if _, err := Fork(t.Context(), b.ledger, DefaultConfig(), events.Opened{}, "NONE", 0); !errors.Is(err, ErrNoPoint) {
		t.Errorf("forked no session: %v", err)
	}
}

func processesOf(t *testing.T, l *ledger.Ledger) *projections.Processes {
	t.Helper()
	p := projections.NewProcesses()
	for _, e := range lifecycle(t, l, events.Filter{}) {
		p.Apply(e)
	}
	return p
}

func firstSeq(t *testing.T, l *ledger.Ledger, session string) uint64 {
	t.Helper()
	es := lifecycle(t, l, events.Filter{Session: session})
	if len(es) == 0 {
		t.Fatalf("there is no session %s", session)
	}
	return es[0].Seq
}
