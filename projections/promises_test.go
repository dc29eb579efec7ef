package projections_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// tell applies the bodies, one a second, to the folds.
func tell(start uint64, owner, subject string, bodies []events.Body, folds ...projections.Fold) {
	for i, b := range bodies {
		seq := start + uint64(i)
		e := events.Event{Seq: seq, Time: time.Unix(int64(seq), 0).UTC(), Session: "s", Owner: owner, Subject: subject, Body: b}
		if e.Class() == events.ClassOutput {
			e.Seq = 0
		}
		for _, f := range folds {
			f.Apply(e)
		}
	}
}

// background is the events of a command that yielded and ended.
func background(name string) []events.Body {
	return []events.Body{
		events.Requested{Command: "make", Name: name, Env: []string{"A"}},
		events.Spawned{PID: 7},
		events.Yielded{},
		events.Output{Stream: events.KindStdout, Data: []byte("swordfish")},
		events.Settled{Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess, ExitCode: code(0), Offset: 9},
	}
}

func completion(execution string) events.Posted {
	return events.Posted{Mail: events.MailCompletion, Execution: execution, Notice: "as posted"}
}

func TestM07_FactsAreCopies(t *testing.T) {
	p := projections.NewProcesses()
	tell(1, "/root", "e", background("build"), p)
	first, _ := p.Get("e")
	first.Requested.Env[0] = "changed"
	*first.Settled.ExitCode = 9
	first.Settled.Status = "changed"
	again, _ := p.Get("e")
	if again.Requested.Env[0] != "A" || *again.Settled.ExitCode != 0 || again.Settled.Status != events.StatusCompleted {
		t.Errorf("a reader changed the facts: %+v", again)
	}
}

