package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newPs(a *app) *cobra.Command {
	var (
		running, all bool

		limit int
		at    string
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
				m, err := pastMoment(c.Context(), l, at)
				if err != nil {
					return err
				}
				// An execution that is named is shown whatever became of it.
				list, err := selectProcesses(c.Context(), l, f, m, running, all || f.ID != "", oneMore(limit))
				if err != nil {
					return err
				}
				list, left := atMost(list, limit)
				if m.time.IsZero() {
					markDead(l, list)
					m.time = time.Now()
				}
				defer a.tellLeft(left)
				return a.printProcesses(list, m.time)
			})
		},
	}
	c.Flags().BoolVarP(&running, "running", "r", false, "only what runs")
	c.Flags().BoolVarP(&all, "all", "a", false, "also what its agent forgot with cleanup, what was rewound, and what was refused")
	c.Flags().IntVarP(&limit, "limit", "n", 20, "at most so many; 0 is all")
	c.Flags().StringVar(&at, "at", "", atHelp)
	return c
}

// oneMore is the limit that shows whether something is left out; 0 is none.
func oneMore(limit int) int {
	if limit > 0 && limit < math.MaxInt {
		limit++
	}
	return limit
}

// atMost is the first ones of a list, and whether others are left out.
func atMost[T any](list []T, limit int) ([]T, bool) {
	if limit > 0 && len(list) > limit {
		return list[:limit], true
	}
	return list, false
}

// tellLeft tells a person that a list is not whole.
func (a *app) tellLeft(left bool) {
	if left && !a.json {
		fmt.Fprintln(a.err, "yieldlog: older ones are left out; -n 0 lists all")
	}
}

// selectProcesses is what ps shows. Without a moment it does not read the whole
// ledger: the newest executions are at its end, and what runs is in a session
// that a process holds.
func selectProcesses(ctx context.Context, l *ledger.Ledger, f events.Filter, at moment, running, all bool, limit int) ([]projections.Process, error) {
	if at == (moment{}) && !running && !all && limit > 0 {
		return replay.Newest(ctx, l, f, limit)
	}
	sessions := []events.Filter{f}
	if at == (moment{}) && running && f == (events.Filter{}) {
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
		list = append(list, pick(processes, running, all, limit)...)
	}
	slices.SortFunc(list, newestFirst)
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, nil
}

func newestFirst(a, b projections.Process) int { return cmp.Compare(b.RequestedSeq, a.RequestedSeq) }

// foldProcesses is the process list, now or as it was at a sequence or time.
func foldProcesses(ctx context.Context, l *ledger.Ledger, f events.Filter, at moment) (*projections.Processes, error) {
	processes := projections.NewProcesses()
	if err := runFold(ctx, l, f, at, processes); err != nil {
		return nil, err
	}
	return processes, nil
}

// runFold drives folds to the end, or to a sequence or time.
func runFold(ctx context.Context, l *ledger.Ledger, f events.Filter, at moment, folds ...projections.Fold) error {
	engine := replay.NewEngine(folds...)
	var err error
	if at.seq == 0 && !at.time.IsZero() {
		err = engine.RunUntil(ctx, l, f, at.time)
	} else {
		err = engine.RunTo(ctx, l, f, at.seq)
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

// pick is the newest of those that run, or of those that are listed, or of all.
func pick(processes *projections.Processes, running, all bool, limit int) []projections.Process {
	var list []projections.Process
	from := processes.All()
	if all {
		from = slices.Values(slices.SortedFunc(processes.Everything(), newestFirst))
	}
	for p := range from {
		if running && !p.Live() {
			continue
		}
		if list = append(list, p); len(list) == limit {
			break
		}
	}
	return list
}

func (a *app) printProcesses(list []projections.Process, now time.Time) error {
	if a.json {
		rows := make([]processLine, 0, len(list))
		for _, p := range list {
			rows = append(rows, jsonProcess(p))
		}
		return a.printJSON("processes", rows)
	}
	if width, ok := a.screen(); ok {
		return printTable(&fitter{w: a.out, width: width}, list, now, true)
	}
	return printTable(a.out, list, now, false)
}

// printTable prints the list as of now. A narrow one leaves out what everybody knows: the
// day where it is today, and the owner where nobody else is.
func printTable(out io.Writer, list []projections.Process, now time.Time, narrow bool) error {
	day, owners := "Jan 02 15:04:05", true
	if narrow && !slices.ContainsFunc(list, func(p projections.Process) bool { return !sameDay(p.RequestedAt, now) }) {
		day = "15:04:05"
	}
	if narrow {
		owners = slices.ContainsFunc(list, func(p projections.Process) bool { return p.Owner != events.RootOwner })
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(id, started, took, state, output, owner, command string) {
		if owners {
			output += "\t" + owner
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", id, started, took, state, output, command)
	}
	row("ID", "STARTED", "TOOK", "STATE", "OUTPUT", "OWNER", "COMMAND")
	for _, p := range list {
		row(look.Short(p.Execution), p.RequestedAt.Local().Format(day), took(p, now), stateWords(p), outputSize(p), oneLine(p.Owner, 60), title(p))
	}
	return w.Flush()
}

func sameDay(a, b time.Time) bool {
	return a.Local().Format(time.DateOnly) == b.Local().Format(time.DateOnly)
}

// outputSize is how much the execution printed. While it runs, its end alone is
// not in the facts.
func outputSize(p projections.Process) string {
	if p.Live() && p.State != stateDead {
		return "-"
	}
	return look.Bytes(p.Offset)
}

// took is how long the execution ran, or has run.
func took(p projections.Process, now time.Time) string {
	switch {
	case p.Settled != nil:
		return duration(p.Duration())
	case p.SpawnedAt.IsZero(), p.State == stateDead:
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
		return projections.End(*p.Settled)
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
