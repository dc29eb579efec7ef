package projections

import (
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// The states of a mailbox record.
const (
	MailPosted       = "posted"
	MailAcknowledged = "acknowledged"
)

// Record is one record of an owner's mailbox.
type Record struct {
	ID      string          `json:"id"`
	Session string          `json:"session"`
	Owner   string          `json:"owner"`
	Seq     uint64          `json:"seq"`
	At      time.Time       `json:"at"`
	Mail    events.MailKind `json:"mail"`
	// Execution, From, To, Count and Executions: see [events.Posted].
	Execution  string   `json:"execution,omitempty"`
	From       int64    `json:"from"`
	To         int64    `json:"to"`
	Count      int      `json:"count,omitempty"`
	Executions []string `json:"executions,omitempty"`
	Notice     string   `json:"notice"`

	// State is posted until the record reached its owner, then acknowledged.
	State          string    `json:"state"`
	AcknowledgedAt time.Time `json:"acknowledged_at,omitzero"`
	// By, Redelivered and Offered: see [events.Acknowledged].
	By          string    `json:"by,omitempty"`
	Redelivered bool      `json:"redelivered,omitempty"`
	Offered     time.Time `json:"offered,omitzero"`
	Anomalies   []string  `json:"anomalies,omitempty"`
}

// Mailbox is the fold of mailboxes: every record, in the order of posting.
type Mailbox struct {
	mark    watermark
	records []*Record
	index   map[string]*Record
}

// NewMailbox returns an empty fold.
func NewMailbox() *Mailbox { return &Mailbox{index: map[string]*Record{}} }

// List returns the records of an owner in a session in the order of posting.
// An empty session or owner stands for all.
func (m *Mailbox) List(session, owner string) []Record {
	var list []Record
	for _, r := range m.records {
		if (session == "" || r.Session == session) && (owner == "" || r.Owner == owner) {
			list = append(list, r.clone())
		}
	}
	return list
}

// Owners returns who has a mailbox in the session, in the order of their first
// records.
func (m *Mailbox) Owners(session string) []string {
	seen, owners := map[string]bool{}, []string(nil)
	for _, r := range m.records {
		if r.Session == session && !seen[r.Owner] {
			seen[r.Owner] = true
			owners = append(owners, r.Owner)
		}
	}
	return owners
}

// Apply implements [Fold].
func (m *Mailbox) Apply(e events.Event) {
	if !m.mark.pass(e) {
		return
	}
	switch b := e.Body.(type) {
	case events.Posted:
		m.post(e, b)
	case events.Acknowledged:
		m.acknowledge(e, b)
	case events.Rewound:
		m.rewind(e.Session, b.To)
	}
}

func (m *Mailbox) post(e events.Event, b events.Posted) {
	if r := m.index[e.Subject]; r != nil {
		(*anomalies)(&r.Anomalies).add(e.Seq, "posted again")
		return
	}
	r := &Record{
		ID: e.Subject, Session: e.Session, Owner: e.Owner, Seq: e.Seq, At: e.Time,
		Mail: b.Mail, Execution: b.Execution, From: b.From, To: b.To, Count: b.Count,
		Executions: slices.Clone(b.Executions), Notice: b.Notice, State: MailPosted,
	}
	m.records = append(m.records, r)
	m.index[r.ID] = r
}

func (m *Mailbox) acknowledge(e events.Event, b events.Acknowledged) {
	r := m.index[e.Subject]
	if r == nil {
		// Never posted: kept, so that the postmortem shows it.
		r = &Record{ID: e.Subject, Session: e.Session, Owner: e.Owner, Seq: e.Seq, At: e.Time, Execution: b.Execution}
		(*anomalies)(&r.Anomalies).add(e.Seq, "acknowledged, never posted")
		m.records = append(m.records, r)
		m.index[r.ID] = r
	}
	if r.State == MailAcknowledged {
		(*anomalies)(&r.Anomalies).add(e.Seq, "acknowledged again")
		return
	}
	r.State, r.AcknowledgedAt = MailAcknowledged, e.Time
	r.By, r.Redelivered, r.Offered = b.By, b.Redelivered, b.Offered
}

// rewind hides the records that a session posted after a sequence.
func (m *Mailbox) rewind(session string, to uint64) {
	m.records = slices.DeleteFunc(m.records, func(r *Record) bool {
		hidden := r.Session == session && r.Seq > to
		if hidden {
			delete(m.index, r.ID)
		}
		return hidden
	})
}

func (r *Record) clone() Record {
	c := *r
	c.Executions = slices.Clone(r.Executions)
	c.Anomalies = slices.Clone(r.Anomalies)
	return c
}
