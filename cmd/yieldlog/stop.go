package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newStop(a *app) *cobra.Command {
	var (
		all   bool
		owner ownerPath
		o     producers.StopOptions
	)
	c := &cobra.Command{
		Use:   "stop [ID]",
		Short: "End an execution, everything of a session, or everything",
		Long: `End an execution, everything of a session, or, with --all, everything that
runs. The process that owns it does the work: it sends the signal to the whole
process tree, SIGKILL after --force-after, and records both.`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return usageError{errors.New("name an execution or a session, or give --all")}
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			o.ForceAfter = max(o.ForceAfter, time.Nanosecond) // 0 is at once, and to a session the default
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				targets, err := stopTargets(c.Context(), l, args, string(owner))
				if err != nil {
					return err
				}
				return a.stop(c.Context(), l, targets, o)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "end everything that runs, of every session")
	c.Flags().Var(&owner, "owner", "only what this owner runs, for example /root/reviewer")
	c.Flags().StringVar(&o.Signal, "signal", "SIGTERM", "the first signal")
	c.Flags().DurationVar(&o.ForceAfter, "force-after", 3*time.Second, "the time from the signal to SIGKILL")
	return c
}

// stopTargets is what runs of the named execution or session, or of everything.
func stopTargets(ctx context.Context, l *ledger.Ledger, args []string, owner string) ([]projections.Process, error) {
	var f events.Filter
	if len(args) == 1 {
		id, err := resolveID(ctx, l, args[0])
		if err != nil {
			return nil, err
		}
		f = events.Filter{Session: id.session, ID: id.execution}
	}
	processes, err := foldProcesses(ctx, l, f, moment{})
	if err != nil {
		return nil, err
	}
	var targets []projections.Process
	for _, p := range processes.Live() {
		if owner == "" || p.Owner == owner {
			targets = append(targets, p)
		}
	}
	if len(targets) == 0 && f.ID != "" {
		return nil, fmt.Errorf("%s has already ended", f.ID)
	}
	return targets, nil
}

// A stopped is what became of one execution.
type stopped struct {
	ProcessID string        `json:"process_id"`
	Command   string        `json:"-"`
	Stopped   bool          `json:"stopped"`
	Status    events.Status `json:"status,omitempty"`
	Error     string        `json:"error,omitempty"`
}

// stop asks the owner of each target, all at the same time.
func (a *app) stop(ctx context.Context, l *ledger.Ledger, targets []projections.Process, o producers.StopOptions) error {
	results := make(chan stopped)
	for _, p := range targets {
		go func() { results <- stopOne(ctx, l, p, o) }()
	}
	list := make([]stopped, 0, len(targets))
	failed := 0
	for range targets {
		r := <-results
		if r.Error != "" {
			failed++
		}
		if list = append(list, r); !a.json {
			fmt.Fprintf(a.out, "%s  %s%s  %s\n", look.Short(r.ProcessID), r.Status, r.Error, r.Command)
		}
	}
	if len(targets) == 0 && !a.json {
		fmt.Fprintln(a.err, "yieldlog: nothing runs")
	}
	if a.json {
		if err := a.printJSON("stopped", list); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d could not be stopped", failed, len(targets))
	}
	return nil
}

func stopOne(ctx context.Context, l *ledger.Ledger, p projections.Process, o producers.StopOptions) stopped {
	r, err := producers.AskStop(ctx, l, p.Session, p.Execution, o)
	s := stopped{ProcessID: p.Execution, Command: title(p), Stopped: r.Stopped, Status: r.Status}
	if errors.Is(err, ledger.ErrNoSession) || errors.Is(err, producers.ErrEnded) || errors.Is(err, producers.ErrClosed) {
		return stoppedMeanwhile(ctx, l, p, s)
	}
	if err != nil {
		s.Error = err.Error()
	}
	return s
}

// stoppedMeanwhile looks again when the session is gone or the execution over: a
// server whose last command is stopped may end before it has answered, and a
// request may arrive twice.
func stoppedMeanwhile(ctx context.Context, l *ledger.Ledger, p projections.Process, s stopped) stopped {
	s.Status = ""
	now, err := foldExecution(ctx, l, named{p.Session, p.Execution}, moment{})
	switch {
	case err != nil:
		s.Error = err.Error()
	case now.Settled == nil && l.Alive(p.Session):
		s.Error = "its session is closing, and ends it"
	case now.Settled == nil:
		s.Error = "its server is dead; the next one to open the ledger declares it lost"
	default:
		s.Status, s.Stopped = now.Status, now.Status == events.StatusStopped
	}
	return s
}
