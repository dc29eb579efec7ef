package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// eventsEach is the events of an execution that open records, and sessionOf the
// executions of a session.
const (
	eventsEach = 10
	sessionOf  = 1000
)

// open measures `yieldlog ps` from a cold start on ledgers of growing length:
// after the last process closed it in good order, and after it was killed.
func (b *bench) open() ([]row, error) {
	var rows []row
	for n := 10_000; n <= b.most; n *= 10 {
		dir := filepath.Join(b.dir, fmt.Sprintf("long-%d", n))
		if err := recordApart(dir, n); err != nil {
			return nil, fmt.Errorf("recording %d events: %w", n, err)
		}
		more, err := b.opened(dir, n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (b *bench) opened(dir string, n int) ([]row, error) {
	clean, peak, err := b.best(func() error { return nil }, dir)
	if err != nil {
		return nil, err
	}
	killed, after, err := b.best(func() error { return b.abandon(dir) }, dir)
	if err != nil {
		return nil, err
	}
	return []row{
		openRow(n, "a clean stop", clean, 300*time.Millisecond, peak),
		openRow(n, "`kill -9`", killed, 2*time.Second, after),
	}, nil
}

// best is the best of three times, each after a preparation, and the most memory.
func (b *bench) best(prepare func() error, dir string) (best time.Duration, peak int64, err error) {
	for i := range 3 {
		if err := prepare(); err != nil {
			return 0, 0, err
		}
		took, most, err := b.ps(dir)
		if err != nil {
			return 0, 0, err
		}
		if i == 0 || took < best {
			best = took
		}
		peak = max(peak, most)
	}
	return best, peak, nil
}

// openRow is a measurement against the budgets for a million events.
func openRow(n int, after string, took, most time.Duration, peak int64) row {
	r := row{what: fmt.Sprintf("`ps` of %d events after %s", n, after), figure: fmt.Sprintf("%s, %d MB", ms(took), peak/1_000_000)}
	if n <= 1_000_000 {
		r.budget = fmt.Sprintf("%d ms, 300 MB", most.Milliseconds())
		r.kept = took <= most && peak <= 300_000_000
	}
	return r
}

// ps takes the time and the peak memory of one `yieldlog ps`.
func (b *bench) ps(dir string) (time.Duration, int64, error) {
	log, err := os.OpenFile(filepath.Join(b.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer log.Close()
	cmd := exec.Command(b.binary, "--dir", dir, "ps")
	cmd.Stderr = log
	at := time.Now()
	err = cmd.Run()
	took := time.Since(at)
	if err != nil {
		return 0, 0, fmt.Errorf("listing: %w", err)
	}
	return took, maxRSS(cmd.ProcessState), nil
}

// abandon opens the ledger, runs a command, and kills the server.
func (b *bench) abandon(dir string) error {
	c, err := b.connect([]string{b.binary, "mcp"}, "YIELDLOG_DIR="+dir)
	if err != nil {
		return err
	}
	if _, err := c.exec("true"); err != nil {
		return err
	}
	servers, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.cmd.Process.Pid)) // elsewhere: none
	if err != nil {
		return err
	}
	for _, file := range servers {
		var pid int
		text, _ := os.ReadFile(file)
		if _, err := fmt.Sscan(string(text), &pid); err != nil {
			continue // a thread without children
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
	_ = c.cmd.Process.Kill()
	_ = c.close() // it was killed
	return nil
}

// recordApart records in a process of its own: what a process starts counts the
// memory of its parent, as it was then, as its own.
func recordApart(dir string, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-record", dir, "-most", strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// record makes a ledger of n lifecycle events that are an hour old, and lets a
// server find them, as after a kill, and stop in good order.
func record(dir string, n int) error {
	if err := visit(dir); err != nil {
		return err
	}
	folder := filepath.Join(dir, "store", "jetstream", "LEDGER", "streams", "LIFECYCLE", "msgs")
	old, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	w := &blockWriter{dir: folder, stream: "LIFECYCLE", at: time.Now().Add(-time.Hour).UTC()}
	if err := errors.Join(w.lives(n/eventsEach), w.close()); err != nil {
		return err
	}
	return visit(dir)
}

// visit opens a ledger and closes it again.
func visit(dir string) error {
	l, err := ledger.Open(context.Background(), ledger.Options{Dir: dir, Sync: ledger.SyncRelaxed})
	if err != nil {
		return err
	}
	return l.Close()
}

// lives writes what happens to so many executions.
func (w *blockWriter) lives(executions int) error {
	session := ""
	for i := range executions {
		if i%sessionOf == 0 {
			session, w.prev = events.NewID(), ""
			if err := w.append(events.Event{Session: session, Subject: session, Body: events.Opened{Program: "bench"}}); err != nil {
				return err
			}
		}
		for _, e := range life(session, i) {
			if err := w.append(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// life is what happens to one execution, all that can.
func life(session string, i int) []events.Event {
	id, zero := events.NewID(), 0
	list := make([]events.Event, 0, eventsEach)
	for _, b := range []events.Body{
		events.Requested{Command: fmt.Sprintf("make test-%d", i), Name: "test", Cwd: "/src", SideEffects: []string{"NONE"}, YieldMS: 5000, OutputLimit: 64 << 20},
		events.Queued{Ahead: 1},
		events.Admitted{WaitedMS: 3},
		events.Spawned{PID: i + 2, PGID: i + 2, Start: uint64(i), Boot: "4a1f"},
		events.Yielded{ElapsedMS: 5000},
		events.Input{Bytes: 2},
		events.Stopping{Cause: events.TermStopped, Signal: "SIGTERM"},
		events.Settled{Status: events.StatusStopped, Termination: events.TermStopped, Outcome: events.OutcomeFailure, ExitCode: &zero, DurationMS: 6000},
		events.Posted{Mail: events.MailCompletion, Execution: id, Notice: `● Background command "test" stopped`},
		events.Acknowledged{Execution: id, By: "wait"},
	} {
		list = append(list, events.Event{Session: session, Owner: events.RootOwner, Subject: id, Body: b})
	}
	return list
}
