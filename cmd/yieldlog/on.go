package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/hook"
)

// hookOptions are the flags of `yieldlog on`.
type hookOptions struct {
	filter, command, name string
	forget                string
	from                  uint64
	jobs, retries         int
	once                  bool
}

func newOn(a *app) *cobra.Command {
	var o hookOptions
	c := &cobra.Command{
		Use:   "on FILTER --exec COMMAND",
		Short: "Run a command for each event, at least once each",
		Long: `Run a command for each event that the filter selects (see yieldlog events), with
the event on its stdin as one line of JSON, as yieldlog events --json prints it.
YIELDLOG_SEQ, YIELDLOG_KIND, YIELDLOG_SESSION, YIELDLOG_OWNER and
YIELDLOG_EXECUTION say the same in the environment.

  yieldlog on settled,outcome=failure --exec 'jq -r .body.error | mail -s failed me'

It begins with what happens from now on, or at --from, and keeps where it is
in the state directory, under --name: started again, it goes on there. An event
whose command was cut off comes again. A command that fails is tried again;
after the last try its event is given up, with a line in the log.

  yieldlog on --forget NAME

forgets the position of a hook that will not be started again. doctor says the
names.`,
		Args: usageArgs(func(c *cobra.Command, args []string) error {
			if o.forget != "" {
				return cobra.NoArgs(c, args)
			}
			return cobra.ExactArgs(1)(c, args)
		}),
		RunE: func(c *cobra.Command, args []string) error {
			if o.forget != "" {
				return a.writing(c.Context(), func(l *ledger.Ledger) error { return a.forgetHook(l, o.forget) })
			}
			if o.command == "" {
				return usageError{errors.New("--exec COMMAND is missing")}
			}
			f, err := parseEventFilter(args[0] + "," + o.filter)
			if err != nil {
				return usageError{err}
			}
			if o.name == "" {
				o.name = hookName(args[0], o.filter, o.command)
			}
			return a.runHook(c.Context(), f, o)
		},
	}
	c.Flags().StringVar(&o.command, "exec", "", "the shell command to run")
	c.Flags().StringVar(&o.filter, "filter", "", "what must hold too, for example 'owner=/root'")
	c.Flags().StringVar(&o.name, "name", "", "name of the position (default: made of the filter and the command)")
	c.Flags().StringVar(&o.forget, "forget", "", "forget the position of this name, and end")
	c.Flags().Uint64Var(&o.from, "from", 0, "begin at this sequence, when it begins for the first time")
	c.Flags().IntVar(&o.jobs, "jobs", 1, "commands that run at a time; 1 keeps the order")
	c.Flags().IntVar(&o.retries, "retries", 3, "how often a command that fails is tried again")
	c.Flags().BoolVar(&o.once, "once", false, "end when there is nothing more")
	return c
}

// hookName is the name of a hook that has none: the same for the same words.
func hookName(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return "on-" + hex.EncodeToString(sum[:8])
}

func (a *app) forgetHook(l *ledger.Ledger, name string) error {
	err := l.ForgetCursor(name)
	if errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("there is no hook %s", name)}
	}
	if err == nil && a.json {
		return a.printJSON("forgotten", name)
	}
	return err
}

func (a *app) runHook(ctx context.Context, f eventFilter, o hookOptions) (err error) {
	cfg, _, err := a.config()
	if err != nil {
		return err
	}
	// For writing: a hook may start before anything ever ran.
	l, err := a.openLedger(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	cursor, err := l.OpenCursor(o.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cursor.Close()) }()
	if err := begin(ctx, l, cursor, o.from); err != nil {
		return err
	}
	return hook.Run(ctx, eventSource(ctx, l, events.Filter{}, cursor.Next(), !o.once), hook.Config{
		Match:   f.match,
		Save:    cursor.Save,
		Jobs:    o.jobs,
		Retries: o.retries,
		Logger:  a.logger(),
		Deliver: func(ctx context.Context, e events.Event) error {
			return a.deliver(ctx, cfg.ShellCommand(o.command), e)
		},
	})
}

// begin gives a new cursor its position, so that a restart goes on from there.
func begin(ctx context.Context, l *ledger.Ledger, cursor *ledger.Cursor, from uint64) error {
	if cursor.Next() > 0 {
		return nil
	}
	if from == 0 {
		last, err := l.LastSeq(ctx)
		if err != nil {
			return err
		}
		from = last + 1
	}
	return cursor.Save(from)
}

// hookGrace is how long a command has to end by itself when the hook ends.
const hookGrace = 5 * time.Second

// deliver runs a hook's command with the event on its stdin.
func (a *app) deliver(ctx context.Context, command []string, e events.Event) error {
	line, err := json.Marshal(replay.NewEventLine(e))
	if err != nil {
		return fmt.Errorf("encoding the event: %w", err)
	}
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin = bytes.NewReader(append(line, '\n'))
	c.Stdout, c.Stderr = a.out, a.err
	c.Env = append(os.Environ(), "YIELDLOG_SEQ="+strconv.FormatUint(e.Seq, 10), "YIELDLOG_KIND="+string(e.Kind()),
		"YIELDLOG_SESSION="+e.Session, "YIELDLOG_OWNER="+e.Owner, "YIELDLOG_EXECUTION="+e.Execution())
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = hookGrace
	return c.Run()
}
