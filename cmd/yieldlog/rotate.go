package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
)

func newRotate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Change the ledger's credentials",
		Long: `Change the ledger's credentials, of writers, subscribers and sinks. Yieldlog's own
processes reconnect by themselves; the others need the new credentials, which
yieldlog subscriber and yieldlog sink print.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.writing(c.Context(), func(l *ledger.Ledger) error {
				if err := l.Rotate(c.Context()); err != nil {
					return err
				}
				if a.json {
					return a.printJSON("rotated", true)
				}
				_, err := fmt.Fprintln(a.out, "the credentials are new; see yieldlog subscriber and yieldlog sink")
				return err
			})
		},
	}
}
