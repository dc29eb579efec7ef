package projections

import (
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// Breadcrumb is the one durable completion line of an execution that yielded.
// It holds no output: it points to the execution, whose row owns that.
type Breadcrumb struct {
	Execution string `json:"execution"`
	Session   string `json:"session"`
	Owner     string `json:"owner"`
	// Row is the sequence of the initiating call, where the breadcrumb belongs,
	// and Seq the one at which it came to be.
	Row uint64    `json:"row"`
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
	// Word is completed, failed, stopped or timed out, and Text the whole line.
	Word string `json:"word"`
	Text string `json:"text"`
	// Neutral says that the end is no failure to look at, whatever its outcome.
	Neutral bool           `json:"neutral"`
	Outcome events.Outcome `json:"outcome"`
	// LearnedAt is when the owner was told, and LearnedBy how. Zero until then.
	LearnedAt time.Time `json:"learned_at,omitzero"`
	LearnedBy string    `json:"learned_by,omitempty"`
}

// Breadcrumbs is the fold of completions: exactly one for each execution that
// yielded and settled, at its original row, whoever delivered the completion.
type Breadcrumbs struct {
	mark watermark
	// open holds the executions that have not ended, and mail the completion
	// records that were not acknowledged.
	open map[string]*trail
	mail map[string]string
	done map[string]*trail
	list []*trail
}

// trail is what is known of an execution on its way to its breadcrumb.
type trail struct {
	request events.Requested
	settled events.Settled
	yielded bool
	lines   int
	crumb   Breadcrumb
}

// NewBreadcrumbs returns an empty fold.
func NewBreadcrumbs() *Breadcrumbs {
	return &Breadcrumbs{open: map[string]*trail{}, mail: map[string]string{}, done: map[string]*trail{}}
}

// List returns the breadcrumbs in the order in which they came to be.
func (b *Breadcrumbs) List() []Breadcrumb {
	list := make([]Breadcrumb, len(b.list))
	for i, t := range b.list {
		list[i] = t.crumb
	}
	return list
}

// Get returns an execution's breadcrumb.
func (b *Breadcrumbs) Get(execution string) (Breadcrumb, bool) {
	if t := b.done[execution]; t != nil {
		return t.crumb, true
	}
	return Breadcrumb{}, false
}

// Apply implements [Fold].
func (b *Breadcrumbs) Apply(e events.Event) {
	if !b.mark.pass(e) {
		return
	}
	switch body := e.Body.(type) {
	case events.Requested:
		if b.done[e.Subject] == nil && b.open[e.Subject] == nil {
			b.open[e.Subject] = &trail{request: body, crumb: Breadcrumb{
				Execution: e.Subject, Session: e.Session, Owner: e.Owner, Row: e.Seq,
			}}
		}
	case events.Refused:
		delete(b.open, e.Subject)
	case events.Yielded:
		if t := b.open[e.Subject]; t != nil {
			t.yielded = true
		}
	case events.Settled:
		b.settle(e, body)
	case events.Posted:
		b.posted(e, body)
	case events.Acknowledged:
		b.learned(e, body)
	case events.Rewound:
		b.rewind(e.Session, body.To)
	}
}

// settle makes the breadcrumb, if the execution had yielded. One that had not
// answered its own call.
func (b *Breadcrumbs) settle(e events.Event, s events.Settled) {
	t := b.open[e.Subject]
	if t == nil {
		return
	}
	delete(b.open, e.Subject)
	if !t.yielded {
		return
	}
	t.settled = s
	c := &t.crumb
	c.Seq, c.At, c.Word, c.Outcome = e.Seq, e.Time, Word(s), s.Outcome
	c.Neutral = c.Word == WordCompleted || c.Word == WordStopped
	c.Text = Notice(t.request, s, t.lines)
	b.done[c.Execution] = t
	b.list = append(b.list, t)
}

// posted counts a monitor's lines: batch by batch, until its terminal record
// says how many there were.
func (b *Breadcrumbs) posted(e events.Event, p events.Posted) {
	if p.Mail == events.MailCompletion {
		b.mail[e.Subject] = p.Execution
	}
	t := b.done[p.Execution]
	if t == nil {
		t = b.open[p.Execution]
	}
	if t == nil || !t.request.Monitor || e.Session != t.crumb.Session {
		return
	}
	switch p.Mail {
	case events.MailMonitor:
		t.lines += p.Count
	case events.MailCompletion:
		t.lines = p.Count
	}
	if t.crumb.Text != "" {
		t.crumb.Text = Notice(t.request, t.settled, t.lines)
	}
}

// learned notes when the owner was told.
func (b *Breadcrumbs) learned(e events.Event, a events.Acknowledged) {
	execution, ok := b.mail[e.Subject]
	if !ok {
		return
	}
	delete(b.mail, e.Subject)
	if t := b.done[execution]; t != nil && t.crumb.LearnedAt.IsZero() {
		t.crumb.LearnedAt, t.crumb.LearnedBy = e.Time, a.By
	}
}

// rewind drops the breadcrumbs that a session got after a sequence.
func (b *Breadcrumbs) rewind(session string, to uint64) {
	b.list = slices.DeleteFunc(b.list, func(t *trail) bool {
		hidden := t.crumb.Session == session && t.crumb.Seq > to
		if hidden {
			delete(b.done, t.crumb.Execution)
		}
		return hidden
	})
	for id, t := range b.open {
		if t.crumb.Session == session && t.crumb.Row > to {
			delete(b.open, id)
		}
	}
}
