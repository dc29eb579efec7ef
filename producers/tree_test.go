//go:build linux

package producers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

func TestStopSendsTheSignalThatWasAskedFor(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"SIGTERM", "SIGINT", "SIGUSR1"} {
		id := b.background(fmt.Sprintf("trap 'echo caught; exit 9' %s; echo ready; while :; do sleep 0.02; done", strings.TrimPrefix(name, "SIG")))
		b.prints(id, "ready")
		res, err := b.Stop(t.Context(), "", id, StopOptions{Signal: name, ForceAfter: patience})
		if err != nil || !res.Stopped || res.Signal != name {
			t.Fatalf("%+v, %v", res, err)
		}
		n := b.ended(id)
		n.exits(t, events.StatusStopped, 9, events.TermStopped)
		if !strings.Contains(n.out, "caught") {
			t.Errorf("%s: stdout %q", name, n.out)
		}
	}
}

func TestM101_StopEscalates(t *testing.T) {
	b := newBench(t)
	m := marker()
	id := b.background("trap '' TERM; echo ready; sleep " + m + "; sleep " + m)
	b.prints(id, "ready")
	asked := time.Now()
	res, err := b.Stop(t.Context(), "", id, StopOptions{ForceAfter: 300 * time.Millisecond})
	if err != nil || !res.Stopped || time.Since(asked) < 300*time.Millisecond {
		t.Fatalf("%+v, %v after %s", res, err, time.Since(asked))
	}
	if n := b.ended(id); n.Signal != "SIGKILL" {
		t.Errorf("%+v", n.Settled)
	}
	gone(t, m)
}

