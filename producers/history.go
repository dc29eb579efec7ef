package producers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// ErrBusy is the error of a rewind while executions are live.
var ErrBusy = errors.New("the session has live executions: stop them first")

// ErrNoPoint is the error of a rewind or fork to where the session was not.
var ErrNoPoint = errors.New("the session has no such point")

// Rewind hides what a session did after the lifecycle sequence to. Nothing is
// erased. It fails with [ErrBusy] while executions of the session are live.
func Rewind(ctx context.Context, l *ledger.Ledger, session string, to uint64) error {
	if _, err := point(ctx, l, session, to); err != nil {
		return fmt.Errorf("rewinding session %s: %w", session, err)
	}
	_, err := ask(ctx, l, session, controlRequest{Op: "rewind", To: to})
	if errors.Is(err, ledger.ErrNoSession) {
		err = appendDead(ctx, l, events.Event{Session: session, Subject: session, Body: events.Rewound{To: to}})
	}
	if err != nil {
		return fmt.Errorf("rewinding session %s: %w", session, err)
	}
	return nil
}

// rewind does it in the session's own process. Requests wait meanwhile, so
// that none comes between the look and the event.
func (s *Session) rewind(ctx context.Context, to uint64) error {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.mu.Lock()
	busy := s.live > 0
	s.mu.Unlock()
	if busy {
		return ErrBusy
	}
	e, err := s.ledger.Append(ctx, s.event("", s.id, events.Rewound{To: to}))
	if err != nil {
		return err
	}
	for r, err := range s.ledger.Read(ctx, events.Filter{Session: s.id, Kind: events.KindRequested}, to+1, e.Seq) {
		if err != nil {
			return fmt.Errorf("forgetting what was hidden: %w", err)
		}
		s.mu.Lock()
		delete(s.executions, r.Subject)
		s.mu.Unlock()
	}
	return nil
}

// Fork makes a session that begins with the history of another up to the
// lifecycle sequence at, 0 for all of it, and has none of its executions. It is
// closed again. Fork returns its id.
func Fork(ctx context.Context, l *ledger.Ledger, cfg Config, opened events.Opened, from string, at uint64) (string, error) {
	if _, err := point(ctx, l, from, at); err != nil {
		return "", fmt.Errorf("forking session %s: %w", from, err)
	}
	s, err := OpenSession(ctx, l, cfg, opened)
	if err != nil {
		return "", fmt.Errorf("forking session %s: %w", from, err)
	}
	return s.id, errors.Join(s.ForkFrom(ctx, from, at), s.Close(ctx, "forked"))
}

// ForkFrom says that the session, which has just been opened, goes on from the
// history of another up to the lifecycle sequence at, 0 for all of it.
func (s *Session) ForkFrom(ctx context.Context, from string, at uint64) error {
	at, err := point(ctx, s.ledger, from, at)
	if err == nil {
		_, err = s.ledger.Append(ctx, s.event("", s.id, events.Forked{From: from, At: at}))
	}
	if err != nil {
		return fmt.Errorf("forking session %s: %w", from, err)
	}
	return nil
}

// point checks that a session was there at a sequence. 0 is its last one, which
// is the result.
func point(ctx context.Context, l *ledger.Ledger, session string, at uint64) (uint64, error) {
	var first, last uint64
	for r, err := range l.ReadRaw(ctx, events.Filter{Session: session}, 1, 0) {
		if err != nil {
			return 0, fmt.Errorf("reading the session: %w", err)
		}
		if first == 0 {
			first = r.Seq
		}
		last = r.Seq
	}
	if at == 0 {
		at = last
	}
	if first == 0 || at < first || at > last {
		return 0, fmt.Errorf("%w: it goes from sequence %d to %d", ErrNoPoint, first, last)
	}
	return at, nil
}

// appendDead appends to a session whose process is gone, under its claim, so
// that it has one writer at a time.
func appendDead(ctx context.Context, l *ledger.Ledger, e events.Event) error {
	release, err := claimDead(ctx, l, e.Session)
	for until := time.Now().Add(claimMost); errors.Is(err, ledger.ErrLive) && time.Now().Before(until) && ctx.Err() == nil; {
		time.Sleep(claimPause) // somebody declares it lost, or tells of its mail
		release, err = claimDead(ctx, l, e.Session)
	}
	if err != nil {
		return err
	}
	defer release()
	_, err = l.Append(ctx, e)
	return err
}

// claimMost bounds the wait for the claim of a dead session that another process
// has for a moment, and claimPause is the wait before it is tried again.
const claimMost, claimPause = 2 * time.Second, 10 * time.Millisecond

// claimDead claims a session whose process is gone.
func claimDead(ctx context.Context, l *ledger.Ledger, session string) (release func(), err error) {
	end, _, err := l.RecoveryTurn(ctx, turnMost)
	if err != nil {
		return nil, err
	}
	defer end()
	return takeOver(ctx, l, session, "")
}

// takeOver claims a session whose process is gone, and declares it lost if nobody
// did. by is the session that finds it. The caller has the turn to recover.
func takeOver(ctx context.Context, l *ledger.Ledger, session, by string) (release func(), err error) {
	claim, err := l.ClaimSession(session)
	if err != nil {
		return nil, err
	}
	// Without a release on failure: the claim's file is what the next look finds.
	unread, err := declareLost(ctx, l, session, by)
	if err != nil {
		return nil, err
	}
	return func() { giveUp(claim, claim.Left && unread) }, nil
}
