//go:build unix

package producers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// patience bounds a wait for a fact; a fact that does not come by then never will.
const patience = 60 * time.Second

// A bench is a session on a real ledger, and what it appended.
type bench struct {
	*Session
	t      testing.TB
	ledger *ledger.Ledger

	mu   sync.Mutex
	news *sync.Cond
	seen []events.Event
}

func newBench(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	return newBenchIn(t, t.TempDir(), change...)
}

func newBenchIn(t testing.TB, dir string, change ...func(*Config)) *bench {
	t.Helper()
	return newBenchAs(t, dir, events.Opened{Program: "test"}, change...)
}

func newBenchAs(t testing.TB, dir string, opened events.Opened, change ...func(*Config)) *bench {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, ledger: l}
	b.news = sync.NewCond(&b.mu)
	l.Tap(b.take)
	cfg := DefaultConfig()
	cfg.Blocked = nil
	for _, f := range change {
		f(&cfg)
	}
	b.Session, err = OpenSession(t.Context(), l, cfg, opened)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx, "test over"); err != nil {
			t.Errorf("closing the session: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("closing the ledger: %v", err)
		}
	})
	return b
}

func (b *bench) take(e events.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, e)
	b.news.Broadcast()
}

// of is the events of an execution so far.
func (b *bench) of(id string) []events.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	var es []events.Event
	for _, e := range b.seen {
		if e.Execution() == id {
			es = append(es, e)
		}
	}
	return es
}

// until waits for an event of the execution.
func (b *bench) until(id string, is func(events.Event) bool) events.Event {
	b.t.Helper()
	defer time.AfterFunc(patience, b.news.Broadcast).Stop()
	deadline := time.Now().Add(patience)
	b.mu.Lock()
	defer b.mu.Unlock()
	for from := 0; ; {
		for ; from < len(b.seen); from++ {
			if e := b.seen[from]; e.Execution() == id && is(e) {
				return e
			}
		}
		if !time.Now().Before(deadline) {
			b.t.Fatalf("%s: the event did not come", id)
		}
		b.news.Wait()
	}
}

// prints waits until the execution's output of all streams holds the text.
func (b *bench) prints(id, text string) {
	b.t.Helper()
	var out bytes.Buffer
	b.until(id, func(e events.Event) bool {
		if o, ok := e.Body.(events.Output); ok {
			out.Write(o.Data)
		}
		return bytes.Contains(out.Bytes(), []byte(text))
	})
}

func request(command string) Request {
	return Request{Command: command, SideEffects: []string{"NONE"}, Yield: patience}
}

