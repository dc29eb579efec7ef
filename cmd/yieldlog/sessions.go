package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newSessions(a *app) *cobra.Command {
	var (
		limit int
		at    string
	)
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions, newest first, and how their commands ended",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				sessions := projections.NewSessions()
				m, err := pastMoment(c.Context(), l, at)
				if err != nil {
					return err
				}
				if err := runFold(c.Context(), l, events.Filter{}, m, sessions); err != nil {
					return err
				}
				list, left := atMost(sessions.List(), limit)
				defer a.tellLeft(left)
				return a.printSessions(list)
			})
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 20, "at most so many; 0 is all")
	c.Flags().StringVar(&at, "at", "", atHelp)
	return c
}

// openedBy names the client, or the program where there is none.
func openedBy(o events.Opened) string {
	if o.Client != "" {
		return oneLine(o.Client, 40)
	}
	return o.Program
}

// sessionState says beside lost commands why a session was closed all the same:
// its server did it, when its guardian was killed.
func sessionState(s projections.Session) string {
	if s.State == projections.SessionClosed && s.Lost > 0 {
		return s.State + ", " + oneLine(s.Reason, 40)
	}
	return s.State
}

func (a *app) printSessions(list []projections.Session) error {
	if a.json {
		return a.printJSON("sessions", list)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tOPENED\tBY\tSTATE\tCOMMANDS\tRUNNING\tFAILED\tSTOPPED\tLOST\tDIRECTORY")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", look.Short(s.ID), s.At.Local().Format("Jan 02 15:04:05"),
			openedBy(s.Opened), sessionState(s), s.Executions, s.Running, s.Failed+s.TimedOut, s.Stopped-s.Lost, s.Lost, oneLine(s.Opened.Cwd, 60))
	}
	return w.Flush()
}
