//go:build linux

package producers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

func TestM28_ForegroundCompletionLeavesNoMail(t *testing.T) {
	b := newBench(t)
	n := b.run(request("echo hi"))
	b.none("")
	if b.count(n.id, events.KindPosted) != 0 {
		t.Error("a completion that answered its own call was posted")
	}
}

func TestM30_CompletionReachesTheMailboxOnce(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	g.release()
	id := b.yields("echo hi; exit 3", func(r *Request) { r.Name = "Run tests" })
	list, claim := b.collect("")
	claim.Delivered()
	claim.Restore(true) // too late: nothing happens
	if len(list) != 1 || list[0].ID != id || list[0].Execution != id || list[0].To != 3 || list[0].Redelivered ||
		list[0].Notice != `● Background command "Run tests" failed (exit code 3)` {
		t.Errorf("got %+v", list)
	}
	if a := b.acknowledged(id); a.By != "mailbox" || a.Redelivered || a.Offered.IsZero() {
		t.Errorf("acknowledged: %+v", a)
	}
	b.none("")
	if g.called[id] != 1 || b.count(id, events.KindPosted) != 1 {
		t.Errorf("%d callbacks, %d records", g.called[id], b.count(id, events.KindPosted))
	}
}

func TestM32_CleanupSparesWhatIsPending(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	id := b.yields("true")
	b.settles(id)
	<-g.asked
	if n, err := b.Cleanup(t.Context(), "", 0, 0); n != 0 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	g.release()
	b.posted(id)
	list, claim := b.collect("")
	claim.Delivered()
	if n, err := b.Cleanup(t.Context(), "", 0, 0); n != 1 || err != nil || len(list) != 1 {
		t.Errorf("removed %d, %v; unread were %+v", n, err, list)
	}
}

func TestM33_PollDoesNotClaimWhatIsPending(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	id := b.yields("echo hi")
	b.settles(id)
	<-g.asked
	res, err := b.Wait(t.Context(), "", id, patience)
	if err != nil || res.Outcome != Settled || res.Claim != nil {
		t.Fatalf("the poll: %+v, %v", res, err)
	}
	if c := b.Observed("", id, "read"); c != nil {
		t.Fatal("a read claimed what is pending")
	}
	b.none("")
	g.release()
	list, claim := b.collect("")
	claim.Delivered()
	if b.acknowledged(id); len(list) != 1 || list[0].Redelivered {
		t.Errorf("delivered: %+v", list)
	}
}

func TestM35_DeliveryIsInOrder(t *testing.T) {
	b := newBench(t)
	heard := make(chan Mail, 1)
	defer b.Mailed(func(m Mail) { heard <- m })()
	id := b.yields("true")
	if m := <-heard; m.ID != id || m.Seq == 0 {
		t.Errorf("told of %+v", m)
	}
	_, claim := b.collect("")
	claim.Delivered()
	b.acknowledged(id)
	var kinds []events.Kind
	for _, e := range b.of(id) {
		if k := e.Kind(); k == events.KindSettled || e.Class() == events.ClassMailbox {
			kinds = append(kinds, k)
		}
	}
	if fmt.Sprint(kinds) != "[settled posted acknowledged]" {
		t.Errorf("in the order %v", kinds)
	}
}

func TestM36_FailureRestoresTheRecord(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	g.fail = 1
	g.release()
	id := b.yields("true")
	if first, second := <-g.asked, <-g.asked; first != id || second != id {
		t.Errorf("handed over: %s, then %s", first, second)
	}
	list, claim := b.collect("")
	if len(list) != 1 || b.count(id, events.KindPosted) != 1 {
		t.Errorf("unread: %+v", list)
	}
	claim.Restore(false) // its answer was not written
	again, claim := b.collect("")
	claim.Restore(true) // it may have been, in part
	third, claim := b.collect("")
	claim.Delivered()
	if again[0].Redelivered || !third[0].Redelivered || !b.acknowledged(id).Redelivered {
		t.Errorf("redelivered: %v, then %v", again[0].Redelivered, third[0].Redelivered)
	}
}

