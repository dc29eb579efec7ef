// Package looktest writes histories into ledgers, for the tests of what people
// look at. The events are those that producers write, in their order.
package looktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// Book writes the history of one session.
type Book struct {
	t       testing.TB
	l       *ledger.Ledger
	Session string
	// Clock is the time of the next event.
	Clock time.Time
}

// Open opens a ledger in a temporary directory, until the test ends.
func Open(t testing.TB) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: t.TempDir(), Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the ledger: %v", err)
		}
	})
	return l
}

// NewBook opens a session at a moment.
func NewBook(t testing.TB, l *ledger.Ledger, at time.Time) *Book {
	t.Helper()
	b := &Book{t: t, l: l, Session: events.NewID(), Clock: at}
	b.post(b.Session, "", events.Opened{Program: "mcp", Version: "test", Client: "claude-code 2.1", Cwd: "/home/ada/shop", Host: "lab", PID: 1})
	return b
}

func (b *Book) post(subject, owner string, body events.Body) {
	b.t.Helper()
	e := events.Event{Session: b.Session, Owner: owner, Subject: subject, Time: b.Clock, Body: body}
	if err := b.l.Post(b.t.Context(), e, func(_ events.Event, err error) {
		if err != nil {
			b.t.Errorf("posting %s: %v", body.Kind(), err)
		}
	}); err != nil {
		b.t.Fatal(err)
	}
}

