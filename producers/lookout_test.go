//go:build linux

package producers

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// TestASurvivorEndsWhatADeadServerLeft has nobody open the ledger after a server
// died together with its guardian.
func TestASurvivorEndsWhatADeadServerLeft(t *testing.T) {
	dir, m := t.TempDir(), marker()
	b := newBenchIn(t, dir)
	news := make(chan events.Event, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		for e, err := range b.ledger.Follow(ctx, events.Filter{Kind: events.KindLost}, 1) {
			if err == nil {
				news <- e
			}
			return
		}
	}()

	v, ready := newVictim(t, dir), dir+"/ready"
	id := v.run("env -i setsid sh -c 'sleep " + m + " >/dev/null 2>&1 & exit'; env -i sh -c 'trap \"\" TERM; : >" + ready + "; sleep " + m + "; sleep " + m + "' & sleep " + m)
	awaitFile(t, ready)
	v.kill()
	select {
	case e := <-news:
		if e.Session != v.session || e.Body.(events.Lost).By != b.ID() {
			t.Errorf("%+v", e)
		}
	case <-ctx.Done():
		t.Fatal("nobody declared the session lost")
	}
	gone(t, m)
	if n := b.stored(v.session, id); n.Status != events.StatusLost {
		t.Errorf("%+v", n.Settled)
	}
}

// TestWhoOpensWaitsForARecovery opens a session while another process declares a
// dead one lost: what that left is then there to be told.
func TestWhoOpensWaitsForARecovery(t *testing.T) {
	dir := t.TempDir()
	b := newBenchIn(t, dir)
	dead := events.NewID()
	if _, err := b.ledger.Append(t.Context(), events.Event{Session: dead, Subject: dead, Body: events.Opened{Program: "test"}}); err != nil {
		t.Fatal(err)
	}
	end, ok, err := b.ledger.RecoveryTurn(t.Context(), patience)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	claim, err := b.ledger.ClaimSession(dead)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	opened := make(chan *Session, 1)
	go func() {
		s, err := OpenSession(t.Context(), l, DefaultConfig(), events.Opened{Program: "test"})
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	select {
	case <-opened:
		t.Fatal("it did not wait")
	case <-time.After(100 * time.Millisecond): // it fails only if there is a fault
	}
	if _, err := declareLost(t.Context(), b.ledger, dead, b.ID()); err != nil {
		t.Fatal(err)
	}
	claim.Release()
	end()
	if s := <-opened; s != nil {
		_ = s.Close(t.Context(), "over")
	}
}

// TestALookoutLeavesAnotherLedgerAlone puts another ledger into the place of a
// lookout's own.
func TestALookoutLeavesAnotherLedgerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	b := newBenchIn(t, dir)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	claim, err := l.ClaimSession("dead")
	if err != nil {
		t.Fatal(err)
	}
	claim.Leave()
	if err := newLookout(b.ledger, b.ID()).glance(t.Context()); err != nil {
		t.Error(err)
	}
	if ids, err := l.Claimed(); err != nil || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
}

// TestWhoAppendsToADeadSessionWaitsForItsClaim has another process tell of the
// session's mail at that moment.
func TestWhoAppendsToADeadSessionWaitsForItsClaim(t *testing.T) {
	l := newBench(t).ledger
	dead := events.NewID()
	if _, err := l.Append(t.Context(), events.Event{Session: dead, Subject: dead, Body: events.Opened{Program: "test"}}); err != nil {
		t.Fatal(err)
	}
	claim, err := l.ClaimSession(dead)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*claimPause, claim.Release)
	// As NotePruned does, once nobody has answered.
	if err := appendDead(t.Context(), l, events.Event{Session: dead, Owner: events.RootOwner, Subject: events.NewID(), Body: events.Pruned{To: 1}}); err != nil {
		t.Error(err)
	}
}
