package projections

import (
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// The states of a session.
const (
	SessionOpen   = "open"
	SessionClosed = "closed"
	SessionLost   = "lost"
)

// Session is one session as lists show it.
type Session struct {
	ID     string        `json:"session"`
	Opened events.Opened `json:"opened"`
	State  string        `json:"state"`
	// Reason says why it was closed or lost.
	Reason  string    `json:"reason,omitempty"`
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	EndedAt time.Time `json:"ended_at,omitzero"`
	// LastSeq and LastAt are those of its last lifecycle event.
	LastSeq uint64    `json:"last_seq"`
	LastAt  time.Time `json:"last_at"`
	// ForkedFrom is the session whose history it began with, up to ForkedAt.
	ForkedFrom string `json:"forked_from,omitempty"`
	ForkedAt   uint64 `json:"forked_at,omitempty"`
	// RewoundTo is the sequence of its last rewind, or 0.
	RewoundTo uint64 `json:"rewound_to,omitempty"`

	// Executions counts what it started, Running what has not ended, and the
	// others the ends by their word. A lost one counts as stopped, and as Lost.
	Executions int `json:"executions"`
	Running    int `json:"running"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Stopped    int `json:"stopped"`
	Lost       int `json:"lost,omitempty"`
	TimedOut   int `json:"timed_out"`
	Refused    int `json:"refused"`

	Anomalies []string `json:"anomalies,omitempty"`
}

// Sessions is the fold of sessions. Its counts are of what happened: a rewind
// does not lower them.
type Sessions struct {
	mark    watermark
	list    []*Session
	index   map[string]*Session
	running map[string]struct{}
}

// NewSessions returns an empty fold.
func NewSessions() *Sessions {
	return &Sessions{index: map[string]*Session{}, running: map[string]struct{}{}}
}

// Get returns a session.
func (s *Sessions) Get(id string) (Session, bool) {
	if v := s.index[id]; v != nil {
		return v.clone(), true
	}
	return Session{}, false
}

// List returns the sessions, the newest first.
func (s *Sessions) List() []Session {
	list := make([]Session, 0, len(s.list))
	for _, v := range slices.Backward(s.list) {
		list = append(list, v.clone())
	}
	return list
}

// Apply implements [Fold].
func (s *Sessions) Apply(e events.Event) {
	if !s.mark.pass(e) {
		return
	}
	v := s.index[e.Session]
	if v == nil {
		v = &Session{ID: e.Session, State: SessionOpen, Seq: e.Seq, At: e.Time}
		s.list = append(s.list, v)
		s.index[v.ID] = v
		if e.Kind() != events.KindOpened {
			v.note(e.Seq, "begins with %s", e.Kind())
		}
	}
	v.LastSeq, v.LastAt = e.Seq, e.Time
	switch b := e.Body.(type) {
	case events.Opened:
		v.open(e, b)
	case events.Closed:
		v.end(e, SessionClosed, b.Reason)
	case events.Lost:
		v.end(e, SessionLost, b.Reason)
	case events.Forked:
		v.ForkedFrom, v.ForkedAt = b.From, b.At
	case events.Rewound:
		v.RewoundTo = b.To
	default:
		s.count(v, e)
	}
}

func (s *Sessions) count(v *Session, e events.Event) {
	_, running := s.running[e.Subject]
	switch b := e.Body.(type) {
	case events.Requested:
		if running {
			v.note(e.Seq, "%s requested again", e.Subject)
			return
		}
		if v.State != SessionOpen {
			v.note(e.Seq, "%s requested after the session's end", e.Subject)
		}
		s.running[e.Subject] = struct{}{}
		v.Executions++
		v.Running++
	case events.Refused:
		v.Refused++
		s.finish(v, e.Subject, running)
	case events.Settled:
		if !running {
			v.note(e.Seq, "%s settled, not running", e.Subject)
			return
		}
		s.finish(v, e.Subject, running)
		if b.Status == events.StatusLost {
			v.Lost++
		}
		switch Word(b) {
		case WordFailed:
			v.Failed++
		case WordStopped:
			v.Stopped++
		case WordTimedOut:
			v.TimedOut++
		default:
			v.Completed++
		}
	}
}

func (s *Sessions) finish(v *Session, execution string, running bool) {
	if running {
		delete(s.running, execution)
		v.Running--
	}
}

func (v *Session) open(e events.Event, b events.Opened) {
	if v.Opened != (events.Opened{}) {
		v.note(e.Seq, "opened again")
		return
	}
	if v.Seq != e.Seq {
		v.note(e.Seq, "opened late")
	}
	v.Opened = b
}

func (v *Session) end(e events.Event, state, reason string) {
	if v.State != SessionOpen {
		v.note(e.Seq, "%s, already %s", state, v.State)
		return
	}
	if v.Running > 0 {
		v.note(e.Seq, "%s with %d executions unsettled", state, v.Running)
	}
	v.State, v.Reason, v.EndedAt = state, reason, e.Time
}

func (v *Session) note(seq uint64, format string, args ...any) {
	(*anomalies)(&v.Anomalies).add(seq, format, args...)
}

func (v *Session) clone() Session {
	c := *v
	c.Anomalies = slices.Clone(v.Anomalies)
	return c
}
