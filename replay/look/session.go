package look

import (
	"time"

	"github.com/yieldlog/yieldlog/projections"
)

// SessionRow is one session in one line.
type SessionRow struct {
	ID string
	// State is open, closed or lost, and Sign the same in one character.
	State, Sign string
	Reason      string
	Client, Cwd string
	Host        string
	Name        string
	From, To    time.Time
	Took        time.Duration
	// The counts of its executions.
	Executions, Running, Completed, Failed, Stopped, TimedOut, Refused int
	ForkedFrom                                                         string
	Anomalies                                                          []string
}

// NewSessionRow is the row of a session as of a moment.
func NewSessionRow(p projections.Session, now time.Time) SessionRow {
	r := SessionRow{
		ID: p.ID, State: p.State, Reason: OneLine(p.Reason), Client: OneLine(p.Opened.Client), Cwd: OneLine(p.Opened.Cwd),
		Host: OneLine(p.Opened.Host), Name: OneLine(p.Opened.Name), From: p.At, To: p.EndedAt, ForkedFrom: p.ForkedFrom,
		Executions: p.Executions, Running: p.Running, Completed: p.Completed, Failed: p.Failed, Stopped: p.Stopped,
		TimedOut: p.TimedOut, Refused: p.Refused,
	}
	if r.Client == "" {
		r.Client = OneLine(p.Opened.Program)
	}
	end := p.EndedAt
	if end.IsZero() {
		end = now
	}
	r.Took = max(end.Sub(p.At), 0)
	switch p.State {
	case projections.SessionOpen:
		r.Sign = MarkRunning.Sign
	case projections.SessionLost:
		r.Sign = MarkLost.Sign
	default:
		r.Sign = MarkCompleted.Sign
	}
	for _, a := range p.Anomalies {
		r.Anomalies = append(r.Anomalies, OneLine(a))
	}
	return r
}

// Trouble counts the executions that deserve a look.
func (r SessionRow) Trouble() int { return r.Failed + r.TimedOut + r.Refused }