func TestM39_M38_AnsweredOwnerGetsItsCompletionsTogether(t *testing.T) {
	b := newBench(t)
	first := b.background("read x", func(r *Request) { r.Owner = "/root/a" })
	last := b.background("read x", func(r *Request) { r.Owner = "/root/a" })
	b.Answered("/root/a")
	b.end(first)
	b.posted(first)
	b.none("/root/a")
	b.end(last)
	b.posted(last)
	e, err := b.find("/root/a", last)
	if err != nil {
		t.Fatal(err)
	}
	<-e.done
	b.over.Wait()
	b.delivers("/root/a", first, last)
}

// What is held back is free once the last record is durable, not before.
func TestM39_TheLastRecordIsWaitedFor(t *testing.T) {
	b := newBench(t)
	owned := func(r *Request) { r.Owner = "/root/a" }
	first, last := b.background("read x", owned), b.background("read x", owned)
	b.Answered("/root/a")
	b.end(first)
	b.posted(first)
	g := newGate(b)
	b.end(last)
	<-g.asked
	b.over.Wait()
	b.none("/root/a")
	g.release()
	b.delivers("/root/a", first, last)
}

// A record that is secured while the session closes wakes nobody.
func TestM37_NoWakeIsOfferedOnceTheSessionStops(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	b.Mailed(func(m Mail) { t.Errorf("told of %+v", m) })
	id := b.yields("true")
	b.settles(id)
	<-g.asked
	b.mail.hush() // as Close does first
	g.release()
	b.posted(id)
	b.lands(id)
	b.mail.mu.Lock()
	defer b.mail.mu.Unlock()
	if b.mail.letters[id].announced {
		t.Error("listeners are told at the end of the session")
	}
}

func TestM43_TeardownMakesLateAcknowledgementsInert(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	told := b.yields("true")
	b.settles(told)
	<-g.asked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Close(ctx, "test"); err != nil {
		t.Fatal(err)
	}
	heard := false
	b.Mailed(func(Mail) { heard = true })
	g.mu.Lock()
	send := g.held[0]
	g.mu.Unlock()
	send() // the ledger would take it; the session has ended
	b.posted(told)
	b.mail.mu.Lock()
	durable := b.mail.letters[told].durable
	b.mail.mu.Unlock()
	if durable || heard {
		t.Error("a late acknowledgement had an effect")
	}
}

func TestM77_ReadResultIsNotDeliveredAgain(t *testing.T) {
	b := newBench(t)
	id := b.yields("echo hi")
	b.posted(id)
	b.settles(id)
	var claim *Claim
	for claim == nil { // the callback follows the event
		claim = b.Observed("", id, "read")
	}
	if b.Observed("/root/other", id, "read") != nil || b.Observed("", id, "read") != nil {
		t.Error("claimed twice")
	}
	b.none("")
	claim.Delivered()
	if a := b.acknowledged(id); a.By != "read" {
		t.Errorf("acknowledged: %+v", a)
	}
}

func TestM118_RepeatedPollsAreIdempotent(t *testing.T) {
	b := newBench(t)
	id := b.yields("echo hi")
	for range 10 {
		res, err := b.Wait(t.Context(), "", id, patience)
		if err != nil || res.Outcome != Settled {
			t.Fatalf("%+v, %v", res, err)
		}
		res.Claim.Delivered()
	}
	if n := b.count(id, events.KindSettled); n != 1 {
		t.Errorf("%d settlements", n)
	}
}

func TestM127_EndingAnOwnerKeepsItsRecords(t *testing.T) {
	b := newBench(t)
	mine := b.yields("true", func(r *Request) { r.Owner = "/root/a" })
	b.posted(mine)
	stopped := b.background("sleep 600", func(r *Request) { r.Owner = "/root/a" })
	other := b.background("sleep 600")
	ids, err := b.StopOwner(t.Context(), "/root/a")
	if err != nil || len(ids) != 1 || ids[0] != stopped {
		t.Fatalf("stopped %v, %v", ids, err)
	}
	b.posted(stopped)
	var list []Mail
	for len(list) < 2 {
		more, claim := b.collect("/root/a")
		claim.Delivered()
		list = append(list, more...)
	}
	if list[0].ID != mine || !list[0].Unasked || list[1].ID != stopped || list[1].Unasked {
		t.Errorf("kept: %+v", list)
	}
	if e, err := b.find("", other); err != nil || e.isOver() {
		t.Error("another owner's execution ended, too")
	}
}

