package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newEvents(a *app) *cobra.Command {
	var (
		follow bool
		expr   string
		from   string
	)
	c := &cobra.Command{
		Use:   "events [ID]",
		Short: "Print the facts: of everything, of a session, or of an execution",
		Long: `Print the lifecycle events, one a line; with --json as JSON lines. With -f it
goes on after the last one with what happens; --from now leaves out the rest.

A filter is a list of words, separated by commas. A kind (settled) or a class
(mailbox) selects events; several of them select all that are named. A
name=value must hold too: session, owner, execution, or a field of the event's
body. name!=value must not hold.

  yieldlog events --filter settled
  yieldlog events -f --filter 'settled,refused,outcome=failure,owner=/root'`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			f, err := parseEventFilter(expr)
			if err != nil {
				return usageError{err}
			}
			m, err := parseMoment(from, time.Now())
			if err != nil {
				return usageError{err}
			}
			f.since = m.time
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				subjects, err := a.selectEvents(c.Context(), l, args)
				if err != nil {
					return err
				}
				return a.printEvents(c.Context(), eventSource(c.Context(), l, subjects, max(m.seq, 1), follow), f)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "after what there is, go on with what happens")
	c.Flags().StringVar(&expr, "filter", "", "print only these, for example 'settled,outcome=failure'")
	c.Flags().StringVar(&from, "from", "", "begin at a sequence, now, or at "+timeHelp)
	return c
}

// selectEvents is the subjects of the session or execution that is named, if one is.
func (a *app) selectEvents(ctx context.Context, l *ledger.Ledger, args []string) (events.Filter, error) {
	if len(args) == 0 {
		return events.Filter{}, nil
	}
	id, err := resolveID(ctx, l, args[0])
	if err != nil {
		return events.Filter{}, err
	}
	if id.execution == "" {
		return events.Filter{Session: id.session}, nil
	}
	return events.Filter{Session: id.session, ID: id.execution}, nil
}

func eventSource(ctx context.Context, l *ledger.Ledger, f events.Filter, from uint64, follow bool) iter.Seq2[events.Event, error] {
	if follow {
		return l.Follow(ctx, f, from)
	}
	return l.Read(ctx, f, from, 0)
}

// printEvents prints the events that the filter lets through. Being
// interrupted is the way to end following.
func (a *app) printEvents(ctx context.Context, source iter.Seq2[events.Event, error], f eventFilter) error {
	for e, err := range source {
		if err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil
			}
			return fmt.Errorf("reading the ledger: %w", err)
		}
		if !f.match(e) {
			continue
		}
		if err := a.printEvent(e); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printEvent(e events.Event) error {
	if a.json {
		return a.printLine(replay.NewEventLine(e))
	}
	_, err := fmt.Fprintf(a.out, "%6d  %s  %s  %-12s %s\n",
		e.Seq, e.Time.Local().Format("2006-01-02 15:04:05.000"), look.Short(e.Subject), e.Kind(), describe(e))
	return err
}