func TestStopReachesAChildThatOutlivesTheShell(t *testing.T) {
	b := newBench(t, func(c *Config) { c.AllowBackground = true })
	m := marker()
	id := b.background("trap 'exit 0' TERM; sh -c 'trap \"\" TERM; echo ready; sleep " + m + "; sleep " + m + "' & wait")
	b.prints(id, "ready")
	if _, err := b.Stop(t.Context(), "", id, StopOptions{ForceAfter: 500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	b.ended(id).exits(t, events.StatusStopped, 0, events.TermStopped)
	gone(t, m)
}

// A signal has its name in either case, with or without SIG, and by its second name.
func TestStopTakesASignalByName(t *testing.T) {
	for name, want := range map[string]syscall.Signal{
		"SIGTERM": syscall.SIGTERM, "TERM": syscall.SIGTERM, "sigint": syscall.SIGINT, "kill": syscall.SIGKILL,
		"SIGCLD": syscall.SIGCHLD, "iot": syscall.SIGABRT, "SIGPOLL": syscall.SIGIO,
	} {
		if got, ok := signalNamed(fullSignalName(name)); !ok || got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	for _, name := range []string{"SIGBOGUS", "SIG", "15", "SIGTERM ", "SIGRTMIN+99", "SIGRTMIN-1"} {
		if got, ok := signalNamed(fullSignalName(name)); ok {
			t.Errorf("%q is %v", name, got)
		}
	}
	b := newBench(t)
	id := b.background("sleep 600")
	r, err := b.Stop(t.Context(), "", id, StopOptions{Signal: "usr1"})
	if err != nil || r.Signal != "SIGUSR1" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestStopRefusesWhatItCannotDo(t *testing.T) {
	b := newBench(t)
	id := b.run(request("exit 6")).id
	if _, err := b.Stop(t.Context(), "", id, StopOptions{}); !errors.Is(err, ErrEnded) {
		t.Errorf("stopping an ended one: %v", err)
	}
	id = b.background("sleep 600")
	if _, err := b.Stop(t.Context(), "", id, StopOptions{Signal: "SIGBOGUS"}); !errors.Is(err, ErrSignal) {
		t.Errorf("an unknown signal: %v", err)
	}
	if _, err := b.Stop(t.Context(), "", "nope", StopOptions{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown id: %v", err)
	}
}

func TestM137_TheFirstCauseIsLatched(t *testing.T) {
	b := newBench(t)
	for range 10 {
		id := b.background("trap '' TERM; echo ready; while :; do sleep 0.01; done")
		b.prints(id, "ready")
		e, err := b.find("", id)
		if err != nil {
			t.Fatal(err)
		}
		firsts := make(chan bool)
		for _, cause := range []events.Termination{events.TermStopped, events.TermTimedOut, events.TermOutputLimit} {
			go func() { firsts <- e.end(stopOrder{cause: cause, signal: 9, force: 0}) }()
		}
		won := 0
		for range 3 {
			if <-firsts {
				won++
			}
		}
		n, stops := b.ended(id), 0
		for _, ev := range b.of(id) {
			if s, ok := ev.Body.(events.Stopping); ok {
				stops++
				if s.Cause != n.Termination {
					t.Errorf("stopping for %s, settled as %s", s.Cause, n.Termination)
				}
			}
		}
		if won != 1 || stops != 1 {
			t.Errorf("%d causes won, %d stopping events", won, stops)
		}
	}
}

// escapes are ways out of the shell's process group.
func escapes(dir, m string) map[string]string {
	return map[string]string{
		"same group":    "sleep " + m + " & :",
		"setsid":        "setsid sleep " + m + " & :",
		"double fork":   "(setsid sh -c 'sleep " + m + " & exit' & ) ; :",
		"no pipe":       "setsid sleep " + m + " >/dev/null 2>&1 </dev/null & :",
		"no token":      "env -i setsid /bin/sh -c 'sleep " + m + " >/dev/null 2>&1 & exit'; :",
		"ignores TERM":  "setsid sh -c 'trap \"\" TERM; echo $$ >" + dir + "/pid; sleep " + m + "; sleep " + m + "' & while ! [ -s " + dir + "/pid ]; do sleep 0.01; done",
		"other process": "nohup setsid sh -c 'exec -a disguise sleep " + m + "' >/dev/null 2>&1 & :",
	}
}

func TestM126_DescendantsEndWithTheirShell(t *testing.T) {
	for name, command := range escapes(t.TempDir(), "600.77") {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(c *Config) { c.AllowBackground = true })
			m := marker()
			b.background("sleep 600") // whose it could be as well
			n := b.run(request("echo before; " + strings.ReplaceAll(command, "600.77", m) + "; exit 4"))
			n.exits(t, events.StatusCompleted, 4, events.TermExited)
			if n.out != "before\n" {
				t.Errorf("stdout %q", n.out)
			}
			gone(t, m)
		})
	}
}

func TestDescendantsMayBeLeft(t *testing.T) {
	b := newBench(t, func(c *Config) { c.AllowBackground, c.LeaveDescendants = true, true })
	m := marker()
	n := b.run(request("setsid sleep " + m + " & echo done"))
	n.exits(t, events.StatusCompleted, 0, events.TermExited)
	if !n.CutOff || len(n.Descendants) == 0 || !n.Descendants[0].Left || n.out != "done\n" {
		t.Errorf("%+v", n)
	}
	if len(living(m)) == 0 {
		t.Error("the descendant did not live")
	}
	if err := b.Close(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	gone(t, m)
}

func TestNothingIsLeftBehind(t *testing.T) {
	b := newBench(t, func(c *Config) { c.AllowBackground = true })
	b.run(request("true"))
	before := descriptors(t)
	for range 50 {
		b.run(request("(setsid sleep 0.01 &); (sleep 0.01 &); true"))
	}
	if after := descriptors(t); after > before+5 {
		t.Errorf("%d descriptors grew to %d", before, after)
	}
	deadline := time.Now().Add(patience)
	for len(zombies()) > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("zombies: %v", zombies())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Pipes are laid before the request is on record, but not for who waits for its
// turn, and they are gone with what never starts.
func TestWhatDoesNotRunHoldsNoPipes(t *testing.T) {
	b := newBench(t)
	b.lanes.held = time.Hour
	writer := request("true")
	writer.SideEffects = []string{"MODIFIES_WORKSPACE_FILES"}
	b.run(writer)
	first := b.lanes.draw() // nobody overtakes it
	before := descriptors(t)
	writer.Yield = 0
	var waiting []string
	for range 10 {
		res, err := b.Exec(t.Context(), writer)
		if err != nil || res.Outcome != Queued {
			t.Fatalf("%+v, %v", res, err)
		}
		waiting = append(waiting, res.Execution)
	}
	if queued := descriptors(t); queued > before+5 {
		t.Errorf("%d descriptors grew to %d while commands queued", before, queued)
	}
	first.leave()
	for _, id := range waiting {
		b.ended(id)
	}
	for range 10 {
		place, err := b.reserve(events.RootOwner)
		if err != nil {
			t.Fatal(err)
		}
		next := b.lanes.draw()
		next.decide(true)
		e, no := b.judge(t.Context(), request("true"), next, place.before)
		if no != nil {
			t.Fatal(no)
		}
		if !b.settleIn(place, e) {
			t.Fatal("it has no place")
		}
		e.launch(request("true"), &stopOrder{cause: events.TermOwnerStopped})
		<-e.done
	}
	if after := descriptors(t); after > before+5 {
		t.Errorf("%d descriptors grew to %d after commands that never started", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// zombies is our children that exited and were not reaped.
func zombies() []int {
	var zs []int
	for _, r := range offspringOfAll() {
		if r.zombie {
			zs = append(zs, r.pid)
		}
	}
	return zs
}

func offspringOfAll() []relative {
	var rs []relative
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		var tid int
		if _, err := fmt.Sscan(task.Name(), &tid); err != nil {
			continue
		}
		for _, pid := range childrenOf(os.Getpid(), tid) {
			if r, ok := look(pid); ok {
				rs = append(rs, r)
			}
		}
	}
	return rs
}

func TestM136_APipeThatAStrangerHoldsIsCutOff(t *testing.T) {
	b := newBench(t)
	id := b.background("echo ready; read x; echo bye")
	b.prints(id, "ready")
	spawned := b.until(id, func(e events.Event) bool { return e.Kind() == events.KindSpawned }).Body.(events.Spawned)
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", spawned.PID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := b.Write("", id, Input{Data: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	n := b.ended(id)
	n.exits(t, events.StatusCompleted, 0, events.TermExited)
	if !n.CutOff || n.out != "ready\nbye\n" {
		t.Errorf("%+v", n)
	}
	if _, err := held.WriteString("late"); err == nil {
		t.Error("somebody still takes output")
	}
	b.ended(id) // nothing follows the settlement
}

func TestAStoppedJobIsKilledAllTheSame(t *testing.T) {
	b := newBench(t)
	id := b.background("echo ready; kill -STOP $$")
	b.prints(id, "ready")
	awaitStopped(t, b.until(id, func(e events.Event) bool { return e.Kind() == events.KindSpawned }).Body.(events.Spawned).PID)
	if _, err := b.Stop(t.Context(), "", id, StopOptions{ForceAfter: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if n := b.ended(id); n.Signal != "SIGKILL" {
		t.Errorf("%+v", n.Settled)
	}
}

func TestM130_APidThatWasGivenAwayIsLeftAlone(t *testing.T) {
	m := marker()
	c := exec.Command("sleep", m)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	r, ok := look(c.Process.Pid)
	if !ok {
		t.Fatal("it does not run")
	}
	old := r.kinsman
	old.start--
	old.signal(syscall.SIGKILL)
	if left, _ := remains(nil, nil, map[int]uint64{old.pid: old.start}, nil, false); len(left) != 0 {
		t.Errorf("taken for a process of a dead session: %v", left)
	}
	if left, _ := remains(nil, nil, map[int]uint64{old.pid: r.start}, nil, false); len(left) != 1 {
		t.Errorf("not found by pid and start time: %v", left)
	}
	if r, ok := look(old.pid); !ok || r.zombie {
		t.Error("a stranger was killed")
	}
}

func TestM129_ZombiesHoldNoStopUp(t *testing.T) {
	b := newBench(t, func(c *Config) { c.AllowBackground = true })
	m := marker()
	// The sleep has a child that it never reaps.
	id := b.background("sh -c 'true & echo ready; exec sleep " + m + "'; :")
	b.prints(id, "ready")
	if _, err := b.Stop(t.Context(), "", id, StopOptions{ForceAfter: patience}); err != nil {
		t.Fatal(err)
	}
	if n := b.ended(id); n.Signal != "SIGTERM" {
		t.Errorf("%+v", n.Settled)
	}
	gone(t, m)
}

func TestASessionLeavesNoGoroutine(t *testing.T) {
	b := newBench(t)
	b.run(request("echo x"))
	b.background("sleep 600", func(r *Request) { r.Stdin = strings.Repeat("x", 1<<20) })
	b.background("sleep 600", onTerminal)
	if err := b.Close(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	const own = "created by github.com/yieldlog/yieldlog/producers."
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		var left []string
		for _, s := range strings.Split(string(stacks), "\n\n") {
			if strings.Contains(s, own) {
				left = append(left, s)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind:\n%s", strings.Join(left, "\n\n"))
		}
	}
}

// awaitStopped waits until a job-control signal has stopped the process.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") T ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not stopped: %s", stat)
		}
	}
}