// Sync waits until everything is in the ledger, and returns its last sequence.
func (b *Book) Sync() uint64 {
	b.t.Helper()
	e, err := b.l.Append(b.t.Context(), events.Event{
		Session: b.Session, Owner: events.RootOwner, Subject: events.NewID(), Time: b.Clock,
		Body: events.Refused{Reason: "command", Message: "rm is not allowed", Request: &events.Requested{Command: "rm -rf /"}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return e.Seq
}

// Run is one execution as it is written.
type Run struct {
	b         *Book
	ID, Owner string
	offset    int64
	started   time.Time
	streams   map[events.Kind]int64
}

// Start writes a request and a spawn.
func (b *Book) Start(owner, name, command string) *Run {
	b.t.Helper()
	r := &Run{b: b, ID: events.NewID(), Owner: owner, started: b.Clock, streams: map[events.Kind]int64{}}
	b.post(r.ID, owner, events.Requested{
		Command: command, Name: name, Cwd: "/home/ada/shop", SideEffects: []string{"NONE"}, YieldMS: 10_000, OutputLimit: 64 << 20,
	})
	b.post(r.ID, owner, events.Spawned{PID: 4000 + len(r.ID), PGID: 4000})
	return r
}

// Queue writes a request that waits for its lane.
func (b *Book) Queue(owner, name, command string) string {
	b.t.Helper()
	id := events.NewID()
	b.post(id, owner, events.Requested{Command: command, Name: name, Cwd: "/home/ada/shop", YieldMS: 10_000, OutputLimit: 64 << 20})
	b.post(id, owner, events.Queued{Ahead: 1})
	return id
}

// Wait lets time pass.
func (b *Book) Wait(d time.Duration) { b.Clock = b.Clock.Add(d) }

// Out writes output to stdout, and Err to stderr.
func (r *Run) Out(text string) { r.print(events.KindStdout, text) }

// Err writes output to stderr.
func (r *Run) Err(text string) { r.print(events.KindStderr, text) }

func (r *Run) print(stream events.Kind, text string) {
	r.b.t.Helper()
	r.b.post(r.ID, r.Owner, events.Output{Stream: stream, Offset: r.offset, Data: []byte(text)})
	r.offset += int64(len(text))
	r.streams[stream] += int64(len(text))
}

// Yield lets the call return.
func (r *Run) Yield() {
	r.b.t.Helper()
	r.b.post(r.ID, r.Owner, events.Yielded{Offset: r.offset, ElapsedMS: r.b.Clock.Sub(r.started).Milliseconds()})
}

// Exit settles the execution with an exit code.
func (r *Run) Exit(code int) {
	s := events.Settled{Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess, ExitCode: &code}
	if code != 0 {
		s.Outcome = events.OutcomeFailure
	}
	r.Settle(s)
}

// Stop settles the execution as stopped.
func (r *Run) Stop() {
	r.b.post(r.ID, r.Owner, events.Stopping{Cause: events.TermStopped, Signal: "TERM", Offset: r.offset})
	r.Settle(events.Settled{Status: events.StatusStopped, Termination: events.TermStopped, Outcome: events.OutcomeFailure, Signal: "TERM"})
}

// Settle settles the execution; sums and duration are filled in.
func (r *Run) Settle(s events.Settled) {
	r.b.t.Helper()
	s.DurationMS, s.Offset = r.b.Clock.Sub(r.started).Milliseconds(), r.offset
	sum := func(k events.Kind) events.StreamSum { return events.StreamSum{Bytes: r.streams[k], Raw: r.streams[k]} }
	s.Stdout, s.Stderr, s.TTY = sum(events.KindStdout), sum(events.KindStderr), sum(events.KindTTY)
	r.b.post(r.ID, r.Owner, s)
}

// Mail posts the completion of an execution to its owner.
func (r *Run) Mail(notice string) {
	r.b.post(events.NewID(), r.Owner, events.Posted{Mail: events.MailCompletion, Execution: r.ID, To: r.offset, Notice: notice})
}

// Night writes a night's work: what ran well, one test run that failed, a stop,
// a time limit, and three commands that still run. It returns the failed run
// and a running one.
func Night(t testing.TB, l *ledger.Ledger) (b *Book, failed, running *Run) {
	t.Helper()
	b = NewBook(t, l, time.Now().Add(-40*time.Minute))
	for i := range 6 {
		r := b.Start("/root", "", fmt.Sprintf("git log --oneline -%d", i+1))
		r.Out("8bcd1c9 events: format\ncd03dc8 events: add the vocabulary\n")
		b.Wait(300 * time.Millisecond)
		r.Exit(0)
		b.Wait(20 * time.Second)
	}
	failed = b.Start("/root/reviewer", "Run the shop's tests", "go test ./... -count=1")
	b.Wait(10 * time.Second)
	failed.Yield()
	failed.Out("ok  \tshop/cart\t1.204s\n--- FAIL: TestCheckout (0.31s)\n")
	failed.Err("    checkout_test.go:88: total is 41.99, not 42.00\n")
	failed.Out("FAIL\nFAIL\tshop/checkout\t0.482s\n")
	b.Wait(25 * time.Second)
	failed.Exit(1)
	failed.Mail(`● Background command "Run the shop's tests" failed (exit code 1)`)
	slow := b.Start("/root", "Crawl the docs", "wget --mirror https://docs.example.org")
	slow.Out(strings.Repeat("saved page.html\n", 30))
	b.Wait(5 * time.Minute)
	slow.Settle(events.Settled{Status: events.StatusTimedOut, Termination: events.TermTimedOut, Outcome: events.OutcomeFailure, Signal: "TERM"})
	stopped := b.Start("/root/builder", "Dev server", "npm run dev")
	stopped.Out("ready on http://localhost:3000\n")
	b.Wait(4 * time.Minute)
	stopped.Stop()
	running = b.Start("/root", "Watch the build", "make watch")
	running.Yield()
	running.Out("[watch] 3 files changed\n[watch] building\n[watch] done in 1.2s\n")
	other := b.Start("/root/builder", "Build the images", "docker build -t shop .")
	other.Yield()
	other.Out("#12 [stage-1 4/7] RUN npm ci --omit=dev\n#12 18.4 added 214 packages\n")
	b.Queue("/root", "Migrate", "./bin/migrate up")
	b.Sync()
	return b, failed, running
}
