package projections_test

import (
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

func code(n int) *int { return &n }

// TestM16_M17_Notice is the wording of M-13 and M-16.
func TestM16_M17_Notice(t *testing.T) {
	run := events.Requested{Name: "Run tests", Command: "go test ./..."}
	monitor := events.Requested{Name: "ticker", Monitor: true}
	exited := func(status events.Status, outcome events.Outcome, n int) events.Settled {
		return events.Settled{Status: status, Termination: events.TermExited, Outcome: outcome, ExitCode: code(n)}
	}
	ended := func(status events.Status, term events.Termination) events.Settled {
		return events.Settled{Status: status, Termination: term, Outcome: events.OutcomeFailure, ExitCode: code(-15), Signal: "SIGTERM"}
	}
	for _, c := range []struct {
		request events.Requested
		settled events.Settled
		lines   int
		want    string
	}{
		{run, exited(events.StatusCompleted, events.OutcomeSuccess, 0), 0, `● Background command "Run tests" completed (exit code 0)`},
		{run, exited(events.StatusCompleted, events.OutcomeFailure, 3), 0, `● Background command "Run tests" failed (exit code 3)`},
		{run, exited(events.StatusCompleted, events.OutcomeNoMatch, 1), 0, `● Background command "Run tests" completed (exit code 1)`},
		{run, exited(events.StatusCompleted, events.OutcomeDifferent, 1), 0, `● Background command "Run tests" completed (exit code 1)`},
		{run, ended(events.StatusStopped, events.TermStopped), 0, `● Background command "Run tests" stopped`},
		{run, ended(events.StatusStopped, events.TermSessionEnded), 0, `● Background command "Run tests" stopped`},
		{run, ended(events.StatusStopped, events.TermOwnerStopped), 0, `● Background command "Run tests" stopped`},
		{run, ended(events.StatusTimedOut, events.TermTimedOut), 0, `● Background command "Run tests" timed out`},
		{run, ended(events.StatusCompleted, events.TermSignal), 0, `● Background command "Run tests" failed (signal SIGTERM)`},
		{run, ended(events.StatusFailed, events.TermOutputLimit), 0, `● Background command "Run tests" failed (output limit)`},
		{run, ended(events.StatusLost, events.TermLost), 0, `● Background command "Run tests" stopped (session lost)`},
		{monitor, ended(events.StatusStopped, events.TermStopped), 2, `● Monitor "ticker" stopped · 2 events`},
		{monitor, ended(events.StatusStopped, events.TermStopped), 1, `● Monitor "ticker" stopped · 1 event`},
		{monitor, exited(events.StatusCompleted, events.OutcomeSuccess, 0), 0, `● Monitor "ticker" completed (exit code 0) · 0 events`},
		{events.Requested{Command: "make\n  all"}, exited(events.StatusCompleted, events.OutcomeSuccess, 0), 0, `● Background command "make all" completed (exit code 0)`},
	} {
		if got := projections.Notice(c.request, c.settled, c.lines); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// TestM15_M92_NoticeCannotBeForged (M-15): a name can neither end its quotes, nor start
// a line, nor drive a terminal.
func TestM15_M92_NoticeCannotBeForged(t *testing.T) {
	for name, want := range map[string]string{
		"x\" completed\n● Monitor \"y": `● Background command "x\" completed\n● Monitor \"y" stopped`,
		"\x1b[2J\u202e\u0007\xff":      `● Background command "\x1b[2J\u202e\a�" stopped`,
		"größe 🙂":                      `● Background command "größe 🙂" stopped`,
		strings.Repeat("é", 200):       `● Background command "` + strings.Repeat("é", 79) + `…" stopped`,
	} {
		got := projections.Notice(events.Requested{Name: name}, events.Settled{Termination: events.TermStopped, Signal: "a\nb"}, 0)
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The end in a replay says what the lists say: lost, where a notice has no word for it.
func TestEnd(t *testing.T) {
	for want, s := range map[string]events.Settled{
		"completed (exit code 0)": {Status: events.StatusCompleted, Termination: events.TermExited, ExitCode: code(0)},
		"stopped":                 {Status: events.StatusStopped, Termination: events.TermStopped},
		"lost with its server":    {Status: events.StatusLost, Termination: events.TermLost},
	} {
		if got := projections.End(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOtherNotices(t *testing.T) {
	if got, want := projections.BatchNotice(events.Requested{Name: "ticker", Monitor: true}, 3), `● Monitor "ticker" · 3 events`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := projections.ResumedNotice(1), `● Session resumed · 1 command lost; their effects may be partial`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
