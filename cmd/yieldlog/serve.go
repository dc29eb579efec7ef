package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
)

func newServe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Host the ledger until interrupted",
		Long: `Host the ledger until interrupted. Nobody needs this: whoever opens the ledger
first hosts it, and another process takes over when that one ends. It is for
subscribers that want a server which stays.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.creating(c.Context(), func(*ledger.Ledger) error {
				dir, _, err := a.stateDir()
				fmt.Fprintln(a.err, "yieldlog: serving the ledger in", dir)
				<-c.Context().Done()
				return err
			})
		},
	}
}
