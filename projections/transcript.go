package projections

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// RowKind says what a transcript row shows.
type RowKind string

// The kinds of rows.
const (
	// RowSession is an event of the session itself.
	RowSession RowKind = "session"
	// RowCall is an initiating call. It owns the output, the status and the
	// breadcrumb of its execution; reads and waits add no row.
	RowCall RowKind = "call"
	// RowInput is input to a running command, also one that failed.
	RowInput RowKind = "input"
	// RowStop is a stop.
	RowStop RowKind = "stop"
	// RowNotice is the forwarded completion of another owner's execution, or
	// several that follow each other.
	RowNotice RowKind = "notice"
)

// Row is one row of a transcript.
type Row struct {
	Seq       uint64    `json:"seq"`
	At        time.Time `json:"at"`
	Kind      RowKind   `json:"kind"`
	Session   string    `json:"session"`
	Owner     string    `json:"owner,omitempty"`
	Execution string    `json:"execution,omitempty"`
	// Text is the row in one line, made of structured facts, with control
	// characters escaped.
	Text string `json:"text"`
	// State, Status and those below are set for calls, and how it ended also for
	// the notice of one. Refused calls have the state completed and the refusal.
	State       string             `json:"state,omitempty"`
	Status      events.Status      `json:"status,omitempty"`
	Termination events.Termination `json:"termination,omitempty"`
	Outcome     events.Outcome     `json:"outcome,omitempty"`
	ExitCode    *int               `json:"exit_code,omitempty"`
	Refusal     string             `json:"refusal,omitempty"`
	Yielded     bool               `json:"yielded,omitempty"`
	EndedAt     time.Time          `json:"ended_at,omitzero"`
	// Offset is the output offset of the row: the length of a call's output as
	// far as the lifecycle tells it, and where an input or a stop happened.
	Offset int64 `json:"offset"`
	// Breadcrumb is the completion line of a call that yielded.
	Breadcrumb *Breadcrumb `json:"breadcrumb,omitempty"`
	// Notices are the completions that the row stands for, if it stands for
	// several: then it names no execution.
	Notices []Row `json:"notices,omitempty"`
}

// Transcript is the fold of rows: what happened, in order, one row for each
// thing that somebody did. Calls change in place as they go on.
type Transcript struct {
	mark    watermark
	session string
	rows    []*Row
	calls   map[string]*call
	crumbs  *Breadcrumbs
}

// call is a row and the request that its notices are worded from.
type call struct {
	row     *Row
	request events.Requested
	settled *events.Settled
}

// NewTranscript returns the fold of one session, or with "" of all.
func NewTranscript(session string) *Transcript {
	return &Transcript{session: session, calls: map[string]*call{}, crumbs: NewBreadcrumbs()}
}

// Rows returns the transcript of an owner: its own rows, and one line for each
// completion that was forwarded to it, or run of them. For people, who see all
// rows, the owner is "", and nothing is forwarded.
func (t *Transcript) Rows(owner string) []Row {
	var rows []Row
	for _, r := range t.rows {
		if !r.shownTo(owner) {
			continue
		}
		c := *r
		c.ExitCode = clonePointer(r.ExitCode)
		if crumb, ok := t.crumbs.Get(r.Execution); ok && r.Kind == RowCall {
			c.Breadcrumb = &crumb
		}
		if n := len(rows); n > 0 && c.Kind == RowNotice && rows[n-1].Kind == RowNotice {
			rows[n-1].fold(c)
			continue
		}
		rows = append(rows, c)
	}
	return rows
}

// shownTo reports whether the row is in the transcript of an owner. Completions
// are forwarded to the owners above in the path, of which the root is above all.
func (r *Row) shownTo(owner string) bool {
	switch {
	case r.Kind == RowNotice:
		return owner != "" && r.Owner != owner && (owner == events.RootOwner || strings.HasPrefix(r.Owner, owner+"/"))
	case owner == "", r.Owner == "":
		return true
	}
	return r.Owner == owner
}

// fold adds the notice that follows a notice.
func (r *Row) fold(next Row) {
	if r.Notices == nil {
		first := *r
		*r = Row{Seq: r.Seq, At: r.At, Kind: RowNotice, Session: r.Session, Notices: []Row{first}}
	}
	r.Notices = append(r.Notices, next)
	r.Text = foldedText(r.Notices)
}

// Apply implements [Fold].
func (t *Transcript) Apply(e events.Event) {
	if !t.mark.pass(e) || t.session != "" && e.Session != t.session {
		return
	}
	t.crumbs.Apply(e)
	switch e.Class() {
	case events.ClassSession:
		t.sessionEvent(e)
	case events.ClassExecution:
		t.execution(e)
	case events.ClassMailbox:
		if b, ok := e.Body.(events.Posted); ok {
			t.forwarded(e, b)
		}
	}
}

func (t *Transcript) add(e events.Event, kind RowKind, text string) *Row {
	r := &Row{Seq: e.Seq, At: e.Time, Kind: kind, Session: e.Session, Owner: e.Owner, Execution: e.Execution(), Text: text}
	t.rows = append(t.rows, r)
	return r
}

