package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Earlier finds what sessions left behind that have ended. It keeps nothing.
type Earlier struct {
	// Source is the ledger.
	Source interface {
		Source
		Outputs
	}
	// Session is the session that asks.
	Session string
}

// Execution is a settled execution of a session that has ended. The handle of
// one that runs, or whose session lives, is not found.
func (e Earlier) Execution(ctx context.Context, id string) (projections.Process, bool, error) {
	none := projections.Process{}
	if _, err := ulid.ParseStrict(id); err != nil {
		return none, false, nil // and no wildcard gets into the filter
	}
	processes := projections.NewProcesses()
	if err := e.fold(ctx, processes, events.Filter{Class: events.ClassExecution, ID: id}); err != nil {
		return none, false, err
	}
	p, ok := processes.Get(id)
	if !ok || p.Settled == nil || !p.Listed() {
		return none, false, nil
	}
	sessions := projections.NewSessions()
	if err := e.fold(ctx, sessions, events.Filter{Session: p.Session, Class: events.ClassSession}); err != nil {
		return none, false, err
	}
	s, ok := sessions.Get(p.Session)
	return p, ok && s.State != projections.SessionOpen, nil
}

// Lost lists the executions that the sessions before this one lost, the newest
// first: those that it follows, back to the last that ended in good order.
func (e Earlier) Lost(ctx context.Context) ([]projections.Process, error) {
	sessions := projections.NewSessions()
	if err := e.fold(ctx, sessions, events.Filter{Class: events.ClassSession}); err != nil {
		return nil, err
	}
	own, ok := sessions.Get(e.Session)
	if !ok {
		return nil, fmt.Errorf("session %s is not in the ledger", e.Session)
	}
	var lost []projections.Process
	for _, s := range sessions.List() {
		if s.Seq >= own.Seq || !own.Opened.Follows(s.Opened) || s.State == projections.SessionOpen {
			continue
		}
		processes := projections.NewProcesses()
		if err := e.fold(ctx, processes, events.Filter{Session: s.ID, Class: events.ClassExecution}); err != nil {
			return nil, err
		}
		known := len(lost)
		for p := range processes.All() {
			if p.Status != events.StatusLost {
				continue
			}
			var err error
			if p.LastOutputAt, err = e.lastOutput(ctx, p); err != nil {
				return nil, err
			}
			lost = append(lost, p)
		}
		if s.State == projections.SessionClosed && len(lost) == known {
			break
		}
	}
	return lost, nil
}

// lastOutput is when an execution printed its last byte; zero if it printed
// nothing, or that was pruned.
func (e Earlier) lastOutput(ctx context.Context, p projections.Process) (at time.Time, err error) {
	if p.Offset == 0 {
		return at, nil
	}
	for o, err := range e.Source.Output(ctx, p.Session, p.Execution, p.Offset-1, p.Offset) {
		if err != nil {
			return at, fmt.Errorf("reading the output of %s: %w", p.Execution, err)
		}
		at = o.Time
	}
	return at, nil
}

func (e Earlier) fold(ctx context.Context, f projections.Fold, which events.Filter) error {
	if err := NewEngine(f).RunTo(ctx, e.Source, which, 0); err != nil {
		return fmt.Errorf("looking for earlier sessions: %w", err)
	}
	return nil
}