// background starts a command that yields at once.
func (b *bench) background(command string, change ...func(*Request)) string {
	b.t.Helper()
	r := request(command)
	r.Yield = 0
	for _, f := range change {
		f(&r)
	}
	res, err := b.Exec(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.Execution
}

// run runs a command to its end.
func (b *bench) run(r Request) ended {
	b.t.Helper()
	res, err := b.Exec(b.t.Context(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.Outcome != Settled {
		b.t.Fatalf("%q: %+v, not settled", r.Command, res)
	}
	return b.ended(res.Execution)
}

// ended is an execution that is over.
type ended struct {
	id            string
	out, err, tty string
	events.Settled
}

// ended waits for the settlement, and checks what readers may rely on.
func (b *bench) ended(id string) ended {
	b.t.Helper()
	if _, err := b.Wait(b.t.Context(), "", id, patience); err != nil {
		b.t.Fatal(err)
	}
	return checkRules(b.t, id, b.of(id))
}

// checkRules checks the rules of package events on an execution's events.
func checkRules(t testing.TB, id string, es []events.Event) ended {
	t.Helper()
	n := ended{id: id}
	var all, out, err, tty bytes.Buffer
	settled, spawned := 0, false
	for _, e := range es {
		switch b := e.Body.(type) {
		case events.Spawned:
			spawned = true
		case events.Output:
			if !spawned || settled > 0 {
				t.Errorf("%s: output at %d (spawned %v, settled %d)", id, b.Offset, spawned, settled)
			}
			if b.Offset != int64(all.Len()) {
				t.Errorf("%s: output at %d follows %d bytes", id, b.Offset, all.Len())
			}
			all.Write(b.Data)
			map[events.Kind]*bytes.Buffer{events.KindStdout: &out, events.KindStderr: &err, events.KindTTY: &tty}[b.Stream].Write(b.Data)
		case events.Settled:
			settled++
			n.Settled = b
		}
	}
	if settled != 1 {
		t.Fatalf("%s: %d settlements", id, settled)
	}
	if n.Offset != int64(all.Len()) {
		t.Errorf("%s: settled at %d, and there are %d bytes", id, n.Offset, all.Len())
	}
	checkSum(t, id, n.Stdout, out.Bytes())
	checkSum(t, id, n.Stderr, err.Bytes())
	checkSum(t, id, n.TTY, tty.Bytes())
	n.out, n.err, n.tty = out.String(), err.String(), tty.String()
	return n
}

func checkSum(t testing.TB, id string, s events.StreamSum, data []byte) {
	t.Helper()
	sum := sha256.Sum256(data)
	if s.Bytes != int64(len(data)) || len(data) > 0 && s.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%s: the summary %+v is not that of %d bytes", id, s, len(data))
	}
}

// exits checks status, exit code and termination.
func (n ended) exits(t *testing.T, status events.Status, code int, why events.Termination) {
	t.Helper()
	if n.Status != status || n.ExitCode == nil || *n.ExitCode != code || n.Termination != why {
		t.Errorf("ended %s, exit %v, %s; want %s, %d, %s", n.Status, deref(n.ExitCode), n.Termination, status, code, why)
	}
}

func deref(p *int) string {
	if p == nil {
		return "unknown"
	}
	return strconv.Itoa(*p)
}

// gone waits until no process has the marker in its command line.
func gone(t *testing.T, marker string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		left := living(marker)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still alive: %v", left)
		}
	}
}

// living is the processes with the marker in their command line.
func living(marker string) []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(marker)) {
			found = append(found, p+": "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found
}

// marker is a duration for sleep that no other process has in its command line.
var markers = struct {
	sync.Mutex
	n int
}{}

func marker() string {
	markers.Lock()
	defer markers.Unlock()
	markers.n++
	return fmt.Sprintf("600.%d%03d", os.Getpid(), markers.n)
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", path)
		}
	}
}

// count is how often the execution has an event of the kind.
func (b *bench) count(id string, kind events.Kind) int {
	n := 0
	for _, e := range b.of(id) {
		if e.Kind() == kind {
			n++
		}
	}
	return n
}

