package main

import (
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newMailbox(a *app) *cobra.Command {
	var (
		owner  ownerPath
		at     string
		unread bool
	)
	c := &cobra.Command{
		Use:   "mailbox [SESSION]",
		Short: "List what was posted to agents, and whether it reached them",
		Long: `List the completions and batches that were posted to agents, and whether they
reached them. Looking claims nothing.`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				f, err := a.selectEvents(c.Context(), l, args)
				if err != nil {
					return err
				}
				mailbox := projections.NewMailbox()
				m, err := pastMoment(c.Context(), l, at)
				if err != nil {
					return err
				}
				if err := runFold(c.Context(), l, events.Filter{Session: f.Session}, m, mailbox); err != nil {
					return err
				}
				list := slices.DeleteFunc(mailbox.List("", ""), func(r projections.Record) bool {
					return (owner != "" && r.Owner != string(owner)) || (unread && !r.AcknowledgedAt.IsZero()) || (f.ID != "" && r.Execution != f.ID)
				})
				return a.printMailbox(list)
			})
		},
	}
	c.Flags().Var(&owner, "owner", "only this owner's")
	c.Flags().BoolVar(&unread, "unread", false, "only what did not reach its owner")
	c.Flags().StringVar(&at, "at", "", atHelp)
	return c
}

func (a *app) printMailbox(list []projections.Record) error {
	if a.json {
		return a.printJSON("mailbox", append([]projections.Record{}, list...))
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tPOSTED\tOWNER\tSTATE\tBY\tNOTICE")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", look.Short(r.ID), r.At.Local().Format("Jan 02 15:04:05"),
			oneLine(r.Owner, 60), r.State, r.By, oneLine(r.Notice, 120))
	}
	return w.Flush()
}
