package main

import (
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// A processLine is an execution as --json prints it. The names are those of
// the MCP tools.
type processLine struct {
	ProcessID   string             `json:"process_id"`
	Session     string             `json:"session"`
	Owner       string             `json:"owner"`
	Name        string             `json:"name,omitempty"`
	Command     string             `json:"command"`
	Cwd         string             `json:"cwd"`
	PID         *int               `json:"pid"`
	State       string             `json:"state"`
	Status      events.Status      `json:"status"`
	Outcome     events.Outcome     `json:"outcome,omitempty"`
	Termination events.Termination `json:"termination,omitempty"`
	ExitCode    *int               `json:"exit_code"`
	Signal      string             `json:"signal,omitempty"`
	Error       string             `json:"error,omitempty"`
	RequestedAt time.Time          `json:"requested_at"`
	StartedAt   time.Time          `json:"started_at,omitzero"`
	EndedAt     time.Time          `json:"ended_at,omitzero"`
	DurationMS  int64              `json:"duration_ms"`
	Yielded     bool               `json:"yielded"`
	OutputBytes int64              `json:"output_bytes"`
	StdoutBytes int64              `json:"stdout_bytes"`
	StderrBytes int64              `json:"stderr_bytes"`
	// PrunedBytes counts those of OutputBytes that were deleted on purpose.
	PrunedBytes int64 `json:"pruned_bytes,omitempty"`
	// TTY is its terminal, if it has one, and TTYBytes what that showed.
	TTY       *events.Size `json:"tty,omitempty"`
	TTYBytes  int64        `json:"tty_bytes,omitempty"`
	Anomalies []string     `json:"anomalies,omitempty"`
}

func jsonProcess(p projections.Process) processLine {
	line := processLine{
		ProcessID: p.Execution, Session: p.Session, Owner: p.Owner,
		Name: p.Requested.Name, Command: p.Requested.Command, Cwd: p.Requested.Cwd,
		State: p.State, Status: p.Status,
		RequestedAt: p.RequestedAt, StartedAt: p.SpawnedAt, EndedAt: p.EndedAt, DurationMS: p.Duration().Milliseconds(),
		Yielded: p.Yielded, OutputBytes: p.Offset, StdoutBytes: p.StdoutBytes, StderrBytes: p.StderrBytes, PrunedBytes: p.PrunedIn(0, -1),
		TTYBytes: p.TTYBytes, Anomalies: p.Anomalies,
	}
	if p.Requested.TTY != nil {
		line.TTY = &p.Size
	}
	if p.PID != 0 {
		line.PID = &p.PID
	}
	if s := p.Settled; s != nil {
		line.Outcome, line.Termination, line.ExitCode, line.Signal, line.Error = s.Outcome, s.Termination, s.ExitCode, s.Signal, s.Error
	}
	if r := p.Refused; r != nil {
		line.Error = r.Message
	}
	return line
}
