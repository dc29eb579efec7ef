package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// Session runs commands; *[producers.Session] does. Its methods may be called
// concurrently.
type Session interface {
	ID() string
	Turn() *producers.Turn
	Exec(ctx context.Context, r producers.Request) (producers.Result, error)
	Abandon(owner, execution string)
	Writable() error
	Wait(ctx context.Context, owner, execution string, d time.Duration) (producers.Result, error)
	Write(owner, execution string, in producers.Input) error
	Stop(ctx context.Context, owner, execution string, o producers.StopOptions) (producers.StopResult, error)
	StopOwner(ctx context.Context, owner string) (stopped []string, err error)
	Cleanup(ctx context.Context, owner string, completedOlder, stoppedOlder time.Duration) (removed int, err error)
	Mail
}

// Mail is a session's mailboxes.
type Mail interface {
	Unread(owner string) []producers.Mail
	Collect(ctx context.Context, owner string, most int, d time.Duration) (list []producers.Mail, more int, claim *producers.Claim, err error)
	Observed(owner, execution, by string) *producers.Claim
	Shown(owner, execution string, from, to int64)
	Answered(owner string)
	Mailed(fn func(producers.Mail)) (remove func())
}

// Facts are what answers are made of; *[replay.Engine] drives them.
type Facts interface {
	WaitFor(ctx context.Context, seq uint64) error
	View(f func())
}

// Pages reads a page of an execution's output from the ledger.
type Pages func(ctx context.Context, session, execution string, r replay.PageRequest) (replay.Page, error)

// process is the execution's facts, once the folds have reached seq. ok is
// false when the owner has no such execution, neither now nor of old.
func (s *Server) process(ctx context.Context, owner, execution string, seq uint64) (p projections.Process, ok bool, err error) {
	if err := s.opts.Facts.WaitFor(ctx, seq); err != nil {
		return p, false, fmt.Errorf("waiting for event %d: %w", seq, err)
	}
	s.opts.Facts.View(func() { p, ok = s.opts.Processes.Get(execution) })
	if !ok {
		return s.legacy.execution(ctx, owner, execution)
	}
	return p, s.visible(p, owner), nil
}

// visible reports whether the owner's tools may see the process.
func (s *Server) visible(p projections.Process, owner string) bool {
	return p.Session == s.opts.Session.ID() && p.Owner == owner && p.Listed()
}

// unknown is the answer about a handle that the owner does not have. Another
// owner's handle, a forgotten one and a wrong one look the same.
func unknown(execution string) reply { return answer(unknownTo(execution)) }

// notKnown is what every tool says of such a handle.
type notKnown struct {
	ProcessID string `json:"process_id"`
	Error     string `json:"error"`
}

func unknownTo(execution string) notKnown {
	return notKnown{execution, "Unknown process_id: " + execution}
}
