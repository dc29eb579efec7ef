package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

func (s *Server) psTool() *tool {
	return &tool{
		name: "ps", title: "List commands",
		description: "Your commands, newest first.",
		params: []param{
			{name: "include_completed", kind: kindBoolean, def: true, text: "Also the finished ones"},
			{name: "limit", kind: kindInteger, min: minInteger, def: 50},
			ownerParam,
		},
		output: object(map[string]any{
			"processes": schema{"type": "array", "items": schema{"type": "object"}}, "total": "integer",
		}),
		hints: hints{readOnly: true, idempotent: true},
		run:   s.ps,
	}
}

// listed is one line of ps.
type listed struct {
	ProcessID    string             `json:"process_id"`
	PID          *int               `json:"pid"`
	Name         *string            `json:"name"`
	Command      string             `json:"command"`
	Cwd          string             `json:"cwd"`
	Owner        string             `json:"owner"`
	Status       events.Status      `json:"status"`
	State        string             `json:"state"`
	ExitCode     *int               `json:"exit_code"`
	Signal       *string            `json:"signal"`
	Outcome      events.Outcome     `json:"outcome,omitempty"`
	Termination  events.Termination `json:"termination,omitempty"`
	StartedAt    *string            `json:"started_at"`
	EndedAt      *string            `json:"ended_at"`
	DurationMS   int64              `json:"duration_ms"`
	StdoutBytes  int64              `json:"stdout_bytes"`
	StderrBytes  int64              `json:"stderr_bytes"`
	TTYBytes     int64              `json:"tty_bytes,omitempty"`
	NextSeq      int64              `json:"next_seq"`
	LastOutputAt *string            `json:"last_output_at"`
	// IdleMS is the time since the last output, or the start, of a live command.
	IdleMS      *int64              `json:"idle_ms,omitempty"`
	Descendants []events.Descendant `json:"descendants,omitempty"`
}

func (s *Server) ps(ctx context.Context, c *call) (reply, error) {
	owner, completed := c.args.owner(), c.args.flag("include_completed", true)
	limit := clampInt(max(0, c.args.integer("limit", 50)))
	if err := s.opts.Facts.WaitFor(ctx, 0); err != nil {
		return reply{}, fmt.Errorf("listing: %w", err)
	}
	out := struct {
		Processes []listed `json:"processes"`
		Total     int      `json:"total"`
		// Message says why commands wait, and why some may not be listed.
		Message string `json:"message,omitempty"`
	}{Processes: []listed{}}
	if err := s.opts.Session.Writable(); err != nil {
		out.Message = err.Error()
	}
	now := time.Now()
	s.opts.Facts.View(func() {
		for p := range s.opts.Processes.All() {
			if !s.visible(p, owner) || (p.Settled != nil && !completed) {
				continue
			}
			if out.Total++; len(out.Processes) < limit {
				out.Processes = append(out.Processes, list(p, now))
			}
		}
	})
	if completed {
		lost, err := s.legacy.list(ctx, owner)
		switch {
		case err != nil && ctx.Err() != nil:
			return reply{}, err
		case err != nil && out.Message == "":
			out.Message = err.Error()
		}
		out.Total += len(lost)
		for _, p := range lost[:min(len(lost), limit-len(out.Processes))] {
			out.Processes = append(out.Processes, list(p, now))
		}
	}
	r := answer(out)
	if len(r.structured) > inlineBudget/2 {
		for i := range out.Processes {
			out.Processes[i].Command = shorten(out.Processes[i].Command, maxCommandEcho)
		}
		r = answer(out)
	}
	return r, nil
}

func list(p projections.Process, now time.Time) listed {
	l := listed{
		ProcessID: p.Execution, Command: p.Requested.Command, Cwd: p.Requested.Cwd, Owner: p.Owner,
		Status: p.Status, State: p.State, DurationMS: duration(p, now), NextSeq: seq(p.Offset),
		StdoutBytes: p.StdoutBytes, StderrBytes: p.StderrBytes, TTYBytes: p.TTYBytes,
		EndedAt: stamp(p.EndedAt), LastOutputAt: stamp(p.LastOutputAt),
	}
	if p.PID != 0 {
		l.PID = &p.PID
	}
	if p.Requested.Name != "" {
		l.Name = &p.Requested.Name
	}
	started := p.SpawnedAt
	if started.IsZero() {
		started = p.RequestedAt
	}
	l.StartedAt = stamp(started)
	e := p.Settled
	if e == nil {
		since := started
		if p.LastOutputAt.After(since) {
			since = p.LastOutputAt
		}
		idle := max(0, now.Sub(since).Milliseconds())
		l.IdleMS = &idle
		return l
	}
	l.ExitCode, l.Outcome, l.Termination, l.Descendants = e.ExitCode, e.Outcome, e.Termination, e.Descendants
	if e.Signal != "" {
		l.Signal = &e.Signal
	}
	return l
}

// stamp is a time for an answer, nil for one that has not come.
func stamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	return &s
}
