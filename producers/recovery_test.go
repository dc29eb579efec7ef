//go:build linux

package producers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// victimVar makes the test program a server on the ledger that it names: it runs
// each line of its input, and says which execution that is, once the first
// output is recorded if the line speaks of "echo".
const victimVar = "PRODUCERS_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVar); dir != "" {
		if err := beVictim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beVictim(dir string) error {
	ctx := context.Background()
	l, err := ledger.Open(ctx, ledger.Options{Dir: dir})
	if err != nil {
		return err
	}
	cfg := DefaultConfig()
	cfg.AllowBackground = true
	s, err := OpenSession(ctx, l, cfg, events.Opened{Program: "test"})
	if err != nil {
		return err
	}
	said := make(chan struct{}, 1)
	l.Tap(func(e events.Event) {
		if e.Class() == events.ClassOutput {
			select {
			case said <- struct{}{}:
			default: // a storm: nobody asks
			}
		}
	})
	fmt.Fprintln(os.Stdout, s.ID())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if m, ok := strings.CutPrefix(lines.Text(), "storm "); ok {
			storm(ctx, s, m)
		}
		if lines.Text() == "tell" {
			tellAll(ctx, s)
		}
		res, err := s.Exec(ctx, Request{Command: lines.Text(), SideEffects: []string{"NONE"}})
		if err != nil {
			return err
		}
		if strings.Contains(lines.Text(), "echo") {
			<-said
		}
		fmt.Fprintln(os.Stdout, res.Execution)
	}
	return s.Close(ctx, "end of input")
}

// A victim is a server in a process of its own.
type victim struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      *os.File
	out     *bufio.Scanner
	session string
	last    []string // what it had said and nobody had read when it was killed
}

func newVictim(t *testing.T, dir string) *victim {
	t.Helper()
	v := &victim{t: t, cmd: exec.Command(os.Args[0])}
	v.cmd.Env = append(os.Environ(), victimVar+"="+dir)
	v.cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	v.cmd.Stdin, v.in = r, w
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	v.out = bufio.NewScanner(out)
	v.session = v.line()
	return v
}

func (v *victim) line() string {
	v.t.Helper()
	if !v.out.Scan() {
		v.t.Fatalf("the server says nothing: %v", v.out.Err())
	}
	return v.out.Text()
}

func (v *victim) run(command string) string {
	v.t.Helper()
	if _, err := fmt.Fprintln(v.in, command); err != nil {
		v.t.Fatal(err)
	}
	return v.line()
}

func (v *victim) kill() {
	v.t.Helper()
	if err := v.cmd.Process.Kill(); err != nil {
		v.t.Fatal(err)
	}
	for v.out.Scan() { // Wait closes the pipe
		v.last = append(v.last, v.out.Text())
	}
	_ = v.cmd.Wait()
	_ = v.in.Close()
}

// lifecycle is the lifecycle events of an execution or session.
func lifecycle(t testing.TB, l *ledger.Ledger, f events.Filter) []events.Event {
	t.Helper()
	var es []events.Event
	for e, err := range l.Read(t.Context(), f, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, e)
	}
	return es
}

