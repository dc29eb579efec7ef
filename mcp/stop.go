package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
)

const (
	defaultSignal = "SIGTERM"
	defaultForce  = 3 * time.Second
)

// everything, for a handle, means all that the owner runs.
const everything = "*"

func (s *Server) stopTool() *tool {
	return &tool{
		name: "stop", title: "Stop a command",
		description: "Signal a command and everything it started; what is left after force_after_ms is killed.",
		params: []param{
			{name: "process_id", kind: kindString, expected: true, text: "Handle, or * for all of owner"},
			{name: "signal", kind: kindString, def: defaultSignal, text: "Such as SIGINT or SIGKILL"},
			{name: "force_after_ms", kind: kindInteger, min: minInteger, def: defaultForce.Milliseconds()},
			ownerParam,
		},
		output: object(map[string]any{
			"process_id": "string", "stopped": "boolean", "signal": orNull("string"), "status": "string",
			"exit_code": orNull("integer"), "outcome": "string", "termination": "string", "next_seq": "integer", "error": orNull("string"),
		}),
		hints: hints{destructive: true, idempotent: true},
		run:   s.stop,
	}
}

// stopped is the answer of stop.
type stopped struct {
	ProcessID   string             `json:"process_id"`
	Stopped     bool               `json:"stopped"`
	Signal      *string            `json:"signal"`
	Status      string             `json:"status,omitempty"`
	ExitCode    *int               `json:"exit_code"`
	Outcome     events.Outcome     `json:"outcome,omitempty"`
	Termination events.Termination `json:"termination,omitempty"`
	NextSeq     int64              `json:"next_seq"`
	// Error is null where there is none, as clients of YieldShell know it.
	Error *string `json:"error"`
}

func (s *Server) stop(ctx context.Context, c *call) (reply, error) {
	id, owner := c.args.text("process_id"), c.args.owner()
	switch {
	case id == everything, id == "" && c.args.has("owner"):
		return s.stopOwner(ctx, owner)
	case !c.args.has("process_id"):
		return reply{}, refuse("process_id is required: %s", processIDParam.text)
	}
	signal := c.args.text("signal")
	if signal == "" {
		signal = defaultSignal
	}
	result, err := s.opts.Session.Stop(ctx, owner, id, producers.StopOptions{
		// 0 kills at once, which to a session is the default.
		Signal: signal, ForceAfter: max(time.Nanosecond, c.args.millis("force_after_ms", defaultForce)),
	})
	c.claimed(result.Claim)
	if err != nil && ctx.Err() != nil {
		return reply{}, fmt.Errorf("stopping: %w", err)
	}
	p, ok, ferr := s.process(ctx, owner, id, result.Seq)
	if ferr != nil {
		return reply{}, ferr
	}
	if !ok {
		return answer(struct {
			notKnown
			Stopped bool `json:"stopped"`
		}{notKnown: unknownTo(id)}), nil
	}
	if errors.Is(err, producers.ErrUnknown) {
		return answer(ended(p)), nil
	}
	out := stopped{ProcessID: id, Status: string(p.Status), NextSeq: seq(p.Offset)}
	if e := p.Settled; e != nil {
		out.ExitCode, out.Outcome, out.Termination = e.ExitCode, e.Outcome, e.Termination
	}
	if err != nil {
		text := err.Error()
		out.Error = &text
	} else {
		out.Stopped, out.Signal = true, &result.Signal
	}
	return answer(out), nil
}

// stopOwner ends an owner: what it runs is stopped, and its mail stays.
func (s *Server) stopOwner(ctx context.Context, owner string) (reply, error) {
	ids, err := s.opts.Session.StopOwner(ctx, owner)
	if err != nil {
		return reply{}, fmt.Errorf("stopping %s: %w", owner, err)
	}
	return answer(struct {
		Owner     string   `json:"owner"`
		Processes []string `json:"stopped_processes"`
	}{owner, ids}), nil
}
