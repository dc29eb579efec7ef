package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
)

func newSink(a *app) *cobra.Command {
	var (
		env, remove bool
		natsContext string
	)
	c := &cobra.Command{
		Use:   "sink [OWNER]",
		Short: "Let another program take an owner's mail",
		Long: `Let another program take the mail of one owner, /root for example, in place of
its agent: what was posted in any session and not told yet, each record once.
Print how any NATS client connects to do it: there is a JetStream pull consumer
named sink, of the stream MAILBOX, and the program may take from it, and
acknowledge, and nothing else. Without OWNER, list the sinks.

  eval "$(yieldlog sink /root --env)"          # for the nats command and the examples
  yieldlog sink /root --nats-context mail      # nats --context mail consumer next MAILBOX sink --ack

What a sink was given nobody else is told, and what it acknowledges is taken:
yieldlog mailbox shows it. If it does not acknowledge within 30 seconds, it is
offered again, to everybody. docs/subscribing.md says more.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				if env || remove || c.Flags().Changed("nats-context") {
					return usageError{errors.New("name the OWNER")}
				}
				return a.listSinks()
			}
			var owner ownerPath
			if err := owner.Set(args[0]); err != nil {
				return usageError{err}
			}
			if remove {
				return a.removeSink(c.Context(), string(owner))
			}
			s, err := a.ensureSink(c.Context(), string(owner))
			if err != nil {
				return err
			}
			if c.Flags().Changed("nats-context") {
				return a.writeNATSContext(natsContext, "the mail of "+s.Owner, s.URL, s.User, s.Password)
			}
			return a.printSink(s, env)
		},
	}
	c.Flags().BoolVar(&env, "env", false, "print shell commands that set NATS_URL, NATS_USER and NATS_PASSWORD")
	c.Flags().StringVar(&natsContext, "nats-context", "", "write a context of this name for the nats command")
	c.Flags().BoolVar(&remove, "remove", false, "void the owner's credentials")
	return c
}

func (a *app) sinks() ([]ledger.Sink, error) {
	dir, err := a.existing()
	if err != nil {
		return nil, err
	}
	return ledger.ReadSinks(dir)
}

// findSink is the owner's sink, if there is one.
func (a *app) findSink(owner string) (ledger.Sink, bool, error) {
	list, err := a.sinks()
	i := slices.IndexFunc(list, func(s ledger.Sink) bool { return s.Owner == owner })
	if err != nil || i < 0 {
		return ledger.Sink{}, false, err
	}
	return list[i], true, nil
}

// removeSink refuses an owner without one: a slip of the pen would leave the
// credentials that were meant.
func (a *app) removeSink(ctx context.Context, owner string) error {
	_, ok, err := a.findSink(owner)
	if err != nil {
		return err
	}
	if !ok {
		return usageError{fmt.Errorf("%s has no sink", owner)}
	}
	if err := a.changeSink(ctx, func(l *ledger.Ledger) error { return l.RemoveSink(ctx, owner) }); err != nil {
		return err
	}
	if a.json {
		return a.printJSON("removed", owner)
	}
	return nil
}

// ensureSink is the owner's sink, which is made if there is none.
func (a *app) ensureSink(ctx context.Context, owner string) (ledger.Sink, error) {
	s, ok, err := a.findSink(owner)
	if err != nil || ok {
		return s, err
	}
	if err := a.changeSink(ctx, func(l *ledger.Ledger) error { return l.AddSink(ctx, owner) }); err != nil {
		return s, err
	}
	if s, ok, err = a.findSink(owner); err == nil && !ok {
		err = fmt.Errorf("the sink of %s was removed meanwhile; try again", owner)
	}
	return s, err
}

func (a *app) changeSink(ctx context.Context, change func(*ledger.Ledger) error) error {
	err := a.writing(ctx, change)
	if errors.Is(err, ledger.ErrSink) {
		return usageError{err}
	}
	return err
}

func (a *app) printSink(s ledger.Sink, env bool) error {
	if !s.Hosted {
		fmt.Fprintln(a.err, "yieldlog: nobody hosts the ledger now: start an MCP server, or `yieldlog serve`")
	}
	if a.json {
		return a.printJSON("sink", s)
	}
	if env {
		_, err := fmt.Fprintf(a.out, envFormat, s.URL, s.User, s.Password)
		return err
	}
	_, err := fmt.Fprintf(a.out, "owner     %s\nurl       %s\nuser      %s\npassword  %s\nstream    %s\nconsumer  %s\n",
		s.Owner, s.URL, s.User, s.Password, s.Stream, s.Consumer)
	return err
}

func (a *app) listSinks() error {
	list, err := a.sinks()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON("sinks", list)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OWNER\tUSER\tURL")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\n", oneLine(s.Owner, 60), s.User, s.URL)
	}
	return w.Flush()
}