func TestM14_M90_OneCompletionLine(t *testing.T) {
	rows := projections.NewTranscript("s")
	tell(1, "/root", "e", background("build"), rows)
	tell(10, "/root", "m", []events.Body{completion("e"), events.Acknowledged{By: "mailbox", Execution: "e"}}, rows)
	shown, err := json.Marshal(rows.Rows("/root"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(shown), "● Background command"); n != 1 || len(rows.Rows("/root")) != 1 {
		t.Errorf("%d completion lines: %s", n, shown)
	}
}

func TestM18_M20_ABreadcrumbPointsAndKeepsItsTime(t *testing.T) {
	live, rebuilt := projections.NewBreadcrumbs(), projections.NewBreadcrumbs()
	for _, f := range []*projections.Breadcrumbs{live, rebuilt} {
		tell(1, "/root", "e", background("build"), f)
		tell(10, "/root", "m", []events.Body{completion("e"), events.Acknowledged{By: "wait", Execution: "e"}}, f)
	}
	crumb, ok := live.Get("e")
	if !ok || crumb.Execution != "e" || crumb.Row != 1 || !crumb.LearnedAt.Equal(time.Unix(11, 0)) || crumb.LearnedBy != "wait" {
		t.Errorf("the breadcrumb is %+v", crumb)
	}
	if shown, err := json.Marshal(crumb); err != nil || strings.Contains(string(shown), "swordfish") {
		t.Errorf("it holds output: %s, %v", shown, err)
	}
	if !reflect.DeepEqual(live.List(), rebuilt.List()) {
		t.Error("rebuilt, it is another")
	}
}

// Completions of other owners are forwarded to those above them, and those that
// follow each other are one counted line.
func TestM19_CountedCompletions(t *testing.T) {
	rows := projections.NewTranscript("s")
	failed := background("two")
	failed[4] = events.Settled{Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeFailure, ExitCode: code(1)}
	for i, bodies := range [][]events.Body{background("one"), failed, background("three"), background("four")} {
		owner, start := "/root/a/nested", uint64(100*i)
		if i > 2 {
			owner, start = "/root/b", 500
			tell(450, "/root", "own", []events.Body{events.Requested{Command: "own"}}, rows)
		}
		tell(start+1, owner, fmt.Sprint("e", i), bodies, rows)
		tell(start+20, owner, fmt.Sprint("e", i), []events.Body{completion(fmt.Sprint("e", i))}, rows)
	}
	for owner, want := range map[string]string{
		"/root":          `● 3 completions of other owners: 2 completed, 1 failed|own|● Background command "four" completed (exit code 0)`,
		"/root/a":        "● 3 completions of other owners: 2 completed, 1 failed",
		"/root/a/nested": `"one" make|"two" make|"three" make`,
		"/root/b":        `"four" make`,
		"/ro":            "",
		"":               `"one" make|"two" make|"three" make|own|"four" make`,
	} {
		var got []string
		for _, r := range rows.Rows(owner) {
			got = append(got, r.Text)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%q sees %q", owner, got)
		}
	}
	group := rows.Rows("/root")[0]
	if len(group.Notices) != 3 || group.Execution != "" || group.Notices[1].Execution != "e1" || *group.Notices[1].ExitCode != 1 ||
		group.Notices[1].Text != `● Background command "two" failed (exit code 1)` || group.Seq != group.Notices[0].Seq {
		t.Errorf("the group is %+v", group)
	}
	if again := rows.Rows("/root")[0]; len(again.Notices) != 3 {
		t.Errorf("looked at again: %+v", again)
	}
}

func TestM21_CompletionsStandWhereTheyArrived(t *testing.T) {
	rows := projections.NewTranscript("s")
	tell(1, "/root/a", "theirs", background("build")[:3], rows)
	tell(10, "/root", "first", []events.Body{events.Requested{Command: "one"}}, rows)
	tell(20, "/root/a", "theirs", background("build")[4:], rows)
	tell(21, "/root/a", "m", []events.Body{completion("theirs")}, rows)
	tell(30, "/root", "second", []events.Body{events.Requested{Command: "two"}}, rows)
	var got []string
	for _, r := range rows.Rows("/root") {
		got = append(got, r.Text)
	}
	if want := `one|● Background command "build" completed (exit code 0)|two`; strings.Join(got, "|") != want {
		t.Errorf("the rows are %q", got)
	}
}

// The order is that of the sequences, and no duration is negative, also when the
// clock steps back in the middle.
func TestAClockThatStepsBackOrdersNothing(t *testing.T) {
	rows, processes, crumbs := projections.NewTranscript("s"), projections.NewProcesses(), projections.NewBreadcrumbs()
	at := func(seq uint64, clock int64, subject string, b events.Body) {
		e := events.Event{Seq: seq, Time: time.Unix(clock, 0).UTC(), Session: "s", Owner: "/root", Subject: subject, Body: b}
		if e.Class() == events.ClassOutput {
			e.Seq = 0
		}
		for _, f := range []projections.Fold{rows, processes, crumbs} {
			f.Apply(e)
		}
	}
	seq := uint64(0)
	for i, clock := range []int64{5000, 3000, 1000} {
		id := fmt.Sprint("e", i)
		for j, b := range background(id) {
			seq++
			at(seq, clock-int64(100*j), id, b)
		}
	}
	var got []string
	for _, r := range rows.Rows("") {
		got = append(got, r.Execution)
	}
	if strings.Join(got, " ") != "e0 e1 e2" {
		t.Errorf("the rows are %q", got)
	}
	var newest []string
	for p := range processes.All() {
		if newest = append(newest, p.Execution); p.Duration() < 0 || len(p.Anomalies) > 0 {
			t.Errorf("%s took %s, %v", p.Execution, p.Duration(), p.Anomalies)
		}
	}
	if strings.Join(newest, " ") != "e2 e1 e0" {
		t.Errorf("newest first: %q", newest)
	}
	for i, c := range crumbs.List() {
		if c.Execution != fmt.Sprint("e", i) {
			t.Errorf("breadcrumb %d is of %s", i, c.Execution)
		}
	}
}
