//go:build linux

package producers

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// lends lends what the owner has, once there is something.
func (b *bench) lends(owner string) []Lent {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		b.mail.ready(ctx, owner)
		if list := b.mail.lend(ctx, owner, 10, rand.Uint64()>>1); len(list) > 0 {
			return list
		}
	}
	b.t.Fatal("nothing to lend")
	return nil
}

// says is a sink's answer. The channel is closed once it took effect.
func (b *bench) says(owner string, l Lent, verb ledger.AckVerb) <-chan struct{} {
	done := make(chan struct{})
	b.mail.loans.hear(ledger.SinkAck{Owner: owner, Seq: l.Seq, Lease: l.Lease, Verb: verb, Answer: func() { close(done) }})
	return done
}

func TestSinkTakesWhatNobodyElseIsTold(t *testing.T) {
	b := newBench(t)
	id := b.yields("echo hi")
	lent := b.lends(events.RootOwner)
	if len(lent) != 1 || lent[0].Redelivered || lent[0].Seq != b.posted(id).Seq {
		t.Fatalf("lent %+v", lent)
	}
	b.none("")
	if b.Observed("", id, "read") != nil || len(b.Unread("")) > 0 || len(b.mail.lend(t.Context(), events.RootOwner, 10, 1)) > 0 {
		t.Error("what a sink was given is told to others")
	}
	if list := b.mail.lend(t.Context(), "/root/other", 10, 2); len(list) > 0 {
		t.Error("another owner's sink was given it")
	}
	<-b.says(events.RootOwner, lent[0], ledger.AckTaken)
	if a := b.acknowledged(id); a.By != "sink" || a.Redelivered || a.Offered.IsZero() {
		t.Errorf("acknowledged: %+v", a)
	}
	<-b.says(events.RootOwner, lent[0], ledger.AckTaken) // it did not hear the answer
	b.none("")
	if n := b.count(id, events.KindAcknowledged); n != 1 {
		t.Errorf("acknowledged %d times", n)
	}
}

func TestSinkRequestMayComeTwice(t *testing.T) {
	b := newBench(t)
	b.posted(b.yields("true"))
	b.posted(b.yields("true"))
	b.mail.ready(t.Context(), events.RootOwner)
	var first []Lent
	for deadline := time.Now().Add(patience); len(first) < 2; { // the callback follows the event
		if time.Now().After(deadline) {
			t.Fatalf("lent %+v", first)
		}
		first = append(first, b.mail.lend(t.Context(), events.RootOwner, 2, uint64(100+10*len(first)))...)
	}
	if again := b.mail.lend(t.Context(), events.RootOwner, 2, 100); len(again) == 0 || again[0] != first[0] {
		t.Errorf("lent %+v, and then %+v", first, again)
	}
}

func TestSinkThatDoesNotAnswerGivesBack(t *testing.T) {
	b := newBench(t)
	b.mail.loans.wait = time.Millisecond
	id := b.yields("true")
	late := b.lends(events.RootOwner)[0]
	list, claim := b.collect("")
	if len(list) != 1 || list[0].ID != id || !list[0].Redelivered {
		t.Fatalf("after the term: %+v", list)
	}
	b.says(events.RootOwner, late, ledger.AckTaken)
	claim.Delivered()
	if a := b.acknowledged(id); a.By != "mailbox" || !a.Redelivered {
		t.Errorf("acknowledged: %+v", a)
	}
}

func TestSinkAnswers(t *testing.T) {
	b := newBench(t)
	id := b.yields("true")
	for _, step := range []struct {
		verb ledger.AckVerb
		seen bool // the next offer says that it may have been seen
	}{{ledger.AckNobody, false}, {ledger.AckNobody, false}, {ledger.AckReturned, true}, {ledger.AckNobody, true}} {
		lent := b.lends(events.RootOwner)[0]
		<-b.says(events.RootOwner, lent, ledger.AckProgress)
		b.says("/root/other", lent, ledger.AckTaken) // nobody's answer to give
		b.says(events.RootOwner, Lent{Seq: lent.Seq + 1, Lease: lent.Lease}, ledger.AckTaken)
		<-b.says(events.RootOwner, lent, step.verb)
		list, claim := b.collect("")
		if len(list) != 1 || list[0].ID != id || list[0].Redelivered != step.seen {
			t.Errorf("after %s: %+v", step.verb, list)
		}
		claim.Restore(false)
	}
}

