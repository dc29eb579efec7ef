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
	unread  map[mailboxKey][]*Record
}

type mailboxKey struct{ session, owner string }

// NewMailbox returns an empty fold.
func NewMailbox() *Mailbox {
	return &Mailbox{index: map[string]*Record{}, unread: map[mailboxKey][]*Record{}}
}

// Get returns a record.
func (m *Mailbox) Get(id string) (Record, bool) {
	if r := m.index[id]; r != nil {
		return r.clone(), true
	}
	return Record{}, false
}

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

// Unread returns an owner's records that did not reach it yet, in the order of
// posting. It takes time for what it returns, not for what was ever posted.
func (m *Mailbox) Unread(session, owner string) []Record {
	var list []Record
	for _, r := range m.unread[mailboxKey{session, owner}] {
		list = append(list, r.clone())
	}
	return list
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
	k := mailboxKey{r.Session, r.Owner}
	m.unread[k] = append(m.unread[k], r)
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
	m.drop(r)
}

// drop takes a record off its unread list.
func (m *Mailbox) drop(r *Record) {
	k := mailboxKey{r.Session, r.Owner}
	left := slices.DeleteFunc(m.unread[k], func(u *Record) bool { return u == r })
	if len(left) == 0 {
		delete(m.unread, k)
		return
	}
	m.unread[k] = left
}

// rewind hides the records that a session posted after a sequence.
func (m *Mailbox) rewind(session string, to uint64) {
	m.records = slices.DeleteFunc(m.records, func(r *Record) bool {
		hidden := r.Session == session && r.Seq > to
		if hidden {
			delete(m.index, r.ID)
			m.drop(r)
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
