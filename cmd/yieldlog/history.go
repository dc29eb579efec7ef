package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
)

func newFork(a *app) *cobra.Command {
	var at uint64
	c := &cobra.Command{
		Use:   "fork SESSION",
		Short: "Begin a session with the history of another, without its executions",
		Long: `Begin a session with the history of another up to a point, without its executions,
and print its id. The other session stays as it is. (An MCP server whose own
session is a fork: yieldlog mcp --fork SESSION.)`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			cfg, _, err := a.config()
			if err != nil {
				return err
			}
			return a.writing(ctx, func(l *ledger.Ledger) error {
				from, err := resolveID(ctx, l, args[0])
				if err != nil {
					return err
				}
				id, err := producers.Fork(ctx, l, cfg, events.Opened{Program: "fork", Version: buildVersion()}, from.session, at)
				if err != nil {
					return pointError(err)
				}
				if a.json {
					return a.printJSON("fork", map[string]string{"session": id, "from": from.session})
				}
				_, err = fmt.Fprintln(a.out, id)
				return err
			})
		},
	}
	c.Flags().Uint64Var(&at, "at", 0, "the last sequence that is shared (default: all)")
	return c
}

func newRewind(a *app) *cobra.Command {
	var to uint64
	c := &cobra.Command{
		Use:   "rewind SESSION --to SEQ",
		Short: "Hide what a session did after a point",
		Long: `Hide what a session did after a sequence (yieldlog events shows them): agents and
lists do not see it any more. Nothing is erased. It is refused while executions of
the session are live.`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if to == 0 {
				return usageError{errors.New("--to SEQ is missing")}
			}
			return a.writing(ctx, func(l *ledger.Ledger) error {
				id, err := resolveID(ctx, l, args[0])
				if err != nil {
					return err
				}
				if err := producers.Rewind(ctx, l, id.session, to); err != nil {
					return pointError(err)
				}
				if a.json {
					return a.printJSON("rewind", map[string]any{"session": id.session, "to": to})
				}
				return nil
			})
		},
	}
	c.Flags().Uint64Var(&to, "to", 0, "the last sequence that stays")
	return c
}

// pointError marks a wrong point as a wrong use.
func pointError(err error) error {
	if errors.Is(err, producers.ErrNoPoint) {
		return usageError{err}
	}
	return err
}
