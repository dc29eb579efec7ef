package projections_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// world holds every fold.
type world struct {
	processes   *projections.Processes
	sessions    *projections.Sessions
	transcript  *projections.Transcript
	one         *projections.Transcript
	breadcrumbs *projections.Breadcrumbs
	mailbox     *projections.Mailbox
	recovery    *projections.Recovery
}

func newWorld() *world {
	return &world{
		projections.NewProcesses(), projections.NewSessions(), projections.NewTranscript(""),
		projections.NewTranscript("s1"), projections.NewBreadcrumbs(), projections.NewMailbox(), projections.NewRecovery(),
	}
}

func (w *world) Apply(e events.Event) {
	for _, f := range []projections.Fold{w.processes, w.sessions, w.transcript, w.one, w.breadcrumbs, w.mailbox, w.recovery} {
		f.Apply(e)
	}
}

// bytes is everything that the folds show.
func (w *world) bytes(t interface{ Fatal(...any) }) string {
	var hidden []projections.Process
	for _, id := range executions {
		if p, ok := w.processes.Get(id); ok {
			hidden = append(hidden, p)
		}
	}
	b, err := json.Marshal([]any{
		w.processes.List(), w.processes.Live(), hidden, w.sessions.List(),
		w.transcript.Rows(""), w.transcript.Rows("/root"), w.one.Rows("/root/a"), w.breadcrumbs.List(),
		w.mailbox.List("", ""), w.recovery.Open(), w.recovery.Unsettled(""),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var executions = []string{"e1", "e2", "e3"}

// soup draws any event: any kind about anything, in no sensible order.
func soup() *rapid.Generator[events.Event] {
	return rapid.Custom(func(t *rapid.T) events.Event {
		e := events.Event{
			Time:    time.Unix(rapid.Int64Range(-1e10, 1e10).Draw(t, "time"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC(),
			Session: rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "session"),
			Owner:   rapid.SampledFrom([]string{"/root", "/root/a", ""}).Draw(t, "owner"),
			Body:    body().Draw(t, "body"),
		}
		e.Subject = e.Session
		switch e.Class() {
		case events.ClassExecution, events.ClassOutput:
			e.Subject = rapid.SampledFrom(executions).Draw(t, "execution")
		case events.ClassMailbox:
			e.Subject = rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "record")
		}
		return e
	})
}

func body() *rapid.Generator[events.Body] {
	num := rapid.Int64Range(-3, 50)
	text := rapid.SampledFrom([]string{"", "go test", "a\x1b[31m\nb", "\xff\xfe", "x\u202ey"})
	execution := rapid.SampledFrom(append([]string{""}, executions...))
	return rapid.Custom(func(t *rapid.T) events.Body {
		n := func(name string) int64 { return num.Draw(t, name) }
		s := func(name string) string { return text.Draw(t, name) }
		switch rapid.IntRange(0, 20).Draw(t, "kind") {
		case 0:
			return events.Opened{Program: s("program"), PID: int(n("pid"))}
		case 1:
			return events.Closed{Reason: s("reason")}
		case 2:
			return events.Lost{Reason: s("reason")}
		case 3:
			return events.Forked{From: "s2", At: uint64(max(0, n("at")))}
		case 4:
			return events.Rewound{To: uint64(max(0, n("to")))}
		case 5, 6, 7:
			return request(t)
		case 8:
			return events.Refused{Reason: s("reason"), Message: s("message"), Request: &events.Requested{Command: s("command")}}
		case 9:
			return events.Queued{Ahead: 1}
		case 10:
			return events.Admitted{}
		case 11:
			return events.Spawned{PID: int(n("pid")), PGID: int(n("pgid")), Start: uint64(max(0, n("start")))}
		case 12:
			return events.Yielded{Offset: n("offset")}
		case 13:
			return events.Input{Bytes: int(n("bytes")), Close: true, Offset: n("offset"), Error: s("error")}
		case 14:
			return events.Stopping{Cause: events.Termination(s("cause")), Signal: s("signal"), Offset: n("offset")}
		case 15:
			return settlement(t)
		case 16:
			return events.Pruned{From: n("from"), To: n("to"), Reason: rapid.SampledFrom([]string{"size", "cleanup"}).Draw(t, "why")}
		case 17:
			return events.Posted{
				Mail:      rapid.SampledFrom([]events.MailKind{events.MailCompletion, events.MailMonitor, events.MailResumed}).Draw(t, "mail"),
				Execution: execution.Draw(t, "about"), Count: int(n("count")), Notice: s("notice"),
			}
		case 18:
			return events.Acknowledged{By: "wait", Execution: execution.Draw(t, "about")}
		case 19:
			return events.Unknown{
				UnknownKind:  "surprise",
				UnknownClass: rapid.SampledFrom([]events.Class{events.ClassExecution, events.ClassSession, "new"}).Draw(t, "class"),
			}
		}
		return events.Output{
			Stream: rapid.SampledFrom([]events.Kind{events.KindStdout, events.KindStderr, events.KindTTY}).Draw(t, "stream"),
			Offset: max(0, n("offset")), Data: make([]byte, max(0, n("len"))),
		}
	})
}

func request(t *rapid.T) events.Requested {
	r := events.Requested{
		Command: rapid.SampledFrom([]string{"", "make", "rm -rf \x1b]0;x\a"}).Draw(t, "command"),
		Name:    rapid.SampledFrom([]string{"", "tests", "a\"b\nc"}).Draw(t, "name"),
		Cwd:     "/tmp", YieldMS: 5000, Monitor: rapid.Bool().Draw(t, "monitor"), Env: []string{},
	}
	if rapid.Bool().Draw(t, "rich") {
		r.TTY, r.SideEffects, r.Env = &events.Size{Rows: 24, Cols: 80}, []string{"NONE"}, []string{"A", "B"}
		r.Client, r.Trace, r.StdinBytes = map[string]string{"id": "7", "b": ""}, "00-ab", 3
	}
	return r
}

func settlement(t *rapid.T) events.Settled {
	s := events.Settled{
		Status:      rapid.SampledFrom([]events.Status{events.StatusCompleted, events.StatusStopped, events.StatusFailed, events.StatusLost, "odd"}).Draw(t, "status"),
		Termination: rapid.SampledFrom([]events.Termination{events.TermExited, events.TermSignal, events.TermStopped, events.TermLost, "odd"}).Draw(t, "termination"),
		Outcome:     events.OutcomeFailure, Offset: rapid.Int64Range(-1, 60).Draw(t, "total"),
	}
	s.Stdout = events.StreamSum{Bytes: s.Offset, Raw: s.Offset, SHA256: rapid.SampledFrom([]string{
		"", "odd", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b",
	}).Draw(t, "digest")}
	if rapid.Bool().Draw(t, "code") {
		code := rapid.IntRange(-15, 255).Draw(t, "exit")
		s.ExitCode = &code
	}
	if rapid.Bool().Draw(t, "rich") {
		s.Stderr, s.TTY = events.StreamSum{Bytes: 3, Raw: 4}, events.StreamSum{Raw: 9}
		s.CutOff, s.Error, s.Signal = true, "why", "SIGTERM"
		s.Descendants = []events.Descendant{{PID: 7, Name: "x", Killed: true}, {PID: 8, Left: true}}
	}
	return s
}

// history draws a soup with ascending sequences, some skipped.
func history(t *rapid.T) []events.Event {
	es := rapid.SliceOfN(soup(), 0, 60).Draw(t, "events")
	seq := uint64(0)
	for i := range es {
		if es[i].Class() != events.ClassOutput {
			seq += uint64(rapid.IntRange(1, 2).Draw(t, "step"))
			es[i].Seq = seq
		}
	}
	return es
}

// TestLawIdempotent: applying any part of the past again changes nothing, and
// so does applying everything anew elsewhere.
func TestLawIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := history(t)
		once, again, stuttered := newWorld(), newWorld(), newWorld()
		for i, e := range es {
			once.Apply(e)
			again.Apply(e)
			stuttered.Apply(e)
			for _, old := range es[rapid.IntRange(0, i).Draw(t, "from") : i+1] {
				stuttered.Apply(old)
			}
		}
		want := once.bytes(t)
		if got := again.bytes(t); got != want {
			t.Fatalf("not deterministic:\n%s", cmp.Diff(want, got))
		}
		if got := stuttered.bytes(t); got != want {
			t.Fatalf("not idempotent:\n%s", cmp.Diff(want, got))
		}
	})
}