// TestNothingFollowsTheEndOfASession writes to a command that has ended while its
// session closes.
func TestNothingFollowsTheEndOfASession(t *testing.T) {
	b := newBench(t)
	id := b.run(Request{Command: "true", SideEffects: []string{"NONE"}, Yield: patience}).id
	if err := b.Write("", id, Input{Close: true}); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	b.until(id, func(e events.Event) bool { return e.Kind() == events.KindInput }) // as long as the session lives
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				if err := b.Write("", id, Input{Close: true}); !errors.Is(err, ErrEnded) {
					t.Error(err)
				}
			}
		})
	}
	if err := b.Close(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	var last events.Event
	for e, err := range b.ledger.Read(t.Context(), events.Filter{Session: b.ID()}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	if last.Kind() != events.KindClosed {
		t.Errorf("the last event is %s", last.Kind())
	}
}

// An opening that is given up leaves no session behind that nobody ends.
func TestOpeningIsGivenUp(t *testing.T) {
	b := newBench(t)
	open := map[string]bool{}
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*20*time.Microsecond, cancel)
		s, err := OpenSession(ctx, b.ledger, DefaultConfig(), events.Opened{Program: "test"})
		cancel()
		if err == nil {
			err = s.Close(t.Context(), "nobody wants it")
		} else if errors.Is(err, context.Canceled) {
			err = nil
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range lifecycle(t, b.ledger, events.Filter{Class: events.ClassSession}) {
		switch e.Body.(type) {
		case events.Opened:
			open[e.Session] = true
		case events.Closed:
			delete(open, e.Session)
		}
	}
	delete(open, b.id)
	if len(open) > 0 {
		t.Errorf("%d sessions are open", len(open))
	}
}

// TestNothingFollowsTheEnd races all that is recorded of an execution with its
// end: only input that somebody wrote too late stands behind that, as failed, and
// none that was piped.
func TestNothingFollowsTheEnd(t *testing.T) {
	b := newBench(t)
	gone := t.TempDir()
	began := make(chan string, 1000)
	var racers, calls sync.WaitGroup
	control := map[string]func(id string) error{
		"data":  func(id string) error { return b.Write("", id, Input{Data: []byte("x"), Piped: true}) },
		"end":   func(id string) error { return b.Write("", id, Input{Close: true, Piped: true}) },
		"write": func(id string) error { return b.Write("", id, Input{Data: []byte("late")}) },
		"stop":  func(id string) error { _, err := b.Stop(t.Context(), "", id, StopOptions{}); return err },
	}
	racers.Go(func() {
		for id := range began {
			for name, f := range control {
				racers.Go(func() {
					if err := f(id); err != nil && !errors.Is(err, ErrEnded) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrInput) {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
	})
	for i := range 240 {
		r := request([]string{"true", "read x", "exec sleep 0.002"}[i%3])
		r.Yield, r.CloseStdin = time.Duration(i%5)*time.Millisecond, i%2 == 0
		r.Started = func(id string) { began <- id }
		if i%4 > 0 {
			r.SideEffects = []string{"OTHER"} // it queues
		}
		if i%7 == 0 {
			r.Cwd = filepath.Join(gone, strconv.Itoa(i))
			if err := os.Mkdir(r.Cwd, 0o700); err != nil {
				t.Fatal(err)
			}
			r.Started = func(id string) { _ = os.Remove(r.Cwd); began <- id }
		}
		ctx, cancel := context.WithCancel(t.Context())
		if i%6 == 0 {
			time.AfterFunc(time.Duration(i%4)*500*time.Microsecond, cancel)
		}
		calls.Go(func() {
			defer cancel()
			if _, err := b.Exec(ctx, r); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		if i%12 == 11 {
			calls.Wait()
		}
	}
	close(began)
	racers.Wait()
	n := b.run(request("true"))
	if err := b.Write("", n.id, Input{Data: []byte("late")}); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
	if err := b.Close(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	ends, late := map[string]events.Kind{}, 0
	for e, err := range b.ledger.Read(t.Context(), events.Filter{Session: b.ID()}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Class() != events.ClassExecution {
			continue
		}
		input, failed := e.Body.(events.Input)
		failed = failed && input.Error != ""
		switch end := ends[e.Subject]; {
		case end != "" && (!failed || input.Bytes != len("late")):
			t.Errorf("%s follows %s: %+v", e.Kind(), end, e.Body)
		case end != "":
			late++
		case e.Kind() == events.KindSettled || e.Kind() == events.KindRefused:
			ends[e.Subject] = e.Kind()
		}
		if failed && input.Bytes != len("late") {
			t.Errorf("piped input is recorded, and did not arrive: %+v", input)
		}
	}
	kinds := map[events.Kind]int{}
	for _, k := range ends {
		kinds[k]++
	}
	if kinds[events.KindSettled] == 0 || kinds[events.KindRefused] == 0 || late == 0 {
		t.Errorf("nothing raced: %v, %d too late", kinds, late)
	}
}
