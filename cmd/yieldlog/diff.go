package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newDiff(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Compare the facts and the output of two executions",
		Long: `Compare the facts and the output of two executions, line by line. The exit code is
1 when they differ.`,
		Args:              usageArgs(cobra.ExactArgs(2)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				var sides [2]projections.Process
				for i, arg := range args {
					id, err := resolveExecution(c.Context(), l, arg)
					if err != nil {
						return err
					}
					if sides[i], err = foldExecution(c.Context(), l, id, moment{}); err != nil {
						return err
					}
				}
				found, err := replay.Compare(c.Context(), l, sides[0], sides[1])
				if err != nil {
					return err
				}
				return a.printComparison(found)
			})
		},
	}
}

func (a *app) printComparison(c replay.Comparison) error {
	if a.json {
		if err := a.printJSON("comparison", c); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "\t%s\t%s\n", look.Short(c.A), look.Short(c.B))
		fmt.Fprintf(w, "took\t%s\t%s\n", millis(c.DurationA), millis(c.DurationB))
		if c.PrunedA+c.PrunedB > 0 {
			fmt.Fprintf(w, "output pruned\t%s\t%s\n", look.Bytes(c.PrunedA), look.Bytes(c.PrunedB))
		}
		for _, d := range c.Facts {
			fmt.Fprintf(w, "%s\t%s\t%s\n", d.Fact, oneLine(d.A, 60), oneLine(d.B, 60))
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		for _, s := range c.Streams {
			fmt.Fprintf(a.out, "\n%s: %s and %s\n%s", s.Stream, look.Bytes(s.BytesA), look.Bytes(s.BytesB), s.Diff)
		}
	}
	if !c.Same() {
		return statusError{1}
	}
	return nil
}
