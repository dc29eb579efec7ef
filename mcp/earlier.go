package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Earlier finds what sessions left behind that have ended; [replay.Earlier] does.
type Earlier interface {
	// Execution is a settled execution of such a session.
	Execution(ctx context.Context, id string) (projections.Process, bool, error)
	// Lost lists the executions that this session's predecessors lost.
	Lost(ctx context.Context) ([]projections.Process, error)
}

// legacy is what the tools know of earlier sessions. Their handles are good for
// reading, and ps lists what was lost, until cleanup.
type legacy struct {
	earlier Earlier // nil knows nothing

	mu        sync.Mutex
	loaded    bool
	lost      []projections.Process
	forgotten map[string]bool
}

// execution is an owner's execution of an earlier session.
func (l *legacy) execution(ctx context.Context, owner, id string) (projections.Process, bool, error) {
	p, ok, err := l.find(ctx, id)
	return p, ok && p.Owner == owner, err
}

// find is an execution of an earlier session, whoever owned it.
func (l *legacy) find(ctx context.Context, id string) (projections.Process, bool, error) {
	if l.earlier == nil || l.isForgotten(id) {
		return projections.Process{}, false, nil
	}
	p, ok, err := l.earlier.Execution(ctx, id)
	if err != nil {
		return p, false, fmt.Errorf("looking %s up: %w", id, err)
	}
	return p, ok, nil
}

func (l *legacy) isForgotten(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.forgotten[id]
}

// listMost bounds the look for what was lost, beside a ledger that stalls.
const listMost = 2 * time.Second

// list is the owner's lost executions.
func (l *legacy) list(ctx context.Context, owner string) ([]projections.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.earlier == nil {
		return nil, nil
	}
	if !l.loaded {
		ctx, cancel := context.WithTimeout(ctx, listMost)
		defer cancel()
		lost, err := l.earlier.Lost(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing what was lost: %w", err)
		}
		l.lost, l.loaded = lost, true
	}
	var list []projections.Process
	for _, p := range l.lost {
		if p.Owner == owner && !l.forgotten[p.Execution] {
			list = append(list, p)
		}
	}
	return list, nil
}

// forget drops the owner's lost executions that ended longer ago, and counts them.
func (l *legacy) forget(ctx context.Context, owner string, older time.Duration) (int, error) {
	list, err := l.list(ctx, owner)
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	removed := 0
	for _, p := range list {
		if time.Since(p.EndedAt) >= older {
			l.forgotten[p.Execution] = true
			removed++
		}
	}
	return removed, nil
}

// ended is the answer of stop and write about an earlier session's execution.
func ended(p projections.Process) stopped {
	why := "process has already ended"
	if p.Status == events.StatusLost {
		why = "process was lost with its server"
	}
	out := stopped{ProcessID: p.Execution, Status: string(p.Status), NextSeq: seq(p.Offset), Error: &why}
	if e := p.Settled; e != nil {
		out.ExitCode, out.Outcome, out.Termination = e.ExitCode, e.Outcome, e.Termination
	}
	return out
}
