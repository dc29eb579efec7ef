package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newVerify(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "verify [SESSION]",
		Short: "Prove that nothing is missing, altered or out of order",
		Long: `Check the ledger, or one session of it: sequences without gaps, the hash chain
of each session, the order rules, output without gaps or overlaps, its counts
and digests. Output that was pruned on purpose is no finding.`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				f, err := a.selectEvents(c.Context(), l, args)
				if err != nil {
					return err
				}
				v, err := replay.Verify(c.Context(), l, f.Session)
				if err != nil {
					return fmt.Errorf("reading the ledger: %w", err)
				}
				return a.printVerification(v)
			})
		},
	}
}

func (a *app) printVerification(v replay.Verification) error {
	if a.json {
		if err := a.printJSON("verification", v); err != nil {
			return err
		}
	} else {
		for _, f := range v.Findings {
			fmt.Fprintf(a.out, "%-9s %6d  %s  %s\n", f.Check, f.Seq, look.Short(f.Execution), f.Text)
		}
		if _, err := fmt.Fprintf(a.out, "%s, %s, %s, %s of output (%s pruned): %s\n",
			look.Count(v.Events, "event"), look.Count(v.Sessions, "session"), look.Count(v.Executions, "execution"),
			look.Bytes(v.OutputBytes), look.Bytes(v.PrunedBytes), look.Count(len(v.Findings), "finding")); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	if !v.OK() {
		return fmt.Errorf("%w: %d things are wrong", errFindings, len(v.Findings))
	}
	return nil
}