// TestM43_TeardownMakesASinksLateAnswersInert ends the owner, and then the
// session, while a sink has a record.
func TestM43_TeardownMakesASinksLateAnswersInert(t *testing.T) {
	dir := t.TempDir()
	b := newBenchIn(t, dir)
	id := b.yields("true", func(r *Request) { r.Owner = "/root/a" })
	late := b.lends("/root/a")[0]
	if _, err := b.StopOwner(t.Context(), "/root/a"); err != nil {
		t.Fatal(err)
	}
	b.says("/root/a", late, ledger.AckTaken)
	again := b.lends("/root/a")[0]
	if again.Seq != late.Seq || !again.Redelivered {
		t.Errorf("after the owner was ended: %+v", again)
	}
	if err := b.Close(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	b.says("/root/a", again, ledger.AckTaken)
	if n := b.count(id, events.KindAcknowledged); n != 0 {
		t.Errorf("a late answer was recorded %d times", n)
	}
	heir := newBenchIn(t, dir)
	list, claim := heir.collect("/root/a")
	claim.Delivered()
	if len(list) != 1 || list[0].ID != id || !list[0].Redelivered {
		t.Errorf("the next session was told %+v", list)
	}
	heir.untilRecord(id)
}

// TestSinkDoubtOutlivesWhoOpensNext leaves mail that a sink had, with a session
// that ended in good order. That it may have been seen is known until it is told.
func TestSinkDoubtOutlivesWhoOpensNext(t *testing.T) {
	dir := t.TempDir()
	b := newBenchIn(t, dir)
	b.yields("true")
	b.lends(events.RootOwner)
	if err := b.Close(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // who recovers dead sessions passes by
		v := newBenchIn(t, dir)
		if err := v.Close(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	heir := newBenchIn(t, dir)
	list, claim := heir.collect("")
	claim.Delivered()
	if len(list) != 1 || !list[0].Redelivered {
		t.Fatalf("told %+v", list)
	}
	heir.untilRecord(list[0].ID)
	last := newBenchIn(t, dir) // who finds nothing unread any more removes the claim
	if ids, err := last.ledger.Claimed(); err != nil || len(ids) != 2 {
		t.Errorf("claims that are left: %v, %v", ids, err)
	}
}

// TestSinkIsNotLentWhatItTook asks for the mail of a session that has ended,
// while it is being recorded that a sink took it.
func TestSinkIsNotLentWhatItTook(t *testing.T) {
	dir := t.TempDir()
	b := newBenchIn(t, dir)
	b.posted(b.yields("true"))
	if err := b.Close(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	k := newSinks(newBenchIn(t, dir).ledger, nil)
	defer k.close()
	if err := k.mail.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	lend := func() []Lent {
		list, _, err := k.lend(t.Context(), b.ID(), events.RootOwner, 10)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	asked, send := make(chan struct{}), make(chan struct{})
	post := k.dead.append
	k.dead.append = func(ctx context.Context, e events.Event, done func(events.Event, error)) error {
		close(asked)
		<-send
		return post(ctx, e, done)
	}
	lent := lend()
	if len(lent) != 1 {
		t.Fatalf("lent %+v", lent)
	}
	recorded := make(chan struct{})
	k.hear(ledger.SinkAck{Owner: events.RootOwner, Seq: lent[0].Seq, Lease: lent[0].Lease, Verb: ledger.AckTaken, Answer: func() { close(recorded) }})
	<-asked
	if again := lend(); len(again) > 0 {
		t.Errorf("lent again while that is recorded: %+v", again)
	}
	close(send)
	<-recorded
	if again := lend(); len(again) > 0 {
		t.Errorf("lent again after that was recorded: %+v", again)
	}
}

func TestSinksGoOnFollowingAfterAnError(t *testing.T) {
	b := newBench(t)
	k := newSinks(b.ledger, nil)
	defer k.close()
	var tries atomic.Int32
	follow := k.mail.events
	k.mail.events = func(ctx context.Context, f events.Filter, from uint64) iter.Seq2[events.Event, error] {
		if tries.Add(1) > 2 { // both classes were tried
			return follow(ctx, f, from)
		}
		return func(yield func(events.Event, error) bool) { yield(events.Event{}, errors.New("no answer")) }
	}
	if err := k.mail.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.posted(b.yields("true"))
	for late := time.After(patience); ; {
		news := k.mail.changed()
		if len(k.mail.sessions(events.RootOwner)) > 0 {
			return
		}
		select {
		case <-news:
		case <-late:
			t.Fatal("mail that was posted after the error is not seen")
		}
	}
}

// sinkAll is a sink that is given what there is, and of whose answers some are
// late, or that it has gone.
func sinkAll(ctx context.Context, s *Session, c *tally) {
	for ctx.Err() == nil {
		s.mail.ready(ctx, events.RootOwner)
		for _, l := range s.mail.lend(ctx, events.RootOwner, 3, rand.Uint64()>>1) {
			verb := []ledger.AckVerb{ledger.AckTaken, ledger.AckTaken, ledger.AckReturned, ledger.AckNobody, ""}[rand.IntN(5)]
			if verb == "" {
				continue // its term ends
			}
			s.mail.loans.hear(ledger.SinkAck{Owner: events.RootOwner, Seq: l.Seq, Lease: l.Lease, Verb: verb, Answer: func() {
				if verb == ledger.AckTaken {
					c.sunk(l.Seq)
				}
			}})
		}
	}
}
