package main

import (
	"errors"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/replay/cockpit"
)

func newTop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Show what runs and what ran in the terminal",
		Long: `Show what runs and what ran: the list with an inspector that opens in place,
stop, follow, search and replay at a key. ? lists the keys.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if f, ok := a.out.(*os.File); !ok || !term.IsTerminal(f.Fd()) {
				return usageError{errors.New("top needs a terminal; `yieldlog ps` prints the list")}
			}
			cfg, _, err := a.config()
			if err != nil {
				return err
			}
			l, err := a.openLedger(c.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			return cockpit.Run(c.Context(), cockpit.Options{Ledger: l, Stop: stopThrough(l), In: a.in, Out: a.out})
		},
	}
}
