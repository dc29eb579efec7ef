package producers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// programExec is the program of a session that is one command on a terminal.
const programExec = "exec"

// unposted is the mail that a dead session owes: completions that it settled
// and did not post any more, and the list of what it lost.
type unposted struct {
	live map[string]*debt // executions without an end
	owed map[string]*debt // completions without a record
	// lost lists each owner's lost executions.
	lost map[string][]string
	// unread holds the records that were posted and not acknowledged.
	unread map[string]bool
	// late are the executions whose end arrived after their server had died: no
	// call has answered with it.
	late map[string]bool
}

// A debt is an execution whose end is to be told.
type debt struct {
	owner   string
	request events.Requested
	settled events.Settled
	yielded bool
	// mailed is the end of the output that batches delivered, and lines their lines.
	mailed int64
	lines  int
}

func newUnposted() *unposted {
	return &unposted{live: map[string]*debt{}, owed: map[string]*debt{}, lost: map[string][]string{}, unread: map[string]bool{}}
}

func (u *unposted) apply(e events.Event) {
	d := u.live[e.Execution()]
	switch b := e.Body.(type) {
	case events.Requested:
		u.live[e.Subject] = &debt{owner: e.Owner, request: b}
		return
	case events.Refused:
		delete(u.live, e.Subject)
	case events.Settled:
		delete(u.live, e.Subject)
		switch {
		case b.Termination == events.TermLost: // by an opener that died itself
			u.lose(e.Owner, e.Subject)
		case d != nil && (d.yielded || u.late[e.Subject]) && b.Termination != events.TermSessionEnded:
			d.settled = b
			u.owed[e.Subject] = d
		}
		return
	case events.Acknowledged:
		delete(u.unread, e.Subject)
	case events.Posted:
		u.unread[e.Subject] = true
		if b.Mail == events.MailCompletion {
			delete(u.owed, b.Execution)
			return
		}
		if d == nil {
			d = u.owed[b.Execution]
		}
		if d != nil && b.Mail == events.MailMonitor {
			d.mailed, d.lines = max(d.mailed, b.To), d.lines+b.Count
		}
	case events.Yielded:
		if d != nil {
			d.yielded = true
		}
	}
}

func (u *unposted) lose(owner, execution string) {
	if !slices.Contains(u.lost[owner], execution) {
		u.lost[owner] = append(u.lost[owner], execution)
	}
}

// post appends what is owed. It may have been appended before, by an opener
// that died: the records have the same names then.
func (u *unposted) post(ctx context.Context, l *ledger.Ledger, session string) error {
	for _, id := range slices.Sorted(maps.Keys(u.owed)) {
		d := u.owed[id]
		p := events.Posted{
			Mail: events.MailCompletion, Execution: id, From: min(d.mailed, d.settled.Offset), To: d.settled.Offset,
			Count: d.lines, Notice: projections.Notice(d.request, d.settled, d.lines),
		}
		if err := appendOnce(ctx, l, events.Event{Session: session, Owner: d.owner, Subject: id, Body: p}); err != nil {
			return err
		}
	}
	for _, owner := range slices.Sorted(maps.Keys(u.lost)) {
		e := events.Event{Session: session, Owner: owner, Subject: resumedID(session, owner), Body: resumed(u.lost[owner])}
		if err := appendOnce(ctx, l, e); err != nil {
			return err
		}
	}
	return nil
}

// resumed reminds an owner of what its session lost.
func resumed(lost []string) events.Posted {
	return events.Posted{Mail: events.MailResumed, Executions: lost, Notice: projections.ResumedNotice(len(lost))}
}

// resumedID names the one record of what a session lost of an owner.
func resumedID(session, owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return session + "-" + hex.EncodeToString(sum[:4])
}
