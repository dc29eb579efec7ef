//go:build unix

package producers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

func TestM72_ExecAnswersWithTheEnd(t *testing.T) {
	b := newBench(t)
	n := b.run(request("echo out; echo err >&2; exit 5"))
	n.exits(t, events.StatusCompleted, 5, events.TermExited)
	if n.out != "out\n" || n.err != "err\n" {
		t.Errorf("stdout %q, stderr %q", n.out, n.err)
	}
}

// A command that begins like an option is a command all the same.
func TestY10_CommandsAreNoOptions(t *testing.T) {
	b := newBench(t)
	for _, command := range []string{"-x; echo ran", "--help; echo ran", "+x; echo ran"} {
		if n := b.run(request(command)); n.out != "ran\n" {
			t.Errorf("%s: stdout %q, stderr %q", command, n.out, n.err)
		}
	}
}

// A resolver that panics keeps nothing from being settled: the end has its plain meaning.
func TestM138_ABadResolverBlocksNoSettlement(t *testing.T) {
	good := resolver
	t.Cleanup(func() { resolver = good })
	resolver = func(string, *int, events.Termination) events.Outcome { panic("bad resolver") }
	b := newBench(t)
	for command, want := range map[string]events.Outcome{
		"true": events.OutcomeSuccess, "grep x /dev/null": events.OutcomeFailure, "kill -KILL $$": events.OutcomeFailure,
	} {
		if n := b.run(request(command)); n.Outcome != want || n.Status != events.StatusCompleted {
			t.Errorf("%s: %s, %s; want %s", command, n.Status, n.Outcome, want)
		}
	}
}

func TestM114_ASignalIsNamed(t *testing.T) {
	b := newBench(t)
	n := b.run(request("kill -9 $$"))
	n.exits(t, events.StatusCompleted, -9, events.TermSignal)
	if n.Signal != "SIGKILL" {
		t.Errorf("signal %q", n.Signal)
	}
}

// A signal without a name of its own is named by its place among the real-time ones.
func TestY38_EverySignalIsNamed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the numbers are Linux's")
	}
	b := newBench(t)
	for number, name := range map[int]string{32: "SIG32", 34: "SIGRTMIN", 37: "SIGRTMIN+3", 64: "SIGRTMAX"} {
		b.run(request(fmt.Sprintf("kill -%d $$; sleep 600", number))).exits(t, events.StatusCompleted, -number, events.TermSignal)
		if s, ok := signalNamed(name); ok != (number >= firstRealtime) || ok && int(s) != number {
			t.Errorf("%s is %d", name, s)
		}
	}
}

func TestTheOrderOfEvents(t *testing.T) {
	b := newBench(t)
	n := b.run(request("echo x"))
	var kinds []string
	for _, e := range b.of(n.id) {
		kinds = append(kinds, string(e.Kind()))
	}
	if got := strings.Join(kinds, " "); got != "requested spawned stdout settled" {
		t.Errorf("events: %s", got)
	}
}

func TestExecYieldsAndWaitSeesTheEnd(t *testing.T) {
	b := newBench(t)
	r := request("read x; echo got:$x; exit 3")
	r.Yield = 0
	res, err := b.Exec(t.Context(), r)
	if err != nil || res.Outcome != Yielded {
		t.Fatalf("%+v, %v", res, err)
	}
	still, err := b.Wait(t.Context(), "", res.Execution, time.Millisecond)
	if err != nil || still.Outcome != Yielded {
		t.Fatalf("%+v, %v", still, err)
	}
	if err := b.Write("", res.Execution, Input{Data: []byte("go\n")}); err != nil {
		t.Fatal(err)
	}
	n := b.ended(res.Execution)
	n.exits(t, events.StatusCompleted, 3, events.TermExited)
	if n.out != "got:go\n" {
		t.Errorf("stdout %q", n.out)
	}
}