func (t *Transcript) sessionEvent(e events.Event) {
	switch b := e.Body.(type) {
	case events.Opened:
		t.add(e, RowSession, "Session opened by "+token(b.Program))
	case events.Closed:
		t.add(e, RowSession, "Session closed: "+oneLine(b.Reason))
	case events.Lost:
		t.add(e, RowSession, "Session lost: "+oneLine(b.Reason))
	case events.Forked:
		t.add(e, RowSession, fmt.Sprintf("Session forked from %s at %d", token(b.From), b.At))
	case events.Rewound:
		t.rewind(e.Session, b.To)
	}
}

func (t *Transcript) execution(e events.Event) {
	c := t.calls[e.Subject]
	switch b := e.Body.(type) {
	case events.Requested:
		if c == nil {
			t.call(e, b, StateQueued)
		}
		return
	case events.Refused:
		t.refused(e, b, c)
		return
	}
	if c == nil {
		return // hidden by a rewind, or never requested: verify tells which
	}
	switch b := e.Body.(type) {
	case events.Input:
		t.add(e, RowInput, inputText(b)).Offset = b.Offset
		c.reach(b.Offset)
	case events.Stopping:
		t.add(e, RowStop, stopText(b)).Offset = b.Offset
		c.reach(b.Offset)
		c.state(StateStopping)
	case events.Spawned:
		c.state(StateRunning)
	case events.Yielded:
		c.row.Yielded = true
		c.reach(b.Offset)
	case events.Settled:
		c.settle(e, b)
	}
}

func (t *Transcript) call(e events.Event, r events.Requested, state string) *call {
	text := oneLine(r.Command)
	if r.Name != "" {
		text = Label(r) + " " + text
	}
	row := t.add(e, RowCall, text)
	row.State, row.Status = state, events.StatusRunning
	c := &call{row: row, request: r}
	t.calls[e.Subject] = c
	return c
}

func (t *Transcript) refused(e events.Event, b events.Refused, c *call) {
	if c == nil {
		var r events.Requested
		if b.Request != nil {
			r = *b.Request
		}
		c = t.call(e, r, StateCompleted)
	}
	if c.settled != nil || c.row.Refusal != "" {
		return
	}
	c.row.State, c.row.Status, c.row.EndedAt = StateCompleted, events.StatusFailed, e.Time
	c.row.Refusal = oneLine(b.Message)
	if c.row.Refusal == "" {
		c.row.Refusal = token(b.Reason)
	}
}

func (c *call) settle(e events.Event, s events.Settled) {
	if c.settled != nil {
		return
	}
	c.settled = &s
	r := c.row
	r.State, r.Status, r.Termination, r.Outcome = StateCompleted, s.Status, s.Termination, s.Outcome
	r.ExitCode, r.EndedAt = clonePointer(s.ExitCode), e.Time
	c.reach(s.Offset)
}

// state moves a call that has not ended.
func (c *call) state(s string) {
	if c.row.State != StateCompleted {
		c.row.State = s
	}
}

func (c *call) reach(offset int64) { c.row.Offset = max(c.row.Offset, offset) }

// forwarded adds the line for the owners above: they did not start it, so that
// no row of theirs has its breadcrumb.
func (t *Transcript) forwarded(e events.Event, b events.Posted) {
	c := t.calls[b.Execution]
	if b.Mail != events.MailCompletion || c == nil {
		return
	}
	r := t.add(e, RowNotice, oneLine(b.Notice))
	r.Owner = c.row.Owner
	if s := c.settled; s != nil {
		r.Text = Notice(c.request, *s, b.Count)
		r.Status, r.Termination, r.Outcome, r.ExitCode = s.Status, s.Termination, s.Outcome, clonePointer(s.ExitCode)
	}
}

// rewind hides the rows that a session got after a sequence.
func (t *Transcript) rewind(session string, to uint64) {
	t.rows = slices.DeleteFunc(t.rows, func(r *Row) bool {
		hidden := r.Session == session && r.Seq > to
		if hidden && r.Kind == RowCall {
			delete(t.calls, r.Execution)
		}
		return hidden
	})
}

func inputText(b events.Input) string {
	var parts []string
	if b.Bytes > 0 {
		parts = append(parts, counted(b.Bytes, "byte"))
	}
	if b.Close {
		parts = append(parts, "end of input")
	}
	if b.Resize != nil {
		parts = append(parts, fmt.Sprintf("resize to %d×%d", b.Resize.Cols, b.Resize.Rows))
	}
	text := "Input"
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	if b.Error != "" {
		text += " failed: " + oneLine(b.Error)
	}
	return text
}

func stopText(b events.Stopping) string {
	text := "Stop"
	switch b.Cause {
	case events.TermStopped:
	case events.TermTimedOut:
		text = "Time limit reached"
	case events.TermOutputLimit:
		text = "Output limit reached"
	default:
		text = "Stop (" + token(string(b.Cause)) + ")"
	}
	if b.Signal != "" {
		text += ": " + token(b.Signal)
	}
	return text
}

// rowRunes bounds free text in a row.
const rowRunes = 200

// oneLine is free text on one bounded line, with control and format
// characters escaped.
func oneLine(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.Join(strings.Fields(s), " ") {
		if n++; n > rowRunes {
			b.WriteString("…")
			break
		}
		b.WriteString(printable(r))
	}
	return b.String()
}
