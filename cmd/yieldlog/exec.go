package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

// exitNotStarted is the status of exec when its command could not start.
const exitNotStarted = 125

func newExec(a *app) *cobra.Command {
	var r producers.Request
	c := &cobra.Command{
		Use:   "exec [flags] -- COMMAND [ARG...]",
		Short: "Run a command from here, recorded, and exit with its status",
		Long: `Run a command from the terminal and record it as an agent's would be.

One argument is a shell command; several are a program and its arguments. The
standard input goes to the command, and so do SIGINT, SIGTERM, SIGHUP and
SIGQUIT. The exit status is the command's, 128 and the number after a signal,
and 125 when it could not be started.`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			r.Command, r.Trace = commandText(args), os.Getenv("TRACEPARENT")
			return a.exec(c.Context(), r)
		},
	}
	c.Flags().StringVar(&r.Name, "name", "", "a label for people; commands take the id, not the label")
	c.Flags().StringVar(&r.Cwd, "cwd", "", "the directory to run in")
	c.Flags().DurationVar(&r.Timeout, "timeout", producers.DefaultDelay, "end the command after this time; 0 is never (default $YIELDLOG_DEFAULT_TIMEOUT_MS)")
	c.Flags().Lookup("timeout").DefValue = "0s" // what is zero is not printed
	// The command's own flags come after its name.
	c.Flags().SetInterspersed(false)
	return c
}

// commandText is the arguments as text for the shell.
func commandText(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	quoted := make([]string, 0, len(args))
	for _, arg := range args {
		q, err := syntax.Quote(arg, syntax.LangPOSIX)
		if err != nil { // it has no escapes for what does not print, and single quotes need none
			q = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted = append(quoted, q)
	}
	return strings.Join(quoted, " ")
}

// exec runs one command in a session of its own. Its output is printed from
// the ledger, so what the terminal shows is what a replay will show.
func (a *app) exec(ctx context.Context, r producers.Request) (err error) {
	cfg, _, err := a.config()
	if err != nil {
		return err
	}
	// The user asks for the command, nobody waits for a handle.
	cfg.MaxYield, r.Yield = math.MaxInt64, math.MaxInt64
	cfg.Blocked, r.SideEffects = nil, []string{"OTHER"}
	// Signals are for the command: they end it, and so end this.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	l, shut, err := a.openTraced(ctx, cfg)
	if err != nil {
		return notStartedError{err}
	}
	defer func() { err = errors.Join(err, shut()) }()
	v, err := openSession(ctx, cfg, l, "exec", "")
	if err != nil {
		return notStartedError{err}
	}
	defer func() { err = errors.Join(err, v.end(ctx, "done")) }()
	t := newTerminal(a, v)
	defer v.ledger.Tap(t.see)()
	go t.passSignals(ctx, cancel, signals)
	printed := make(chan error, 1)
	go func() { printed <- t.print(ctx) }()
	result, err := v.session.Exec(ctx, r)
	close(t.over)
	if err = errors.Join(err, <-printed); err != nil {
		return fmt.Errorf("running the command: %w", err)
	}
	return a.execStatus(ctx, t, result)
}

// execStatus is the command's end as the end of this process.
func (a *app) execStatus(ctx context.Context, t *terminal, r producers.Result) error {
	if r.Outcome == producers.Refused {
		if r.Reason == "background" { // the refusal's own advice is for agents
			r.Refusal = "the background operator & is refused: the command would outlive its shell unseen. " +
				"Run it without &, and yieldlog itself in the background"
		}
		return notStartedError{errors.New(r.Refusal)}
	}
	v := t.live
	if err := v.engine.WaitFor(ctx, r.Seq); err != nil {
		return fmt.Errorf("waiting for the end: %w", err)
	}
	var p projections.Process
	v.engine.View(func() { p, _ = v.processes.Get(r.Execution) })
	if p.Settled == nil {
		return fmt.Errorf("%s did not end", r.Execution)
	}
	if t := p.Settled.Termination; t != events.TermExited && t != events.TermSignal && t != events.TermStopped {
		fmt.Fprintf(a.err, "yieldlog: %s\n", describeEnd(*p.Settled))
	}
	if n := p.Settled.Offset - t.printed; n > 0 {
		fmt.Fprintf(a.err, "yieldlog: %s of the output were pruned before they could be printed\n", look.Bytes(n))
	}
	return exitOf(*p.Settled)
}

// exitOf is the settlement as an exit status, nil for 0.
func exitOf(s events.Settled) error {
	switch {
	case s.ExitCode == nil:
		return statusError{1}
	case *s.ExitCode == 0:
		return nil
	case *s.ExitCode < 0:
		return statusError{128 - *s.ExitCode}
	default:
		return statusError{*s.ExitCode}
	}
}
