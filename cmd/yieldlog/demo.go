package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newDemo(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "See it work: yield, crash, recover, replay; in a temporary directory",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			dir, err := os.MkdirTemp("", "yieldlog-demo-")
			if err != nil {
				return fmt.Errorf("making a directory: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			d := &demo{
				screen: a.out,
				app:    &app{in: a.in, out: &indented{w: a.out}, err: a.err, dir: filepath.Join(dir, "state")},
			}
			return d.run(c.Context())
		},
	}
}

// demoPatience bounds what the demo waits for.
const demoPatience = 30 * time.Second

// A demo tells the main job, end to end: a client of its own talks to real
// servers, and one of them is killed.
type demo struct {
	screen io.Writer
	app    *app // its output is indented
	server *demoServer
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.server, err = startDemoServer(ctx, d.app.dir); err != nil {
		return err
	}
	for _, scene := range []func(context.Context) error{d.fast, d.long, d.crash, d.recovered, d.replayed} {
		if err := scene(ctx); err != nil {
			return errors.Join(err, d.server.process.Cancel())
		}
	}
	return nil
}

func (d *demo) title(n int, text string) {
	fmt.Fprintf(d.screen, "\n%d. %s\n\n", n, text)
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.app.out, format+"\n", args...)
}

// quote shows output.
func (d *demo) quote(output string) {
	for line := range strings.Lines(output) {
		fmt.Fprintf(d.app.out, "  | %s", line)
	}
}

// indented writes lines, indented.
type indented struct {
	w      io.Writer
	inLine bool
}

func (i *indented) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if !i.inLine && len(line) > 1 {
			line = append([]byte("   "), line...)
		}
		i.inLine = line[len(line)-1] != '\n'
		if _, err := i.w.Write(line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (d *demo) exec(command string, yield time.Duration) (demoAnswer, error) {
	d.say("exec %q, yield_ms %d", command, yield.Milliseconds())
	return d.server.call("exec", map[string]any{
		"command": command, "yield_ms": yield.Milliseconds(), "side_effects": []string{"NONE"},
	})
}

func (d *demo) fast(context.Context) error {
	d.title(1, "A fast command answers at once")
	r, err := d.exec("echo hello, ledger", 5*time.Second)
	if err != nil {
		return err
	}
	if r.ExitCode == nil {
		return fmt.Errorf("a fast command is %s after five seconds", r.Status)
	}
	d.say("-> %s, exit code %d, in %d ms", r.Status, *r.ExitCode, r.DurationMS)
	d.quote(r.Stdout)
	return nil
}

func (d *demo) long(context.Context) error {
	d.title(2, "A long one yields: the call returns, the command goes on")
	r, err := d.exec("for i in 1 2 3 4 5; do echo step $i; sleep 0.3; done", 400*time.Millisecond)
	if err != nil {
		return err
	}
	d.say("-> %s, with the handle %s and what there is so far", r.Status, look.Short(r.ProcessID))
	d.quote(r.Stdout)
	for r.Status == "backgrounded" || r.Status == "running" {
		id, next := r.ProcessID, r.NextSeq
		if r, err = d.server.call("wait", map[string]any{"process_id": id, "timeout_ms": 600}); err != nil {
			return err
		}
		more, err := d.server.call("read", map[string]any{"process_id": id, "since_seq": next})
		if err != nil {
			return err
		}
		r.NextSeq = more.NextSeq
		d.say("wait, and read from byte %d on -> %s", next, r.Status)
		d.quote(more.Stdout)
	}
	return nil
}

func (d *demo) crash(ctx context.Context) error {
	d.title(3, "The server is killed with -9 while a command runs")
	r, err := d.exec("echo precious output; sleep 600", 400*time.Millisecond)
	if err != nil {
		return err
	}
	d.say("-> %s, pid %d", r.Status, r.PID)
	pid, err := d.serverPID(ctx)
	if err != nil {
		return err
	}
	server, err := os.FindProcess(pid)
	if err != nil {
		return fmt.Errorf("finding the server: %w", err)
	}
	if err := server.Kill(); err != nil {
		return fmt.Errorf("killing the server: %w", err)
	}
	_ = d.server.close() // it was killed: it ended badly, as it should
	d.say("kill -9 %d: the server is gone", pid)
	for deadline := time.Now().Add(demoPatience); alive(r.PID); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d outlived its server", r.PID)
		}
	}
	d.say("and so is its command, pid %d: nothing is orphaned", r.PID)
	return nil
}

// serverPID is the process of the session that was opened last.
func (d *demo) serverPID(ctx context.Context) (pid int, err error) {
	err = d.app.reading(ctx, func(l *ledger.Ledger) error {
		for e, err := range l.Read(ctx, events.Filter{Kind: events.KindOpened}, 1, 0) {
			if err != nil {
				return fmt.Errorf("reading the ledger: %w", err)
			}
			if b, ok := e.Body.(events.Opened); ok {
				pid = b.PID
			}
		}
		return nil
	})
	return pid, err
}

func (d *demo) recovered(ctx context.Context) (err error) {
	d.title(4, "A new server opens the ledger, and says what was lost")
	if d.server, err = startDemoServer(ctx, d.app.dir); err != nil {
		return err
	}
	if err := d.server.close(); err != nil {
		return err
	}
	return d.app.reading(ctx, func(l *ledger.Ledger) error {
		processes, err := foldProcesses(ctx, l, events.Filter{}, moment{})
		if err != nil {
			return err
		}
		list := pick(processes, false, false, 0)
		if len(list) != 3 || list[0].Status != events.StatusLost {
			return fmt.Errorf("the ledger does not name what was lost: %d executions", len(list))
		}
		d.say("$ yieldlog ps")
		return d.app.printProcesses(list, time.Now())
	})
}

func (d *demo) replayed(ctx context.Context) error {
	d.title(5, "The whole session can be replayed, and proven complete")
	return d.app.reading(ctx, func(l *ledger.Ledger) error {
		session, err := firstSession(ctx, l)
		if err != nil {
			return err
		}
		d.say("$ yieldlog replay %s --speed 4", look.Short(session))
		player := replay.Player{Speed: 4, IdleLimit: time.Second}
		if err := d.app.play(ctx, l, events.Filter{Session: session}, &player); err != nil {
			return err
		}
		v, err := replay.Verify(ctx, l, "")
		if err != nil {
			return fmt.Errorf("verifying: %w", err)
		}
		fmt.Fprintln(d.app.out)
		d.say("$ yieldlog verify")
		return d.app.printVerification(v)
	})
}

func firstSession(ctx context.Context, l *ledger.Ledger) (string, error) {
	for e, err := range l.Read(ctx, events.Filter{Kind: events.KindOpened}, 1, 0) {
		return e.Session, err
	}
	return "", errors.New("the ledger has no session")
}
