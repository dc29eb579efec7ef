package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
)

func newServe(a *app) *cobra.Command {
	var metrics string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Host the ledger until interrupted",
		Long: `Host the ledger until interrupted. Nobody needs this: whoever opens the ledger
first hosts it, and another process takes over when that one ends. It is for
subscribers and sinks that want a server which stays, and for metrics.

With --metrics it answers Prometheus at /metrics there: what runs and how it
ended, output, mailboxes, the ledger's size, and of each live session how long
appends take, how many wait, and whether they stall.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.creating(c.Context(), func(l *ledger.Ledger) error {
				defer producers.ServeSinks(l, nil)()
				defer producers.LookOut(l)()
				i, err := l.Info(c.Context())
				if err != nil {
					return err
				}
				if i.Role == "host" {
					fmt.Fprintln(a.err, "yieldlog: serving the ledger in", i.Dir)
				} else {
					fmt.Fprintf(a.err, "yieldlog: joined the ledger in %s, which process %d hosts; takes over when that one ends\n", i.Dir, i.Host)
				}
				if metrics != "" {
					return a.serveMetrics(c.Context(), l, metrics)
				}
				<-c.Context().Done()
				return nil
			})
		},
	}
	c.Flags().StringVar(&metrics, "metrics", "", "answer Prometheus here, for example 127.0.0.1:9464")
	return c
}
