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
)

func newPrune(a *app) *cobra.Command {
	var (
		older time.Duration
		most  int64
	)
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete old output on purpose, and give the disk back",
		Long: `Delete the oldest output, a whole sealed segment at a time, until what is left is
younger than --older-than or smaller than --to-bytes. What happened stays on
record, and so does the fact that output was deleted. The host does the same by
itself before the ledger reaches its size limit (see yieldlog config).`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("older-than") == c.Flags().Changed("to-bytes") {
				return usageError{errors.New("give --older-than or --to-bytes")}
			}
			return a.writing(c.Context(), func(l *ledger.Ledger) error {
				prune := func() (ledger.PruneReport, error) { return l.Prune(c.Context(), most, "asked", notePruned(l)) }
				if c.Flags().Changed("older-than") {
					prune = func() (ledger.PruneReport, error) {
						return l.PruneBefore(c.Context(), time.Now().Add(-older), "asked", notePruned(l))
					}
				}
				r, err := prune()
				if err != nil {
					return err
				}
				return a.printPruned(r)
			})
		},
	}
	c.Flags().DurationVar(&older, "older-than", 0, "delete output that is older, for example 720h")
	c.Flags().Int64Var(&most, "to-bytes", 0, "delete until the ledger has at most so many bytes")
	return c
}

func (a *app) printPruned(r ledger.PruneReport) error {
	if a.json {
		return a.printJSON("pruned", r)
	}
	_, err := fmt.Fprintf(a.out, "deleted %s of output, of %d executions\n", size(r.Bytes), r.Executions)
	return err
}

// notePruned records what is pruned through the session that it belongs to.
func notePruned(l *ledger.Ledger) ledger.NotePruned {
	return func(ctx context.Context, session, owner, execution string, p events.Pruned) error {
		return producers.NotePruned(ctx, l, session, owner, execution, p)
	}
}
