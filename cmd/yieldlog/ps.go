package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

func newPs(a *app) *cobra.Command {
	var (
		running bool
		limit   int
		at      string
	)
	c := &cobra.Command{
		Use:               "ps [SESSION]",
		Short:             "List what runs and what ran, of every owner, newest first",
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				f, err := a.selectEvents(c.Context(), l, args)
				if err != nil {
					return err
				}
				list, err := selectProcesses(c.Context(), l, f, at, running, limit)
				if err != nil {
					return err
				}
				if at == "" {
					markDead(l, list)
				}
				return a.printProcesses(list)
			})
		},
	}
	c.Flags().BoolVarP(&running, "running", "r", false, "only what runs")
	c.Flags().IntVarP(&limit, "limit", "n", 20, "at most so many; 0 is all")
	c.Flags().StringVar(&at, "at", "", "as it was at a sequence or a time (RFC 3339, or 15:04 of today)")
	return c
}

// selectProcesses is what ps shows. Without a moment it does not read the whole
// ledger: the newest executions are at its end, and what runs is in a session
// that a process holds.
func selectProcesses(ctx context.Context, l *ledger.Ledger, f events.Filter, at string, running bool, limit int) ([]projections.Process, error) {
	if at == "" && !running && limit > 0 && f.ID == "" {
		return replay.Newest(ctx, l, f, limit)
	}
	sessions := []events.Filter{f}
	if at == "" && running && f == (events.Filter{}) {
		ids, err := l.Claimed()
		if err != nil {
			return nil, err
		}
		sessions = nil
		for _, id := range ids {
			sessions = append(sessions, events.Filter{Session: id})
		}
	}
	var list []projections.Process
	for _, f := range sessions {
		processes, err := foldProcesses(ctx, l, f, at)
		if err != nil {
			return nil, err
		}
		list = append(list, pick(processes, running, limit)...)
	}
	slices.SortFunc(list, func(a, b projections.Process) int { return cmp.Compare(b.RequestedSeq, a.RequestedSeq) })
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, nil
}

// foldProcesses is the process list, now or as it was at a sequence or time.
func foldProcesses(ctx context.Context, l *ledger.Ledger, f events.Filter, at string) (*projections.Processes, error) {
	processes := projections.NewProcesses()
	if err := runFold(ctx, l, f, at, processes); err != nil {
		return nil, err
	}
	return processes, nil
}

// runFold drives folds to the end, or to a sequence or time.
func runFold(ctx context.Context, l *ledger.Ledger, f events.Filter, at string, folds ...projections.Fold) error {
	m, err := parseMoment(at, time.Now())
	if err != nil {
		return usageError{err}
	}
	engine := replay.NewEngine(folds...)
	if !m.time.IsZero() {
		err = engine.RunUntil(ctx, l, f, m.time)
	} else {
		err = engine.RunTo(ctx, l, f, m.seq)
	}
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	return nil
}

// stateDead is the state of an execution whose server died, as long as nobody
// has opened the ledger to declare it lost.
const stateDead = "dead"

// markDead marks the executions that look alive and cannot be.
func markDead(l *ledger.Ledger, list []projections.Process) {
	for i, p := range list {
		if p.Live() && !l.Alive(p.Session) {
			list[i].State = stateDead
		}
	}
}

func pick(processes *projections.Processes, running bool, limit int) []projections.Process {
	var list []projections.Process
	for p := range processes.All() {
		if running && !p.Live() {
			continue
		}
		if list = append(list, p); len(list) == limit {
			break
		}
	}
	return list
}

func (a *app) printProcesses(list []projections.Process) error {
	if a.json {
		rows := make([]processLine, 0, len(list))
		for _, p := range list {
			rows = append(rows, jsonProcess(p))
		}
		return a.printJSON("processes", rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTARTED\tTOOK\tSTATE\tOUTPUT\tOWNER\tCOMMAND")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", shortID(p.Execution), p.RequestedAt.Local().Format("Jan 02 15:04:05"),
			took(p, time.Now()), stateWords(p), size(p.Offset), p.Owner, title(p))
	}
	return w.Flush()
}

// took is how long the execution ran, or has run.
func took(p projections.Process, now time.Time) string {
	switch {
	case p.Settled != nil:
		return duration(p.Duration())
	case p.SpawnedAt.IsZero():
		return "-"
	default:
		return duration(now.Sub(p.SpawnedAt))
	}
}

// stateWords is where the execution is, or how it ended.
func stateWords(p projections.Process) string {
	switch {
	case p.Refused != nil:
		return "refused, " + p.Refused.Reason
	case p.Settled != nil:
		return endWords(*p.Settled)
	default:
		return p.State
	}
}

// title is the execution's name and command on one line.
func title(p projections.Process) string {
	command := oneLine(p.Requested.Command, 80)
	if p.Requested.Name == "" {
		return command
	}
	return fmt.Sprintf("%s (%s)", oneLine(p.Requested.Name, 40), command)
}
