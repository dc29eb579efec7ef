package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newShow(a *app) *cobra.Command {
	var (
		tail int
		at   string
	)
	c := &cobra.Command{
		Use:               "show ID[@OFFSET]",
		Short:             "Print one execution: its facts, and the end of its output, or what is at an offset",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				suffix, offset, err := splitAddress(args[0])
				if err != nil {
					return err
				}
				id, err := resolveExecution(c.Context(), l, suffix)
				if err != nil {
					return err
				}
				m, err := pastMoment(c.Context(), l, at)
				if err != nil {
					return err
				}
				p, err := foldExecution(c.Context(), l, id, m)
				if err != nil {
					return err
				}
				if shown := []projections.Process{p}; at == "" {
					markDead(l, shown)
					p = shown[0]
				}
				if a.json {
					return a.printJSON("process", jsonProcess(p))
				}
				if err := a.printFacts(p, at == ""); err != nil {
					return err
				}
				return a.printExcerpt(c.Context(), l, p, offset, tail, m.time)
			})
		},
	}
	c.Flags().IntVarP(&tail, "lines", "n", 20, "so many lines of the output; 0 is none")
	c.Flags().StringVar(&at, "at", "", atHelp)
	return c
}

// foldExecution is one execution's facts, now or as they were.
func foldExecution(ctx context.Context, l *ledger.Ledger, id named, at moment) (projections.Process, error) {
	processes, err := foldProcesses(ctx, l, events.Filter{Session: id.session, ID: id.execution}, at)
	if err != nil {
		return projections.Process{}, err
	}
	p, ok := processes.Get(id.execution)
	if !ok {
		return p, fmt.Errorf("%w: %s was not there yet", errNotFound, id.execution)
	}
	return p, nil
}

// printFacts prints what is known of the execution. Of one that runs, the time so far
// is known only now.
func (a *app) printFacts(p projections.Process, now bool) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fact := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	fact("execution", "%s", p.Execution)
	fact("session", "%s", p.Session)
	fact("owner", "%s", oneLine(p.Owner, 200))
	if p.Requested.Name != "" {
		fact("name", "%s", oneLine(p.Requested.Name, 200))
	}
	fact("command", "%s", oneLine(p.Requested.Command, 2000))
	if p.Requested.Cwd != "" { // a refusal may come before it is known
		fact("directory", "%s", oneLine(p.Requested.Cwd, 2000))
	}
	fact("declared", "%s", strings.Join(p.Requested.SideEffects, ", "))
	fact("requested", "%s", p.RequestedAt.Local().Format("2006-01-02 15:04:05.000"))
	if p.PID != 0 {
		fact("pid", "%d", p.PID)
	}
	if p.Requested.TTY != nil {
		fact("terminal", "%d x %d", p.Size.Cols, p.Size.Rows)
	}
	if p.Yielded {
		fact("yielded", "after %s", duration(p.YieldedAt.Sub(p.RequestedAt)))
	}
	fact("state", "%s", stateWords(p))
	if p.Refused != nil {
		fact("refused", "%s", oneLine(p.Refused.Message, 500))
	}
	if s := p.Settled; s != nil {
		settledFacts(fact, *s)
	} else if now && p.State == projections.StateRunning {
		fact("took", "%s so far", took(p, time.Now()))
	}
	if n := p.PrunedIn(0, -1); n > 0 {
		fact("pruned", "%s of the output", look.Bytes(n))
	}
	for _, anomaly := range p.Anomalies {
		fact("anomaly", "%s", anomaly)
	}
	return w.Flush()
}

func settledFacts(fact func(name, format string, args ...any), s events.Settled) {
	by := string(s.Termination)
	if s.Signal != "" {
		by += ", " + s.Signal
	} else if s.ExitCode != nil {
		by += fmt.Sprintf(", exit code %d", *s.ExitCode)
	}
	fact("ended by", "%s", by)
	fact("outcome", "%s", s.Outcome)
	fact("took", "%s", millis(s.DurationMS))
	if s.TTY.Bytes > 0 {
		fact("output", "%s", look.Bytes(s.Offset))
	} else {
		fact("output", "%s (stdout %s, stderr %s)", look.Bytes(s.Offset), look.Bytes(s.Stdout.Bytes), look.Bytes(s.Stderr.Bytes))
	}
	if s.Error != "" {
		fact("error", "%s", oneLine(s.Error, 500))
	}
	for _, d := range s.Descendants {
		fact("outlived it", "pid %d, %s", d.PID, oneLine(d.Name, 80))
	}
}
