//go:build linux

package producers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

func TestM01_EveryRecordNamesItsSessionAndOwner(t *testing.T) {
	b := newBench(t)
	for _, owner := range []string{events.RootOwner, "/root/a"} {
		id := b.background("read x; echo x", func(r *Request) { r.Owner = owner })
		if err := b.Write(owner, id, Input{Data: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
		_, claim := b.collect(owner)
		claim.Delivered()
		b.acknowledged(id)
		kinds := map[events.Kind]bool{}
		for _, e := range b.of(id) {
			kinds[e.Kind()] = true
			if e.Session != b.ID() || e.Owner != owner || e.Subject != id {
				t.Errorf("%s of session %q, owner %q, execution %q", e.Kind(), e.Session, e.Owner, e.Subject)
			}
		}
		if len(kinds) != 8 { // requested, spawned, yielded, input, stdout, settled, posted, acknowledged
			t.Errorf("the events of %s: %v", owner, kinds)
		}
	}
}

// The policy is for commands, not for what they are told later.
func TestM05_InputIsNotHeldToThePolicy(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Deny = regexp.MustCompile("forbidden") })
	id := b.background("cat")
	if err := b.Write("", id, Input{Data: []byte("forbidden\n"), Close: true}); err != nil {
		t.Fatal(err)
	}
	if n := b.ended(id); n.out != "forbidden\n" {
		t.Errorf("stdout %q", n.out)
	}
	if res, err := b.Exec(t.Context(), request("echo forbidden")); err != nil || res.Outcome != Refused {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestM08_ObservingCopiesNoOutput(t *testing.T) {
	b := newBench(t)
	id := b.yields("echo once")
	b.ended(id)
	before := b.count(id, events.KindStdout)
	for range 3 {
		b.ended(id)
	}
	if after := b.count(id, events.KindStdout); after != before || before == 0 {
		t.Errorf("%d output events became %d", before, after)
	}
}

func TestM26_M27_M86_IdentityIsNotTheCommand(t *testing.T) {
	b := newBench(t)
	other, err := OpenSession(t.Context(), b.ledger, b.cfg, events.Opened{Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close(context.Background(), "over") }()
	ids := map[string]bool{}
	for _, s := range []*Session{b.Session, other, b.Session, other} {
		res, err := s.Exec(t.Context(), request("echo same"))
		if err != nil || res.Outcome != Settled {
			t.Fatalf("%+v, %v", res, err)
		}
		ids[res.Execution] = true
	}
	if len(ids) != 4 {
		t.Errorf("4 executions have the ids %v", ids)
	}
}

// M30 has the acknowledgement that comes later.
func TestM31_AcknowledgedBeforeTheCallReturns(t *testing.T) {
	b := newBench(t)
	post := b.mail.append
	b.mail.append = func(ctx context.Context, e events.Event, done func(events.Event, error)) error {
		acknowledged := make(chan struct{})
		err := post(ctx, e, func(ev events.Event, err error) {
			done(ev, err)
			close(acknowledged)
		})
		if err == nil {
			<-acknowledged
		}
		return err
	}
	id := b.yields("true")
	list, claim := b.collect("")
	claim.Delivered()
	b.acknowledged(id)
	b.none("")
	if len(list) != 1 || list[0].ID != id {
		t.Errorf("delivered: %+v", list)
	}
}

func TestM40_FailureTakesBackOnlyThatCompletion(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	g.fail = 1
	g.release()
	owned := func(r *Request) { r.Owner = "/root/a" }
	first, last := b.background("read x", owned), b.background("read x", owned)
	b.Answered("/root/a")
	b.end(first)
	b.end(last)
	got := map[string]int{}
	for len(got) < 2 {
		list, claim := b.collect("/root/a")
		claim.Delivered()
		for _, m := range list {
			got[m.ID]++
		}
	}
	b.none("/root/a")
	for _, id := range []string{first, last} {
		if got[id] != 1 || b.count(id, events.KindPosted) != 1 {
			t.Errorf("%s: delivered %d times, posted %d times", id, got[id], b.count(id, events.KindPosted))
		}
	}
}

func TestM46_M88_CompletionIsDurableWithoutAnotherCall(t *testing.T) {
	b := newBench(t)
	id := b.yields("true", func(r *Request) { r.Owner = "/root/a/nested" })
	if e := b.posted(id); e.Seq == 0 || e.Owner != "/root/a/nested" {
		t.Errorf("posted: %+v", e)
	}
}

func TestM47_MonitorsAreSupervisedLikeCommands(t *testing.T) {
	b := newBench(t, func(c *Config) { c.OutputLimit = 10_000 })
	if n := b.ended(b.background("yes", monitored)); n.Termination != events.TermOutputLimit || n.Offset != 10_000 {
		t.Errorf("%+v", n.Settled)
	}
	m := marker()
	id := b.background("echo ready; sleep "+m, monitored)
	b.prints(id, "ready")
	if err := b.Close(t.Context(), "done"); err != nil {
		t.Fatal(err)
	}
	gone(t, m)
}

// The ledger's host is another process, and may go: the command runs on, and
// its output is whole once somebody else hosts.
func TestM56_OutputOutlastsTheHost(t *testing.T) {
	dir := t.TempDir()
	host := newVictim(t, dir)
	b := newBenchIn(t, dir)
	id := b.background("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; read x; echo over")
	b.prints(id, "99\n")
	host.kill()
	b.end(id)
	n := b.ended(id)
	n.exits(t, events.StatusCompleted, 0, events.TermExited)
	var want strings.Builder
	for i := range 20000 {
		fmt.Fprintln(&want, i)
	}
	if want.WriteString("over\n"); n.out != want.String() {
		t.Errorf("%d bytes of output, not %d", len(n.out), want.Len())
	}
	if stored := b.stored(b.ID(), id); stored.out != n.out {
		t.Errorf("%d bytes are stored", len(stored.out))
	}
}

// Nothing starts whose record is not safe: what changes something never runs
// unknown.
func TestM128_NothingStartsUnrecorded(t *testing.T) {
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: t.TempDir(), FreeFloor: 1 << 62})
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenSession(t.Context(), l, DefaultConfig(), events.Opened{Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "ran")
	r := request("touch " + mark)
	r.SideEffects = []string{"MODIFIES_WORKSPACE_FILES"}
	refused := func(when string) {
		t.Helper()
		res, err := s.Exec(t.Context(), r)
		if err != nil || res.Outcome != Refused || res.Reason != "ledger" || res.Refusal == "" {
			t.Errorf("%s: %+v, %v", when, res, err)
		}
	}
	refused("without room")
	if err := errors.Join(s.Close(t.Context(), "over"), l.Close()); err != nil {
		t.Error(err)
	}
	if l, err = ledger.Open(t.Context(), ledger.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenSession(t.Context(), l, DefaultConfig(), events.Opened{Program: "test"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	refused("without a ledger")
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it ran: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Close(ctx, "its ledger is gone")
}

func TestM60_TheLaneIsReleasedAtTheYield(t *testing.T) {
	b := newBench(t)
	writes := func(r *Request) { r.SideEffects = []string{"MODIFIES_WORKSPACE_FILES"} }
	first := b.background("read x", writes)
	r := request("echo second")
	writes(&r)
	if n := b.run(r); n.out != "second\n" {
		t.Errorf("stdout %q", n.out)
	}
	if b.count(first, events.KindSettled) != 0 {
		t.Error("the first one has ended")
	}
}

// A command that yielded in the queue holds no lane when its turn comes.
func TestM60_WhatYieldedInTheQueueHoldsNoLane(t *testing.T) {
	b := newBench(t)
	b.lanes.held = time.Hour
	inside := b.lanes.enter(false)
	writes := func(r *Request) { r.SideEffects = []string{"MODIFIES_WORKSPACE_FILES"} }
	first, second := b.background("read x", writes), b.background("echo second", writes)
	inside.leave()
	if n := b.ended(second); n.out != "second\n" || b.count(first, events.KindQueued) != 1 || b.count(first, events.KindSettled) != 0 {
		t.Errorf("%+v", n)
	}
	b.end(first)
}

// However late a call yields, its command does not keep the others out for ever.
func TestM60_TheLaneIsReleasedInTime(t *testing.T) {
	b := newBench(t)
	b.lanes.held = 100 * time.Millisecond
	started, ended := make(chan string, 1), make(chan error, 1)
	first := request("read x")
	first.SideEffects, first.Started = []string{"MODIFIES_WORKSPACE_FILES"}, func(id string) { started <- id }
	go func() {
		_, err := b.Exec(context.Background(), first)
		ended <- err
	}()
	id := <-started
	b.until(id, func(e events.Event) bool { return e.Kind() == events.KindSpawned })
	second := request("echo second")
	second.SideEffects = first.SideEffects
	if n := b.run(second); n.out != "second\n" || b.count(id, events.KindSettled)+b.count(id, events.KindYielded) != 0 {
		t.Errorf("stdout %q, and the first one is over", n.out)
	}
	b.end(id)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestM100_TheShellIsASetting(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Shell = []string{"/bin/sh", "-e", "-c"} })
	n := b.run(request("false; echo not reached"))
	n.exits(t, events.StatusCompleted, 1, events.TermExited)
	if n.out != "" {
		t.Errorf("stdout %q", n.out)
	}
}

// M49, M50 and M51 have the ends that a call, a session or a crash causes.
func TestM102_TheEndIsAFact(t *testing.T) {
	b := newBench(t, func(c *Config) { c.OutputLimit = 1000 })
	short := request("sleep 600")
	short.Timeout = 100 * time.Millisecond
	stopped, owned := b.background("sleep 600"), b.background("sleep 600", func(r *Request) { r.Owner = "/root/a" })
	if _, err := b.Stop(t.Context(), "", stopped, StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.StopOwner(t.Context(), "/root/a"); err != nil {
		t.Fatal(err)
	}
	for want, id := range map[events.Termination]string{
		events.TermExited:       b.run(request("true")).id,
		events.TermSignal:       b.run(request("kill -9 $$")).id,
		events.TermTimedOut:     b.run(short).id,
		events.TermOutputLimit:  b.run(request("yes")).id,
		events.TermStopped:      stopped,
		events.TermOwnerStopped: owned,
	} {
		if n := checkRules(t, id, b.of(id)); n.Termination != want {
			t.Errorf("ended by %s, want %s", n.Termination, want)
		}
	}
}

func TestM104_NoTemporaryFilesAreLeft(t *testing.T) {
	state, tmp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	b := newBenchIn(t, state)
	b.run(request("seq 1 10000"))
	b.ended(b.yields("seq 1 10000"))
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestM106_TheOutputLimitHoldsAfterTheYield(t *testing.T) {
	b := newBench(t, func(c *Config) { c.OutputLimit = 10_000 })
	n := b.ended(b.yields("yes"))
	if n.Status != events.StatusFailed || n.Termination != events.TermOutputLimit || n.Offset != 10_000 {
		t.Errorf("%+v", n.Settled)
	}
}

func TestM113_InputIsRecordedByItsLength(t *testing.T) {
	b := newBench(t)
	id := b.background("read x; read y", func(r *Request) { r.Stdin = "swordfish\n" })
	if err := b.Write("", id, Input{Data: []byte("swordfish\n")}); err != nil {
		t.Fatal(err)
	}
	b.ended(id)
	counted := 0
	for _, e := range b.of(id) {
		switch body := e.Body.(type) {
		case events.Requested:
			counted += body.StdinBytes
		case events.Input:
			counted += body.Bytes
		}
		m, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(m.Data, []byte("swordfish")) {
			t.Errorf("%s holds the input: %s", e.Kind(), m.Data)
		}
	}
	if counted != 20 {
		t.Errorf("%d bytes of input are recorded", counted)
	}
}

// Here a second observer is welcome, and input disturbs neither.
func TestM131_SeveralMayWait(t *testing.T) {
	b := newBench(t)
	id := b.background("read x; echo $x")
	results := make(chan Result)
	for range 3 {
		go func() {
			res, err := b.Wait(context.Background(), "", id, patience)
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	for watching := 0; watching < 3; {
		b.mail.mu.Lock()
		watching = len(b.mail.watching[id])
		b.mail.mu.Unlock()
	}
	b.end(id)
	claims := 0
	for range 3 {
		res := <-results
		if res.Outcome != Settled {
			t.Errorf("%+v", res)
		}
		if res.Claim != nil {
			claims++
		}
		res.Claim.Delivered()
	}
	if claims != 1 {
		t.Errorf("%d observers claimed the end", claims)
	}
}

func TestM134_AnAbortedPollConsumesNothing(t *testing.T) {
	b := newBench(t)
	id := b.background("read x; echo hi")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := b.Wait(ctx, "", id, patience)
		failed <- err
	}()
	for watching := 0; watching == 0; {
		b.mail.mu.Lock()
		watching = len(b.mail.watching[id])
		b.mail.mu.Unlock()
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	b.end(id)
	list, claim := b.collect("")
	claim.Delivered()
	if len(list) != 1 || list[0].From != 0 || list[0].To != 3 || list[0].Redelivered {
		t.Errorf("delivered: %+v", list)
	}
}

func TestM145_M146_OutputIsBytes(t *testing.T) {
	b := newBench(t)
	if n := b.run(request(`printf '\303'; sleep 0.05; printf '\251'`)); n.out != "é" {
		t.Errorf("a character in two writes: %q", n.out)
	}
	if n := b.run(request(`printf '\377\376'`)); n.out != "\xff\xfe" || n.Stdout.Raw != 2 || n.Stdout.Bytes != 2 {
		t.Errorf("no UTF-8: %q, %+v", n.out, n.Stdout)
	}
}