func TestM51_ADeadSessionIsDeclaredLostOnce(t *testing.T) {
	dir, m := t.TempDir(), marker()
	v := newVictim(t, dir)
	ready := dir + "/ready"
	over := v.run("true")
	id := v.run("echo before; setsid sh -c 'trap \"\" TERM; : >" + ready + "; sleep " + m + "; sleep " + m + "' & sleep " + m)
	awaitFile(t, ready)
	v.kill()
	if len(living(m)) == 0 {
		t.Log("the processes were gone before anybody ended them")
	}

	b := newBenchIn(t, dir)
	gone(t, m)
	n := b.stored(v.session, id)
	if n.Status != events.StatusLost || n.Termination != events.TermLost || n.ExitCode != nil || n.Error == "" || n.out != "before\n" {
		t.Errorf("%+v", n)
	}
	if n := b.stored(v.session, over); n.Status == events.StatusRunning {
		t.Errorf("%+v", n.Settled)
	}
	ends := lifecycle(t, b.ledger, events.Filter{Session: v.session, Class: events.ClassSession})
	if last := ends[len(ends)-1]; last.Kind() != events.KindLost || last.Body.(events.Lost).By != b.ID() {
		t.Errorf("the session ends with %+v", last)
	}
	second, err := OpenSession(t.Context(), b.ledger, b.cfg, events.Opened{Program: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close(context.Background(), "over") }()
	if again := lifecycle(t, b.ledger, events.Filter{Session: v.session, Class: events.ClassSession}); len(again) != len(ends) {
		t.Errorf("%d session events became %d", len(ends), len(again))
	}
}

// stored is an execution as the ledger holds it.
func (b *bench) stored(session, id string) ended {
	b.t.Helper()
	es := lifecycle(b.t, b.ledger, events.Filter{Session: session, Class: events.ClassExecution, ID: id})
	end := es[len(es)-1]
	es = es[:len(es)-1]
	for e, err := range b.ledger.Output(b.t.Context(), session, id, 0, -1) {
		if err != nil {
			b.t.Fatal(err)
		}
		es = append(es, e)
	}
	return checkRules(b.t, id, append(es, end))
}

func TestM51b_ALiveSessionIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	v := newVictim(t, dir)
	id := v.run("sleep 600")
	b := newBenchIn(t, dir)
	for _, e := range lifecycle(t, b.ledger, events.Filter{Session: v.session}) {
		if e.Kind() == events.KindLost || e.Kind() == events.KindSettled {
			t.Errorf("a live session has %+v", e)
		}
	}
	res, err := AskStop(t.Context(), b.ledger, v.session, id, StopOptions{})
	if err != nil || !res.Stopped || res.Status != events.StatusStopped {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := AskStop(t.Context(), b.ledger, v.session, id, StopOptions{}); !errors.Is(err, ErrEnded) {
		t.Errorf("stopping twice: %v", err)
	}
	if _, err := AskStop(t.Context(), b.ledger, v.session, "nope", StopOptions{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("stopping an unknown one: %v", err)
	}
	if n := b.stored(v.session, id); !strings.HasPrefix(n.Signal, "SIG") {
		t.Errorf("%+v", n.Settled)
	}
	v.kill()
	if _, err := AskStop(t.Context(), b.ledger, v.session, id, StopOptions{}); !errors.Is(err, ledger.ErrNoSession) {
		t.Errorf("asking a dead session: %v", err)
	}
}

func TestPrunedIsNotedByTheOneWriter(t *testing.T) {
	b := newBench(t)
	id := b.run(request("echo x")).id
	p := events.Pruned{To: 2, Reason: "asked"}
	if err := NotePruned(t.Context(), b.ledger, b.ID(), events.RootOwner, id, p); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	if err := NotePruned(t.Context(), b.ledger, b.ID(), events.RootOwner, id, p); err != nil {
		t.Fatal(err)
	}
	if got := lifecycle(t, b.ledger, events.Filter{ID: id, Kind: events.KindPruned}); len(got) != 2 {
		t.Errorf("%d notes", len(got))
	}
}

// TestLostAfterAPrune settles an execution whose recorded output is partly
// pruned, and whose yield told of output that was never recorded.
func TestLostAfterAPrune(t *testing.T) {
	l := newBench(t).ledger
	session, id := events.NewID(), events.NewID()
	for _, b := range []events.Body{
		events.Opened{}, events.Requested{Command: "x"}, events.Spawned{}, events.Yielded{Offset: 900}, events.Pruned{To: 500, Reason: "asked"},
	} {
		e := events.Event{Session: session, Subject: id, Body: b}
		if e.Class() == events.ClassSession {
			e.Subject = session
		}
		if _, err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := declareLost(t.Context(), l, session, "nobody"); err != nil {
		t.Fatal(err)
	}
	processes := projections.NewProcesses()
	for _, e := range lifecycle(t, l, events.Filter{Session: session}) {
		processes.Apply(e)
	}
	p, _ := processes.Get(id)
	if p.Settled == nil || p.Settled.Offset != 500 || p.Offset != 500 || p.Settled.Stdout.SHA256 != "" || len(p.Anomalies) > 0 {
		t.Errorf("settled %+v at %d, %q", p.Settled, p.Offset, p.Anomalies)
	}
}

// TestAnEndThatArrivesLateStands lets an append that was on its way when its
// server died arrive while that is declared lost: what ended is not called lost,
// and its owner is told how it ended.
func TestAnEndThatArrivesLateStands(t *testing.T) {
	dir := t.TempDir()
	l := newBenchIn(t, dir).ledger
	way, err := ledger.Open(t.Context(), ledger.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer way.Close()
	session, lost, late := events.NewID(), events.NewID(), events.NewID()
	one := 1
	for _, e := range []events.Event{
		{Subject: session, Body: events.Opened{}},
		{Subject: lost, Body: events.Requested{Command: "a"}},
		{Subject: lost, Body: events.Spawned{}},
		{Subject: late, Body: events.Requested{Command: "b"}},
		{Subject: late, Body: events.Spawned{}},
	} {
		e.Session, e.Owner = session, events.RootOwner
		if _, err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	defer l.Tap(func(e events.Event) {
		if e.Subject != lost || e.Kind() != events.KindSettled {
			return
		}
		_, err := way.Append(t.Context(), events.Event{Session: session, Owner: events.RootOwner, Subject: late, Body: events.Settled{
			Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeFailure, ExitCode: &one,
		}})
		if err != nil {
			t.Error(err)
		}
	})()
	if _, err := declareLost(t.Context(), l, session, "nobody"); err != nil {
		t.Fatal(err)
	}
	var prev, notices string
	for _, e := range lifecycle(t, l, events.Filter{Session: session}) {
		if e.Prev != prev {
			t.Errorf("%s does not follow what is before it", e.Kind())
		}
		m, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		prev = events.Hash(m)
		if p, ok := e.Body.(events.Posted); ok {
			notices += fmt.Sprintln(p.Mail, p.Execution, p.Executions, p.Notice)
		}
	}
	want := fmt.Sprintln(events.MailCompletion, late, "[]", `● Background command "b" failed (exit code 1)`) +
		fmt.Sprintln(events.MailResumed, "", []string{lost}, "● Session resumed · 1 command lost; their effects may be partial")
	if notices != want {
		t.Errorf("posted: %s", notices)
	}
}
