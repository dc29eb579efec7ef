//go:build linux

package crash

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// check waits until nothing of the round lives, lets the next process open the
// ledger, and holds the ledger to the rules and to what the clients were told.
func (r *round) check() {
	began := time.Now()
	if !soon(patience, func() bool { return len(r.left()) == 0 }) {
		r.t.Errorf("these outlived their servers: %v", r.left())
	}
	gone := time.Since(began)
	if err := r.inherit(); err != nil {
		r.t.Fatalf("the next process to open the ledger: %v", err)
	}
	l, err := ledger.Open(context.Background(), ledger.Options{Dir: r.dir, ReadOnly: true})
	if err != nil {
		r.t.Fatalf("opening the ledger: %v", err)
	}
	defer l.Close()
	h := r.read(l)
	h.rules()
	h.ends()
	h.starts()
	h.contents()
	h.mail()
	for _, a := range r.answers {
		if err := h.kept(a); err != nil {
			r.t.Errorf("%s answered of %s (%s) with status %q: %v", a.tool, a.ProcessID, a.plan.name, a.Status, err)
		}
	}
	r.logf("%d sessions, %d executions (%d lost), %d answers (%d refused), %d letters, told by %v; all gone after %v",
		len(h.sessions.List()), len(slices.Collect(h.processes.Everything())), h.lost, len(r.answers), r.refused, len(r.letters), h.tellers(), gone.Round(time.Millisecond))
}

// A history is the ledger as it was read.
type history struct {
	*round
	ledger    *ledger.Ledger
	processes *projections.Processes
	sessions  *projections.Sessions
	mailbox   *projections.Mailbox
	byName    map[string]projections.Process
	kinds     map[string]map[events.Kind]int // of each subject
	lost      int
}

func (r *round) read(l *ledger.Ledger) *history {
	h := &history{
		round: r, ledger: l, processes: projections.NewProcesses(), sessions: projections.NewSessions(),
		mailbox: projections.NewMailbox(), byName: map[string]projections.Process{}, kinds: map[string]map[events.Kind]int{},
	}
	for e, err := range l.Read(context.Background(), events.Filter{}, 1, 0) {
		if err != nil {
			r.t.Fatalf("reading the ledger: %v", err)
		}
		h.processes.Apply(e)
		h.sessions.Apply(e)
		h.mailbox.Apply(e)
		if h.kinds[e.Subject] == nil {
			h.kinds[e.Subject] = map[events.Kind]int{}
		}
		h.kinds[e.Subject][e.Kind()]++
	}
	for p := range h.processes.Everything() {
		h.byName[p.Requested.Name] = p
	}
	return h
}

// rules are those that replay.Verify knows: sequence, chain, order, offsets,
// counts, digests.
func (h *history) rules() {
	v, err := replay.Verify(context.Background(), h.ledger, "")
	if err != nil {
		h.t.Errorf("verifying: %v", err)
	}
	for _, f := range v.Findings {
		h.t.Errorf("verify: %s: session %s, execution %s, event %d: %s", f.Check, f.Session, f.Execution, f.Seq, f.Text)
	}
	if v.UnsettledExecutions > 0 {
		h.t.Errorf("%d executions of dead sessions are not settled", v.UnsettledExecutions)
	}
}

// ends holds every session, execution and record to its one end.
func (h *history) ends() {
	for _, s := range h.sessions.List() {
		if k := h.kinds[s.ID]; k[events.KindClosed]+k[events.KindLost] != 1 {
			h.t.Errorf("session %s has the events %v", s.ID, k)
		}
	}
	for p := range h.processes.Everything() {
		k := h.kinds[p.Execution]
		if k[events.KindSettled]+k[events.KindRefused] != 1 {
			h.t.Errorf("execution %s (%s) has the events %v", p.Execution, p.Requested.Name, k)
		}
		if p.Settled != nil && p.Settled.Status == events.StatusLost {
			h.lost++
		}
	}
}

