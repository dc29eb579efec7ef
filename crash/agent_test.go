//go:build linux

package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// An answer is what a client was told about a plan.
type answer struct {
	plan plan
	tool string
	observation
}

// agent is a client that works on the ledger.
func (r *round) agent(ctx context.Context, p *planner) error { return r.client(ctx, p, r.work) }

// client has a client work until ctx ends, which starts again whenever its
// server is killed. A server that ends otherwise fails the round.
func (r *round) client(ctx context.Context, p *planner, work func(*client, *planner) error) error {
	for ctx.Err() == nil {
		c, err := start(r.env)
		if err != nil {
			return err
		}
		r.began(c.cmd.Process.Pid)
		stop := context.AfterFunc(ctx, func() { _ = c.in.Close() })
		err = c.initialize()
		for err == nil && ctx.Err() == nil {
			err = work(c, p)
		}
		stop()
		if err := r.ended(ctx, c, err); err != nil {
			return err
		}
	}
	return nil
}

// ended waits for the server to end, and judges why it did.
func (r *round) ended(ctx context.Context, c *client, err error) error {
	exit := c.close()
	switch {
	case r.wasKilled(c.cmd.Process.Pid), ctx.Err() != nil && exit == nil:
		return nil
	case !errors.Is(err, errGone):
		return fmt.Errorf("%w\n%s", err, c.log)
	}
	return fmt.Errorf("the server that nobody killed ended with %s\n%s", c.cmd.ProcessState, c.log)
}

// mostLeft bounds what a client leaves running: a server has a limit.
const mostLeft = 10

// work makes a few calls about one command.
func (r *round) work(c *client, p *planner) error {
	if p.rng.IntN(4) == 0 {
		if _, err := r.collect(c, p.rng.IntN(100)); err != nil {
			return err
		}
	}
	if p.rng.IntN(3) > 0 {
		made := p.quick()
		return r.exec(c, made, func(o observation) error { return r.follow(c, p, made, o.ProcessID) }, "yield_ms", p.rng.IntN(200))
	}
	made := p.endless()
	return r.exec(c, made, func(o observation) error {
		if err := r.ask(c, made, "read", "process_id", o.ProcessID, "since_seq", 0); err != nil {
			return err
		}
		if c.left < mostLeft && p.rng.IntN(2) == 0 {
			c.left++
			return nil
		}
		return r.ask(c, made, "stop", "process_id", o.ProcessID, "force_after_ms", 50)
	}, "yield_ms", p.rng.IntN(30))
}

// exec runs a plan, and then what is to follow if it is in the background.
func (r *round) exec(c *client, made plan, then func(observation) error, more ...any) error {
	r.planned(made)
	args := map[string]any{"command": made.command, "name": made.name, "side_effects": []string{"NONE"}}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	o, err := c.call("exec", args)
	if err != nil {
		return err
	}
	r.told(answer{made, "exec", o})
	if o.Status == "backgrounded" {
		return then(o)
	}
	return nil
}

// follow waits for the end of a command that yielded.
func (r *round) follow(c *client, p *planner, made plan, id string) error {
	return r.ask(c, made, "wait", "process_id", id, "timeout_ms", 1+p.rng.IntN(2000))
}

func (r *round) ask(c *client, made plan, tool string, more ...any) error {
	args := map[string]any{}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	o, err := c.call(tool, args)
	if err == nil {
		r.told(answer{made, tool, o})
	}
	return err
}

// terminal runs commands with yieldlog exec until ctx ends.
func (r *round) terminal(ctx context.Context, p *planner) error {
	for ctx.Err() == nil {
		made := p.quick()
		r.planned(made)
		cmd := exec.Command(binary, "exec", "--name", made.name, "--", made.command)
		var out, errs bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr = r.env, &out, &errs
		if err := cmd.Start(); err != nil {
			return err
		}
		_ = cmd.Wait() // its status is looked at below
		if r.wasKilled(cmd.Process.Pid) || r.wasHurt() {
			continue
		}
		if code := cmd.ProcessState.ExitCode(); code != made.exit {
			return fmt.Errorf("yieldlog exec of %s ended with %s, want status %d\n%s", made.command, cmd.ProcessState, made.exit, tail(&errs))
		}
		o := observation{
			Status: "completed", ExitCode: &made.exit, Stdout: out.String(), Stderr: made.stderr,
			Truncated: strings.Contains(errs.String(), "were pruned before"),
		}
		r.told(answer{plan: made, tool: "terminal", observation: o})
	}
	return nil
}

func tail(b *bytes.Buffer) string {
	return b.String()[max(0, b.Len()-2000):]
}

// serve keeps a host, again and again, until ctx ends.
func (r *round) serve(ctx context.Context, _ *planner) error {
	return r.repeat(ctx, 0, "serve")
}

// prune deletes what was recorded, again and again, until ctx ends.
func (r *round) prune(ctx context.Context, _ *planner) error {
	return r.repeat(ctx, 100*time.Millisecond, "prune", "--older-than", "0s")
}

// pack packs what was recorded, again and again, until ctx ends.
func (r *round) pack(ctx context.Context, _ *planner) error {
	return r.repeat(ctx, 50*time.Millisecond, "pack")
}

// repeat runs yieldlog with the arguments, until ctx ends. It may end by being
// killed, and by itself in good order.
func (r *round) repeat(ctx context.Context, pause time.Duration, args ...string) error {
	if args[0] != "serve" { // which makes the ledger if there is none
		soon(patience, func() bool { return r.locker(hostLock) != 0 || ctx.Err() != nil })
	}
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = patience
		var errs bytes.Buffer
		cmd.Env, cmd.Stderr = r.env, &errs
		if err := cmd.Start(); err != nil {
			return err
		}
		err := cmd.Wait()
		busy := strings.Contains(errs.String(), "prune again in a minute") // a sink has that long
		if err != nil && ctx.Err() == nil && !r.wasKilled(cmd.Process.Pid) && !busy {
			return fmt.Errorf("yieldlog %s (%s) ended with %w\n%s", args, strconv.Itoa(cmd.Process.Pid), err, tail(&errs))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}