func TestM117_TheYieldBoundaryIsNeverStale(t *testing.T) {
	b := newBench(t)
	for range 50 {
		r := request("sleep 0.01")
		r.Yield = 10 * time.Millisecond
		res, err := b.Exec(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		yields := 0
		b.ended(res.Execution)
		for _, e := range b.of(res.Execution) {
			if e.Kind() == events.KindYielded {
				yields++
			}
		}
		if want := map[ResultKind]int{Settled: 0, Yielded: 1}[res.Outcome]; yields != want {
			t.Fatalf("answered %s with %d yields", res.Outcome, yields)
		}
	}
}

func TestFastExitsLoseNothing(t *testing.T) {
	b := newBench(t)
	for range 300 {
		n := b.run(request("head -c 24000 /dev/zero | tr '\\0' x"))
		if n.out != strings.Repeat("x", 24000) {
			t.Fatalf("%d bytes of 24000", len(n.out))
		}
	}
}

func TestTheTimeoutEndsTheCommand(t *testing.T) {
	b := newBench(t)
	r := request("echo early; sleep 600 | cat; true")
	r.Timeout = 300 * time.Millisecond
	n := b.run(r)
	if n.Status != events.StatusTimedOut || n.Termination != events.TermTimedOut || n.out != "early\n" {
		t.Errorf("%+v", n)
	}
}

func TestM49_ACancelledCallEndsItsCommand(t *testing.T) {
	b := newBench(t)
	m := marker()
	ctx, cancel := context.WithCancel(t.Context())
	r := request("echo ready; sleep " + m)
	failed, started := make(chan error, 1), make(chan string, 1)
	r.Started = func(id string) { started <- id }
	go func() {
		_, err := b.Exec(ctx, r)
		failed <- err
	}()
	id := <-started
	b.prints(id, "ready")
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	n := b.ended(id)
	if n.Status != events.StatusStopped || n.Termination != events.TermCancelled {
		t.Errorf("%+v", n)
	}
	gone(t, m)
}

func TestM04_AYieldedCommandOutlivesItsCall(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := request("read x; echo $x")
	r.Yield = 0
	res, err := b.Exec(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := b.Write("", res.Execution, Input{Data: []byte("alive\n")}); err != nil {
		t.Fatal(err)
	}
	b.ended(res.Execution).exits(t, events.StatusCompleted, 0, events.TermExited)
}

func TestM54_M57_TheOutputLimitEndsTheCommand(t *testing.T) {
	b := newBench(t, func(c *Config) { c.OutputLimit = 100_000 })
	n := b.run(request("yes"))
	if n.Status != events.StatusFailed || n.Termination != events.TermOutputLimit || n.Offset != 100_000 {
		t.Errorf("%+v", n.Settled)
	}
	n = b.run(request("head -c 100000 /dev/zero"))
	n.exits(t, events.StatusCompleted, 0, events.TermExited)
	n = b.run(request("head -c 100001 /dev/zero"))
	if n.Status != events.StatusFailed || n.Offset != 100_000 || n.Stdout.Raw != 100_001 {
		t.Errorf("one byte over: %+v", n.Settled)
	}
}

func TestLargeOutputKeepsItsBytes(t *testing.T) {
	b := newBench(t)
	n := b.run(request("seq 1 2000000"))
	n.exits(t, events.StatusCompleted, 0, events.TermExited)
	if n.Offset != 14888896 || !strings.HasSuffix(n.out, "\n2000000\n") {
		t.Errorf("%d bytes", n.Offset)
	}
}

func TestASpawnThatFailsIsRefused(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Shell = []string{"/nonexistent/shell", "-c"} })
	res, err := b.Exec(t.Context(), request("true"))
	if err != nil || res.Outcome != Refused || res.Reason != "spawn" {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := b.Wait(t.Context(), "", res.Execution, 0); !errors.Is(err, ErrUnknown) {
		t.Errorf("a refused execution has a handle: %v", err)
	}
}

// Who was given a handle while the command waited for its turn is told that it
// could not start.
func TestAHandleWhoseCommandCannotStartHasAnEnd(t *testing.T) {
	b := newBench(t)
	b.lanes.held = time.Hour
	for name, change := range map[string]func(*Request){"exec": func(*Request) {}, "monitor": monitored} {
		turn := request("read x")
		turn.SideEffects = []string{"OTHER"}
		began, over := make(chan string, 1), make(chan error, 1)
		turn.Started = func(id string) { began <- id }
		go func() { _, err := b.Exec(context.Background(), turn); over <- err }()
		first := <-began
		b.until(first, func(e events.Event) bool { return e.Kind() == events.KindSpawned })
		soon := t.TempDir()
		id := b.background("true", change, func(r *Request) { r.SideEffects, r.Cwd = turn.SideEffects, soon })
		err := errors.Join(os.Remove(soon), b.Write("", first, Input{Close: true}), <-over)
		if err != nil {
			t.Fatal(err)
		}
		mail, claim := b.collect("")
		if len(mail) != 1 || mail[0].Execution != id || !strings.Contains(mail[0].Notice, " failed (could not start)") {
			t.Errorf("%s: %+v", name, mail)
		}
		claim.Delivered()
		n := b.ended(id)
		if n.Status != events.StatusFailed || n.Termination != events.TermSpawnFailed || n.ExitCode != nil || !strings.Contains(n.Error, "no such file") {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

func TestM02_OwnersDoNotSeeEachOther(t *testing.T) {
	b := newBench(t)
	id := b.background("sleep 600", func(r *Request) { r.Owner = "/root/a" })
	_, err := b.Wait(t.Context(), "/root/b", id, 0)
	if err == nil || err.Error() != "Unknown process_id: "+id {
		t.Errorf("error %v", err)
	}
	if _, err := b.StopOwner(t.Context(), "/root/a"); err != nil {
		t.Fatal(err)
	}
	res, err := b.Wait(t.Context(), "/root/a", id, 0)
	if err != nil || res.Outcome != Settled {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestCleanupForgetsTheEnded(t *testing.T) {
	b := newBench(t)
	over, live := b.run(request("true")).id, b.background("sleep 600")
	if n, err := b.Cleanup(t.Context(), "", time.Hour, time.Hour); n != 0 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if n, err := b.Cleanup(t.Context(), "", 0, 0); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, err := b.Wait(t.Context(), "", over, 0); !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v", err)
	}
	if _, err := b.Wait(t.Context(), "", live, 0); err != nil {
		t.Error(err)
	}
}

func TestM50_CloseEndsEverything(t *testing.T) {
	b := newBench(t)
	m := marker()
	writes := func(r *Request) { r.SideEffects, r.Yield = []string{"MODIFIES_WORKSPACE_FILES"}, patience }
	ran := filepath.Join(t.TempDir(), "ran")
	id := b.background("trap '' TERM; echo ready; sleep " + m + "; sleep " + m)
	b.prints(id, "ready")
	called := make(chan error)
	for _, command := range []string{"sleep " + m, "touch " + ran} { // the second one waits for its turn
		started := make(chan string, 1)
		r := request(command)
		writes(&r)
		r.Started = func(id string) { started <- id }
		go func() {
			_, err := b.Exec(context.Background(), r)
			called <- err
		}()
		queued := <-started
		b.until(queued, func(e events.Event) bool {
			return e.Kind() == events.KindSpawned || e.Kind() == events.KindQueued
		})
	}
	if err := b.Close(t.Context(), "done"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-called; err != nil {
			t.Errorf("a call at the end: %v", err)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a queued command ran at the end of its session")
	}
	n := checkRules(t, id, b.of(id))
	if n.Status != events.StatusStopped || n.Termination != events.TermSessionEnded {
		t.Errorf("%+v", n.Settled)
	}
	gone(t, m)
	if b.count(id, events.KindPosted) != 0 {
		t.Error("the end of a session is news to whom it served")
	}
	if _, err := b.Exec(t.Context(), request("true")); !errors.Is(err, ErrClosed) {
		t.Errorf("exec after close: %v", err)
	}
}

func TestExecutionsDoNotMix(t *testing.T) {
	b := newBench(t)
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			letter := string(rune('a' + i%26))
			r := request("head -c 300000 /dev/zero | tr '\\0' " + letter + "; exit " + strconv.Itoa(i))
			res, err := b.Exec(t.Context(), r)
			if err != nil || res.Outcome != Settled {
				t.Errorf("%+v, %v", res, err)
				return
			}
			n := checkRules(t, res.Execution, b.of(res.Execution))
			if n.out != strings.Repeat(letter, 300000) || *n.ExitCode != i {
				t.Errorf("execution %d: %d bytes, exit %d", i, len(n.out), *n.ExitCode)
			}
		})
	}
	all.Wait()
}

func TestM125_TheLimitOfProcessesIsExact(t *testing.T) {
	b := newBench(t, func(c *Config) { c.MaxProcesses = 5 })
	results := make(chan Result, 20)
	for range 20 {
		go func() {
			r := request("sleep 600")
			r.Yield = 0
			res, err := b.Exec(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	started := 0
	for range 20 {
		if res := <-results; res.Outcome == Yielded {
			started++
		} else if res.Outcome != Refused || res.Reason != "limit" {
			t.Errorf("%+v", res)
		}
	}
	if started != 5 {
		t.Errorf("%d started", started)
	}
}

func TestM115_WritersTakeTurnsAndQueuedOnesCanBeStopped(t *testing.T) {
	b := newBench(t)
	b.lanes.held = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	writer := func(command string, yield time.Duration) (Result, error) {
		r := request(command)
		r.SideEffects, r.Yield = []string{"MODIFIES_WORKSPACE_FILES"}, yield
		return b.Exec(t.Context(), r)
	}
	dir := t.TempDir()
	first := make(chan Result, 1)
	go func() {
		res, err := writer("echo >"+dir+"/first; until [ -e "+dir+"/go ]; do sleep 0.01; done", patience)
		if err != nil {
			t.Error(err)
		}
		first <- res
	}()
	awaitFile(t, dir+"/first")
	second, err := writer("echo >"+dir+"/second", 0)
	if err != nil || second.Outcome != Queued {
		t.Fatalf("%+v, %v", second, err)
	}
	third, err := writer("echo ran", 0)
	if err != nil || third.Outcome != Queued {
		t.Fatalf("%+v, %v", third, err)
	}
	if _, err := b.Stop(ctx, "", second.Execution, StopOptions{}); err != nil { // it waits for no turn
		t.Fatal(err)
	}
	if n := b.ended(second.Execution); n.Status != events.StatusStopped || n.ExitCode != nil {
		t.Errorf("%+v", n.Settled)
	}
	if err := os.WriteFile(dir+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.ended((<-first).Execution).exits(t, events.StatusCompleted, 0, events.TermExited)
	if n := b.ended(third.Execution); n.out != "ran\n" {
		t.Errorf("%+v", n)
	}
	if _, err := os.Stat(dir + "/second"); err == nil {
		t.Error("a queued command ran after it was stopped")
	}
}

// What is stopped as it queues up is not said to queue after it was said to stop.
func TestM115_AStopFollowsTheQueue(t *testing.T) {
	b := newBench(t)
	inside := b.lanes.enter(false)
	defer inside.leave()
	var stops sync.WaitGroup
	for range 300 {
		r := request("echo ran")
		r.SideEffects, r.Yield = []string{"MODIFIES_WORKSPACE_FILES"}, patience
		r.Started = func(id string) {
			stops.Go(func() {
				if _, err := b.Stop(context.Background(), "", id, StopOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		res, err := b.Exec(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		stopping := false
		for _, e := range b.of(res.Execution) {
			stopping = stopping || e.Kind() == events.KindStopping
			if stopping && e.Kind() == events.KindQueued {
				t.Fatal("it was queued while it stopped")
			}
		}
	}
	stops.Wait()
}

// An owner ends with what it has asked for, also with what is still being judged.
func TestM124_AnOwnerThatEndedStartsNothing(t *testing.T) {
	b := newBench(t)
	begin := func(owner string) func() *execution {
		r := request("echo ran")
		r.Owner = owner
		place, err := b.reserve(owner)
		if err != nil {
			t.Fatal(err)
		}
		ticket := b.lanes.draw()
		ticket.decide(true)
		e, no := b.judge(t.Context(), r, ticket, place.before)
		if no != nil {
			t.Fatal(no)
		}
		return func() *execution {
			b.settleIn(place, e)
			e.launch(r, place.ended)
			<-e.done
			return e
		}
	}
	theirs, mine := begin("/root/a"), begin("/root/b")
	if _, err := b.StopOwner(t.Context(), "/root/a"); err != nil {
		t.Fatal(err)
	}
	e := theirs()
	if s := e.settlement(); s.Termination != events.TermOwnerStopped || b.count(e.id, events.KindSpawned) != 0 {
		t.Errorf("the owner's execution: %+v", s)
	}
	for _, e := range []*execution{mine(), begin("/root/a")()} {
		if s := e.settlement(); s.Termination != events.TermExited || s.Offset != 4 {
			t.Errorf("another's, or a later one: %+v", s)
		}
	}
}

func TestACommandThatIsTooLongIsRefusedByName(t *testing.T) {
	b := newBench(t)
	res, err := b.Exec(t.Context(), request(": "+strings.Repeat("x", 140_000)))
	if err != nil || res.Outcome != Refused || !strings.Contains(res.Refusal, "128 KiB") {
		t.Errorf("%+v, %v", res, err)
	}
}

// Who reads of a request in the ledger may ask for the command at once, also
// where its call is given up before it knows that it was recorded.
func TestARequestOnRecordCanBeFound(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	returned, waited := make(chan error, 1), make(chan Result, 1)
	defer b.ledger.Tap(func(e events.Event) {
		if e.Kind() != events.KindRequested {
			return
		}
		if _, err := b.find("", e.Subject); err != nil {
			t.Error(err)
		}
		go func() {
			res, err := b.Wait(context.Background(), "", e.Subject, patience)
			if err != nil {
				t.Error(err)
			}
			waited <- res
		}()
		cancel() // before its append returns
		select {
		case err := <-returned:
			returned <- err
		case <-time.After(recordMost / 2):
			t.Error("the call waits for the ledger")
		}
	})()
	go func() { _, err := b.Exec(ctx, request("sleep 600")); returned <- err }()
	res := <-waited
	if res.Outcome != Refused || res.Reason != "cancelled" || res.Seq == 0 {
		t.Errorf("%+v", res)
	}
	if err := <-returned; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var kinds []events.Kind
	for _, e := range b.of(res.Execution) {
		kinds = append(kinds, e.Kind())
	}
	if !slices.Equal(kinds, []events.Kind{events.KindRequested, events.KindRefused}) {
		t.Errorf("%v", kinds)
	}
	if _, err := b.find("", res.Execution); !errors.Is(err, ErrUnknown) {
		t.Errorf("it is still known: %v", err)
	}
}