func TestM142_WaitingObserverWins(t *testing.T) {
	b := newBench(t)
	id := b.background("read x")
	results := make(chan Result)
	go func() {
		res, _ := b.Wait(context.Background(), "", id, patience)
		results <- res
	}()
	for watching := 0; watching == 0; {
		b.mail.mu.Lock()
		watching = len(b.mail.watching[id])
		b.mail.mu.Unlock()
	}
	b.end(id)
	res := <-results
	if res.Claim == nil {
		t.Fatal("the waiting observer did not win")
	}
	b.none("")
	b.posted(id)
	b.none("")
	res.Claim.Delivered()
	if a := b.acknowledged(id); a.By != "wait" {
		t.Errorf("acknowledged: %+v", a)
	}
	b.none("")
}

// Who waits when the end comes goes first, however long it takes to say so; the
// record is the mailbox's once all of them gave it up.
func TestM142_OpenObserversGoFirst(t *testing.T) {
	b := newBench(t)
	for _, claims := range []bool{true, false} {
		id := b.background("read x")
		one, two := b.mail.observe(id), b.mail.observe(id)
		heard := make(chan Mail, 1)
		remove := b.Mailed(func(m Mail) { heard <- m })
		b.end(id)
		b.posted(id)
		b.settles(id)
		b.lands(id)
		if b.none(""); b.Observed("", id, "read") != nil || len(b.Unread("")) != 0 {
			t.Error("claimed before those who waited")
		}
		one.leave()
		b.none("")
		if claims {
			two.claim("wait").Delivered()
			if a := b.acknowledged(id); a.By != "wait" || len(heard) != 0 {
				t.Errorf("acknowledged: %+v; %d were told", a, len(heard))
			}
		} else {
			two.leave()
			if m := <-heard; m.ID != id {
				t.Errorf("told of %+v", m)
			}
			list, claim := b.collect("")
			if claim.Delivered(); len(list) != 1 || list[0].ID != id || list[0].Redelivered {
				t.Errorf("delivered: %+v", list)
			}
		}
		remove()
	}
}

func TestM143_RejectedDeliveryLeavesTheHandle(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	g.fail = 3
	id := b.yields("echo hi")
	b.settles(id)
	<-g.asked
	if res, err := b.Wait(t.Context(), "", id, patience); err != nil || res.Outcome != Settled {
		t.Errorf("%+v, %v", res, err)
	}
	g.release()
	_, claim := b.collect("")
	claim.Delivered()
	b.acknowledged(id)
}

func TestM87_ProducerDoesNotWaitForTheMail(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	for range 20 { // none of them is acknowledged
		b.settles(b.yields("true"))
	}
	b.run(request("true"))
	g.release()
	for got := 0; got < 20; {
		list, claim := b.collect("")
		claim.Delivered()
		got += len(list)
	}
}

// A listener that never returns keeps nobody from the record.
func TestM37_M41_FailingListenerUndoesNothing(t *testing.T) {
	b := newBench(t)
	stuck := make(chan struct{})
	defer close(stuck)
	heard := make(chan struct{}, 1)
	b.Mailed(func(Mail) { heard <- struct{}{}; <-stuck })
	id := b.yields("true")
	<-heard
	list, claim := b.collect("")
	claim.Delivered()
	if b.acknowledged(id); len(list) != 1 {
		t.Errorf("delivered: %+v", list)
	}
}

func TestM42_EndedOwnersExecutionStaysUntilItsMailIsSafe(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	id := b.background("echo hi; sleep 600", func(r *Request) { r.Owner = "/root/a" })
	if _, err := b.StopOwner(t.Context(), "/root/a"); err != nil {
		t.Fatal(err)
	}
	<-g.asked
	if n, err := b.Cleanup(t.Context(), "/root/a", 0, 0); n != 0 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if res, err := b.Wait(t.Context(), "/root/a", id, patience); err != nil || res.Outcome != Settled || res.Claim != nil {
		t.Errorf("the poll: %+v, %v", res, err)
	}
	g.release()
	list, claim := b.collect("/root/a")
	claim.Delivered()
	if len(list) != 1 || list[0].ID != id {
		t.Errorf("delivered: %+v", list)
	}
}

