package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func newServe(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Host the ledger until interrupted",
		Long: `Host the ledger until interrupted. Nobody needs this: whoever opens the ledger
first hosts it, and another process takes over when that one ends. It is for
subscribers that want a server which stays.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			cfg, _, err := a.config()
			if err != nil {
				return err
			}
			l, err := a.openLedger(c.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			dir, _, _ := a.stateDir() // it was fine a moment ago
			fmt.Fprintln(a.err, "yieldlog: serving the ledger in", dir)
			<-c.Context().Done()
			return nil
		},
	}
}