// TestLawTotal: an event that arrives after a later one, or without a
// sequence, or without a body, is never counted and never panics.
func TestLawTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, last := newWorld(), uint64(0)
		for _, e := range rapid.SliceOfN(soup(), 0, 60).Draw(t, "events") {
			e.Seq = uint64(rapid.IntRange(0, 40).Draw(t, "seq"))
			before := w.bytes(t)
			w.Apply(events.Event{Seq: last + 1})
			if e.Class() == events.ClassOutput || e.Seq > last {
				before = ""
			}
			w.Apply(e)
			if after := w.bytes(t); before != "" && after != before {
				t.Fatalf("%s with sequence %d counts after %d:\n%s\n%s", e.Kind(), e.Seq, last, before, after)
			}
			if e.Class() != events.ClassOutput {
				last = max(last, e.Seq)
			}
		}
	})
}

// TestLawCommute: however output and lifecycle are interleaved, the views are
// the same.
func TestLawCommute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		es := history(t)
		// Output has an order of its own: offsets ascend.
		var life, out []events.Event
		end := map[string]int64{}
		for _, e := range es {
			o, ok := e.Body.(events.Output)
			if !ok {
				life = append(life, e)
				continue
			}
			o.Offset = end[e.Subject]
			end[e.Subject] = o.End()
			e.Body = o
			out = append(out, e)
		}
		first, last, mixed := newWorld(), newWorld(), newWorld()
		for _, e := range slices.Concat(out, life) {
			first.Apply(e)
		}
		for _, e := range slices.Concat(life, out) {
			last.Apply(e)
		}
		for len(life)+len(out) > 0 {
			if len(out) == 0 || len(life) > 0 && rapid.Bool().Draw(t, "life") {
				mixed.Apply(life[0])
				life = life[1:]
			} else {
				mixed.Apply(out[0])
				out = out[1:]
			}
		}
		want := first.bytes(t)
		for name, w := range map[string]*world{"last": last, "mixed": mixed} {
			if got := w.bytes(t); got != want {
				t.Fatalf("output %s differs:\n%s", name, cmp.Diff(want, got))
			}
		}
	})
}

