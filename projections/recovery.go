package projections

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// OpenSession is a session that was opened and neither closed nor lost.
type OpenSession struct {
	ID     string
	Seq    uint64
	Opened events.Opened
}

// Unsettled is an execution without an end. The next opener declares those of
// a dead session lost.
type Unsettled struct {
	Execution, Session, Owner string
	RequestedSeq              uint64
	RequestedAt               time.Time
	// Spawned is the process, zero if it never started.
	Spawned events.Spawned
	// Pruned is the end of the output that was deleted on purpose, 0 if none was.
	Pruned int64
}

// Recovery is the fold that says what a dead session left behind. It holds
// only what has not ended.
type Recovery struct {
	mark     watermark
	sessions map[string]OpenSession
	pending  map[string]*Unsettled
}

// NewRecovery returns an empty fold.
func NewRecovery() *Recovery {
	return &Recovery{sessions: map[string]OpenSession{}, pending: map[string]*Unsettled{}}
}

// Open lists the sessions that are open, the oldest first.
func (r *Recovery) Open() []OpenSession {
	return slices.SortedFunc(maps.Values(r.sessions), func(a, b OpenSession) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Unsettled lists the executions of a session without an end, the oldest
// first. An empty session stands for all: one may have lost its opening.
func (r *Recovery) Unsettled(session string) []Unsettled {
	var list []Unsettled
	for _, u := range r.pending {
		if session == "" || u.Session == session {
			list = append(list, *u)
		}
	}
	slices.SortFunc(list, func(a, b Unsettled) int { return cmp.Compare(a.RequestedSeq, b.RequestedSeq) })
	return list
}

// Apply implements [Fold].
func (r *Recovery) Apply(e events.Event) {
	if !r.mark.pass(e) {
		return
	}
	switch b := e.Body.(type) {
	case events.Opened:
		r.sessions[e.Session] = OpenSession{ID: e.Session, Seq: e.Seq, Opened: b}
	case events.Closed, events.Lost:
		delete(r.sessions, e.Session)
	case events.Requested:
		r.pending[e.Subject] = &Unsettled{
			Execution: e.Subject, Session: e.Session, Owner: e.Owner, RequestedSeq: e.Seq, RequestedAt: e.Time,
		}
	case events.Spawned:
		if u := r.pending[e.Subject]; u != nil {
			u.Spawned = b
		}
	case events.Pruned:
		if u := r.pending[e.Subject]; u != nil {
			u.Pruned = max(u.Pruned, b.To)
		}
	case events.Refused, events.Settled:
		delete(r.pending, e.Subject)
	}
}
