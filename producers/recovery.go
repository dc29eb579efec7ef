package producers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// declareLost settles what a dead session left unsettled, and the session. Of one
// that had ended before it reports whether mail is unread. The caller holds its
// claim.
func declareLost(ctx context.Context, l *ledger.Ledger, session, by string) (unread bool, err error) {
	for late := map[string]bool{}; ; {
		known := len(late)
		if unread, err = declare(ctx, l, session, by, late); err == nil || len(late) == known {
			return unread, err
		}
		l.Refresh(session)
	}
}

// declare is declareLost, from a reading of the session. It fails where a
// settlement was on its way when its server died and arrived since, and notes it
// in late: then it is to be called again.
func declare(ctx context.Context, l *ledger.Ledger, session, by string, late map[string]bool) (unread bool, err error) {
	left, mail := projections.NewRecovery(), newUnposted()
	mail.late = late
	last := map[string]time.Time{} // of each execution, when it was last heard of
	for e, err := range l.Read(ctx, events.Filter{Session: session}, 1, 0) {
		if err != nil {
			return false, fmt.Errorf("reading the session: %w", err)
		}
		left.Apply(e)
		mail.apply(e)
		last[e.Subject] = e.Time
	}
	open := left.Open()
	if len(open) == 0 {
		return len(mail.unread) > 0, nil // it ended in good order, or never began
	}
	reason := "the server that ran it ended without closing its session"
	if b := open[0].Opened.Boot; b != "" && b != bootID() {
		reason = "the machine was restarted while it ran"
	}
	unsettled := left.Unsettled(session)
	endLost(ctx, unsettled)
	for _, u := range unsettled {
		s, err := lostSettlement(ctx, l, u, last[u.Execution])
		if err != nil {
			return false, err
		}
		s.Error = reason
		if _, err := l.Append(ctx, events.Event{Session: session, Owner: u.Owner, Subject: u.Execution, Body: s}); err != nil {
			if errors.Is(err, ledger.ErrExists) {
				late[u.Execution] = true
			}
			return false, fmt.Errorf("declaring %s lost: %w", u.Execution, err)
		}
		mail.lose(u.Owner, u.Execution)
	}
	if open[0].Opened.Program != programExec { // whose caller saw it die
		if err := mail.post(ctx, l, session); err != nil {
			return false, err
		}
	}
	return false, appendOnce(ctx, l, events.Event{Session: session, Subject: session, Body: events.Lost{Reason: reason, By: by}})
}

// lostSettlement is what is known of an execution that nobody settled.
func lostSettlement(ctx context.Context, l *ledger.Ledger, u projections.Unsettled, last time.Time) (events.Settled, error) {
	sums := map[events.Kind]*streamSum{}
	s := events.Settled{Status: events.StatusLost, Termination: events.TermLost, Outcome: events.OutcomeFailure}
	for e, err := range l.Output(ctx, u.Session, u.Execution, 0, -1) {
		if err != nil {
			return s, fmt.Errorf("reading the output of %s: %w", u.Execution, err)
		}
		o, ok := e.Body.(events.Output)
		if !ok {
			continue
		}
		sum := sums[o.Stream]
		if sum == nil {
			sum = &streamSum{hash: sha256.New()}
			sums[o.Stream] = sum
		}
		sum.add(o.Data)
		sum.raw = sum.bytes // what was read and not recorded is not known
		s.Offset = o.End()
		if e.Time.After(last) {
			last = e.Time
		}
	}
	fillSums(&s, sums)
	if u.Pruned > 0 { // what is left is not the whole, and has no digest
		s.Offset = max(s.Offset, u.Pruned)
		s.Stdout.SHA256, s.Stderr.SHA256, s.TTY.SHA256 = "", "", ""
	}
	s.DurationMS = max(0, last.Sub(u.RequestedAt).Milliseconds())
	return s, nil
}

// appendOnce appends an event that may be there already.
func appendOnce(ctx context.Context, l *ledger.Ledger, e events.Event) error {
	if _, err := l.Append(ctx, e); err != nil && !errors.Is(err, ledger.ErrExists) {
		return fmt.Errorf("declaring %s %s lost: %w", e.Class(), e.Subject, err)
	}
	return nil
}