// TestM12_M85_LawOneBreadcrumb (M-12, M-28): exactly the executions that yielded and
// settled have one breadcrumb each, whatever the mail did.
func TestM12_M85_LawOneBreadcrumb(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, seq := newWorld(), uint64(0)
		apply := func(subject string, b events.Body) {
			seq++
			w.Apply(events.Event{Seq: seq, Session: "s1", Owner: "/root", Subject: subject, Body: b})
		}
		var want []string
		for i := range rapid.IntRange(0, 20).Draw(t, "executions") {
			id := fmt.Sprintf("e%d", i)
			apply(id, events.Requested{Command: "make"})
			apply(id, events.Spawned{PID: 1})
			yields := rapid.Bool().Draw(t, "yields")
			if yields {
				apply(id, events.Yielded{})
			}
			if !rapid.Bool().Draw(t, "settles") {
				continue
			}
			apply(id, events.Settled{Status: events.StatusCompleted, Outcome: events.OutcomeSuccess})
			if yields {
				want = append(want, id)
			}
			if rapid.Bool().Draw(t, "posts") {
				apply("m"+id, events.Posted{Mail: events.MailCompletion, Execution: id})
			}
			if rapid.Bool().Draw(t, "acknowledges") {
				apply("m"+id, events.Acknowledged{By: "mailbox", Execution: id})
			}
		}
		var got, rows []string
		for _, c := range w.breadcrumbs.List() {
			got = append(got, c.Execution)
		}
		for _, r := range w.transcript.Rows("") {
			if r.Breadcrumb != nil {
				rows = append(rows, r.Execution)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Fatal(diff)
		}
	})
}