func TestM79_RestartNeverWakes(t *testing.T) {
	dir := t.TempDir()
	first := newBenchIn(t, dir)
	first.posted(first.yields("true"))
	closeBench(t, first)
	b := newBenchIn(t, dir)
	heard := make(chan Mail, 10)
	b.Mailed(func(m Mail) { heard <- m })
	_, claim := b.collect("")
	claim.Restore(true)
	_, claim = b.collect("")
	claim.Delivered()
	id := b.yields("true")
	if m := <-heard; m.ID != id {
		t.Errorf("told of %+v", m)
	}
}

func TestM139_CopiesAreIsolated(t *testing.T) {
	b := newBench(t)
	b.mail.mu.Lock()
	b.mail.letters["x"] = &letter{durable: true, mail: Mail{ID: "x", Session: b.ID(), Owner: events.RootOwner, Posted: resumed([]string{"one"})}}
	b.mail.order = append(b.mail.order, b.mail.letters["x"])
	b.mail.mu.Unlock()
	b.Unread("")[0].Executions[0] = "changed"
	list, claim := b.collect("")
	defer claim.Restore(false)
	if list[0].Executions[0] != "one" {
		t.Errorf("a reader changed the record: %v", list[0].Executions)
	}
}

func TestM144_LostExecutionsAreListed(t *testing.T) {
	dir := t.TempDir()
	v := newVictim(t, dir)
	lost := v.run("echo here; sleep " + marker())
	v.kill()
	for range 2 { // it stays until it was told of
		b := newBenchIn(t, dir)
		list, claim := b.collect("")
		if len(list) != 1 || list[0].Mail != events.MailResumed || list[0].Session != v.session ||
			fmt.Sprint(list[0].Executions) != fmt.Sprint([]string{lost}) || list[0].Redelivered {
			t.Fatalf("the mail: %+v", list)
		}
		claim.Restore(false)
		closeBench(t, b)
	}
	b := newBenchIn(t, dir)
	_, claim := b.collect("")
	claim.Delivered()
	closeBench(t, b)
	last := newBenchIn(t, dir)
	last.none("")
	n := 0
	for e, err := range last.ledger.Read(t.Context(), events.Filter{Class: events.ClassMailbox}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; e.Session != v.session {
			t.Errorf("%s of session %s", e.Kind(), e.Session)
		}
	}
	if n != 2 {
		t.Errorf("%d mailbox events", n)
	}
}

// What a session leaves is for the client that it had, in whatever version.
func TestEarlierMailIsForTheSameClient(t *testing.T) {
	dir := t.TempDir()
	first := newBenchAs(t, dir, events.Opened{Program: "test", Client: "one 1.0"})
	id := first.yields("true")
	first.posted(id)
	closeBench(t, first)
	other := newBenchAs(t, dir, events.Opened{Program: "test", Client: "other 1.0"})
	other.none("")
	closeBench(t, other)
	b := newBenchAs(t, dir, events.Opened{Program: "test", Client: "one 1.1"})
	list, claim := b.collect("")
	claim.Delivered()
	if len(list) != 1 || list[0].ID != id || list[0].Session != first.ID() {
		t.Errorf("left: %+v", list)
	}
}

// What a session leaves is told of by one process at a time.
func TestEarlierMailIsToldOfOnce(t *testing.T) {
	dir := t.TempDir()
	first := newBenchIn(t, dir)
	id := first.yields("true")
	first.posted(id)
	closeBench(t, first)
	b := newBenchIn(t, dir)
	list, claim := b.collect("")
	if len(list) != 1 || list[0].ID != id || list[0].Session != first.ID() || list[0].Redelivered {
		t.Fatalf("left: %+v", list)
	}
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	other, err := OpenSession(t.Context(), l, DefaultConfig(), events.Opened{Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background(), "test") }()
	if list, _, _, err := other.Collect(t.Context(), "", 10, 0); len(list) > 0 || err != nil {
		t.Errorf("told of twice: %+v, %v", list, err)
	}
	claim.Delivered()
	b.acknowledged(id)
	if list, _, _, err := other.Collect(t.Context(), "", 10, 10*time.Millisecond); len(list) > 0 || err != nil {
		t.Errorf("told of again: %+v, %v", list, err)
	}
}
