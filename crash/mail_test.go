//go:build linux

package crash

import (
	"errors"
	"fmt"

	"github.com/yieldlog/yieldlog/events"
)

// A letter is a mailbox record as a client was told of it.
type letter struct {
	Kind        events.MailKind `json:"kind"`
	ProcessID   string          `json:"process_id"`
	Session     string          `json:"session"`
	Redelivered bool            `json:"redelivered"`
	Status      events.Status   `json:"status"`
	Lost        []struct {
		ProcessID string `json:"process_id"`
	} `json:"lost"`

	by string // who told it: a client's server, or the sink
}

// name is what the letter is about, which is one record.
func (l letter) name() string {
	if l.Kind == events.MailResumed {
		return "what session " + l.Session + " lost"
	}
	return "the completion of " + l.ProcessID
}

// collect reads the mailbox once. It returns how many letters there were.
func (r *round) collect(c *client, wait int) (int, error) {
	o, err := c.call("mailbox", map[string]any{"timeout_ms": wait})
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range o.Records {
		l.by = fmt.Sprintf("server %d", c.cmd.Process.Pid)
		r.letters = append(r.letters, l)
	}
	return len(o.Records), nil
}

// inherit opens the ledger as the next client does, and reads the mail that the
// others left.
func (r *round) inherit() error {
	c, err := start(r.env)
	if err != nil {
		return err
	}
	err = c.initialize()
	for n := 1; err == nil && n > 0; {
		n, err = r.collect(c, 0)
	}
	if err := errors.Join(err, c.close()); err != nil {
		return fmt.Errorf("%w\n%s", err, c.log)
	}
	return nil
}

// mail holds that each completion reached its owner: once, or more often and
// then said so; and that the heir left nothing unread.
func (h *history) mail() {
	told := map[string]int{}
	for _, l := range h.letters {
		if !l.Redelivered {
			told[l.name()]++
		}
	}
	for _, rec := range h.mailbox.List("", "") {
		if k := h.kinds[rec.ID]; k[events.KindPosted] != 1 || k[events.KindAcknowledged] != 1 {
			h.t.Errorf("mailbox record %s (%s) has the events %v", rec.ID, rec.Notice, k)
		}
		if rec.Mail == events.MailCompletion && !rec.Redelivered && rec.By != "mailbox" && rec.By != "sink" {
			told[letter{ProcessID: rec.Execution}.name()]++ // by an answer
		}
	}
	for what, n := range told {
		if n > 1 {
			h.t.Errorf("a client was told %d times of %s, as of news; the letters: %+v", n, what, h.letters)
		}
	}
	h.owed()
	h.taken()
}

// owed holds that nothing that is to be told has no record.
func (h *history) owed() {
	resumed := map[string]bool{}
	for _, rec := range h.mailbox.List("", "") {
		for _, id := range rec.Executions {
			resumed[id] = true
		}
	}
	for p := range h.processes.Everything() {
		switch s, _ := h.sessions.Get(p.Session); {
		case s.Opened.Program != "mcp" || p.Settled == nil:
		case p.Settled.Termination == events.TermLost:
			if s.State == "lost" && !resumed[p.Execution] {
				h.t.Errorf("nobody was told that %s was lost", p.Execution)
			}
		case p.Yielded && p.Settled.Termination != events.TermSessionEnded:
			if h.kinds[p.Execution][events.KindPosted] != 1 {
				h.t.Errorf("nobody was told that %s ended", p.Execution)
			}
		}
	}
}
