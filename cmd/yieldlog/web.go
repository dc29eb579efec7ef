package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay/web"
)

func newWeb(a *app) *cobra.Command {
	var addr string
	c := &cobra.Command{
		Use:   "web",
		Short: "Show what runs and what ran in a browser",
		Long: `Serve a page on this machine until interrupted: what runs, with its last lines,
what ran, any session's timeline, transcript and mailbox, recordings, and all of
it as of any moment. Looking changes nothing for an agent.

The link that is printed lets one browser in, once. Press Enter for another.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			cfg, _, err := a.config()
			if err != nil {
				return err
			}
			listener, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", addr)
			if err != nil {
				return usageError{fmt.Errorf("listening on %s: %w", addr, err)}
			}
			defer listener.Close() // again, if the page did
			l, err := a.openLedger(c.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			s, err := web.New(listener, web.Options{Ledger: l, Stop: stopThrough(l), Logger: a.logger()})
			if err != nil {
				return usageError{err}
			}
			if err := a.printLink(s); err != nil {
				return err
			}
			if f, ok := a.out.(*os.File); ok && !a.json && term.IsTerminal(f.Fd()) {
				fmt.Fprintln(a.err, "yieldlog: open this in a browser; it works once. Enter prints another, Ctrl-C ends.")
			}
			go a.moreLinks(s) // ends with its input, or with the program
			return s.Run(c.Context())
		},
	}
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "loopback address and port; port 0 takes a free one")
	return c
}

func (a *app) printLink(s *web.Server) error {
	if a.json {
		return a.printJSON("url", s.Link())
	}
	if _, err := fmt.Fprintln(a.out, s.Link()); err != nil {
		return fmt.Errorf("printing the link: %w", err)
	}
	return nil
}

// moreLinks prints a link for each line that is entered.
func (a *app) moreLinks(s *web.Server) {
	for in := bufio.NewScanner(a.in); in.Scan(); {
		if a.printLink(s) != nil {
			return
		}
	}
}

// stopThrough stops what runs by asking the process of its session, which is
// the session's one writer. An empty execution stands for all of an owner.
func stopThrough(l *ledger.Ledger) func(ctx context.Context, session, owner, execution string) error {
	return func(ctx context.Context, session, owner, execution string) error {
		if execution == "" {
			return producers.AskStopOwner(ctx, l, session, owner)
		}
		_, err := producers.AskStop(ctx, l, session, execution, producers.StopOptions{})
		return err
	}
}