// starts holds that nothing started unrecorded: each command told its execution.
func (h *history) starts() {
	text, err := os.ReadFile(h.startedFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Error(err)
	}
	seen := map[string]bool{}
	for id := range strings.FieldsSeq(string(text)) {
		if h.kinds[id][events.KindRequested] != 1 {
			h.t.Errorf("%s ran and is not in the ledger", id)
		}
		if seen[id] {
			h.t.Errorf("%s ran twice", id)
		}
		seen[id] = true
	}
}

// contents compares what was recorded with what the commands write.
func (h *history) contents() {
	for p := range h.processes.Everything() {
		made, ok := h.book[p.Requested.Name]
		if !ok || len(p.Pruned) > 0 || h.wounded[p.Execution] {
			continue // of the wounded, the shell tells
		}
		stdout, stderr := h.output(p, 0, -1)
		whole := p.Settled != nil && p.Settled.Termination == events.TermExited && !made.endless
		if err := errors.Join(compare("stdout", stdout, made.stdout, whole), compare("stderr", stderr, made.stderr, whole)); err != nil {
			h.t.Errorf("execution %s (%s): %v", p.Execution, made.name, err)
		}
	}
}

// compare fails when got is not the beginning of want, or not all of it.
func compare(stream, got, want string, whole bool) error {
	if strings.HasPrefix(want, got) && (!whole || got == want) {
		return nil
	}
	return fmt.Errorf("%s is %.60q (%d bytes), where the command writes %.60q (%d bytes)", stream, got, len(got), want, len(want))
}

// output is what the ledger holds of a range of the output.
func (h *history) output(p projections.Process, from, to int64) (stdout, stderr string) {
	var out, errs strings.Builder
	for e, err := range h.ledger.Output(context.Background(), p.Session, p.Execution, from, to) {
		if err != nil {
			h.t.Errorf("reading the output of %s: %v", p.Execution, err)
			break
		}
		switch o := e.Body.(events.Output); o.Stream {
		case events.KindStdout:
			out.Write(o.Data)
		case events.KindStderr:
			errs.Write(o.Data)
		}
	}
	return out.String(), errs.String()
}

// kept holds that the ledger says what a client was told.
func (h *history) kept(a answer) error {
	p, ok := h.byName[a.plan.name]
	switch {
	case a.Status == "failed_to_start" && a.Reason == "ledger":
		h.refused++
		return nil
	case !ok:
		return errors.New("it is not in the ledger")
	case a.Status == "failed_to_start":
		return errors.New(a.Error)
	case a.tool == "terminal" && a.Truncated && len(p.Pruned) > 0:
		return nil
	case a.tool == "terminal":
		return compare("stdout", a.Stdout, a.plan.stdout, true)
	case a.ProcessID != p.Execution:
		return fmt.Errorf("the ledger knows it as %s", p.Execution)
	case a.Status == "backgrounded":
		if k := h.kinds[p.Execution]; k[events.KindYielded]+k[events.KindQueued] == 0 {
			return fmt.Errorf("the ledger has no yield: %v", k)
		}
	case a.Status != "running":
		if err := sameEnd(a.observation, p.Settled); err != nil {
			return err
		}
	}
	if a.tool == "stop" || a.Truncated || len(p.Pruned) > 0 {
		return nil
	}
	stdout, stderr := h.output(p, a.StartSeq-1, a.NextSeq-1)
	if stdout != a.Stdout || stderr != a.Stderr {
		return fmt.Errorf("it showed %.60q and %.60q at [%d,%d), where the ledger has %.60q and %.60q",
			a.Stdout, a.Stderr, a.StartSeq-1, a.NextSeq-1, stdout, stderr)
	}
	return nil
}

func sameEnd(o observation, s *events.Settled) error {
	switch {
	case s == nil:
		return errors.New("the ledger has no settlement")
	case string(s.Status) != o.Status:
		return fmt.Errorf("it is settled as %s", s.Status)
	case (s.ExitCode == nil) != (o.ExitCode == nil) || s.ExitCode != nil && *s.ExitCode != *o.ExitCode:
		return errors.New("it is settled with another exit code")
	}
	return nil
}
