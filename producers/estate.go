package producers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// estates is the unread mail of the earlier sessions that this one follows.
// Whoever tells of it holds the claim of the session that posted it meanwhile:
// so no two processes do, and that session has one writer.
type estates struct {
	once sync.Once
	done chan struct{} // closed when the ledger was looked through
	late chan struct{} // closed when that takes longer than an answer waits

	mu sync.Mutex
	// locks are the sessions that are claimed, and users counts the letters
	// that each is claimed for.
	locks map[string]*ledger.Claim
	users map[string]int
	// doubt holds the sessions of whose unread mail some may have been seen.
	doubt  map[string]bool
	closed bool
}

func newEstates() *estates {
	return &estates{done: make(chan struct{}), late: make(chan struct{}), locks: map[string]*ledger.Claim{}, users: map[string]int{}, doubt: map[string]bool{}}
}

// look begins to look for earlier mail, the first time that it is called.
func (es *estates) look(s *Session) {
	es.once.Do(func() {
		time.AfterFunc(glanceMost, func() { close(es.late) })
		go func() {
			defer close(es.done)
			if err := es.adopt(s); err != nil && !s.mail.isShut() {
				s.log.Warn("looking for earlier mail", "error", err)
			}
		}()
	})
}

// glanceMost bounds how long the first answers wait for earlier mail.
const glanceMost = 250 * time.Millisecond

// glance is wait for who has little time: an agent that does not know of earlier
// mail is told with the first answer, unless the ledger is slow.
func (es *estates) glance(s *Session) {
	es.look(s)
	select {
	case <-es.done:
	case <-es.late:
	}
}

// wait returns once the ledger was looked through. What could not be read is
// left for a later session.
func (es *estates) wait(ctx context.Context, s *Session) error {
	es.look(s)
	select {
	case <-es.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A past is what is known of an earlier session.
type past struct {
	opened events.Opened
	ended  bool
}

// losses are the sequences at which sessions were found dead.
type losses map[string]uint64

// mayHaveTold reports whether one of the sessions may have told of the record before
// it died and could not say so: the record's own, or one that had inherited it.
func (l losses) mayHaveTold(m Mail) bool {
	for session, seq := range l {
		// Who posted what a session lost found that one dead.
		if seq > m.Seq && (session != m.Session || m.Mail != events.MailResumed) {
			return true
		}
	}
	return false
}

// adopt makes letters of the unread mail of earlier sessions.
func (es *estates) adopt(s *Session) error {
	sessions, lost := map[string]past{}, losses{}
	for e, err := range s.ledger.Read(s.life, events.Filter{Class: events.ClassSession}, 1, 0) {
		if err != nil {
			return fmt.Errorf("reading the sessions: %w", err)
		}
		p := sessions[e.Session]
		switch b := e.Body.(type) {
		case events.Opened:
			p.opened = b
		case events.Closed:
			p.ended = true
		case events.Lost:
			p.ended = true
			if s.opened.Follows(p.opened) {
				lost[e.Session] = e.Seq
			}
		}
		sessions[e.Session] = p
	}
	left := map[string]*letter{}
	for e, err := range s.ledger.Read(s.life, events.Filter{Class: events.ClassMailbox}, 1, 0) {
		if err == nil && s.mail.isShut() {
			err = ErrClosed
		}
		if err != nil {
			return fmt.Errorf("reading the mailboxes: %w", err)
		}
		switch b := e.Body.(type) {
		case events.Posted:
			if p := sessions[e.Session]; e.Session != s.id && p.ended && s.opened.Follows(p.opened) {
				m := mailOf(e, b)
				m.Redelivered = lost.mayHaveTold(m)
				left[e.Subject] = &letter{durable: true, announced: true, mail: m}
			}
		case events.Acknowledged:
			delete(left, e.Subject)
		}
	}
	s.mail.inherit(left)
	return nil
}

// inherit puts letters of earlier sessions in front of what there is.
func (b *mailbox) inherit(left map[string]*letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first []*letter
	for id, t := range left {
		if b.letters[id] == nil {
			b.letters[id] = t
			first = append(first, t)
		}
	}
	slices.SortFunc(first, func(a, b *letter) int { return int(int64(a.mail.Seq) - int64(b.mail.Seq)) })
	if len(first) > 0 {
		b.order = append(first, b.order...)
		b.changed()
	}
}

// secure claims the sessions that the claim's letters are of, and takes those
// letters out of it that another process tells of, or has told of.
func (es *estates) secure(ctx context.Context, b *mailbox, c *Claim) {
	kept := c.letters[:0:0]
	var busy, gone []*letter
	for _, t := range c.letters {
		if t.mail.Session == b.session.id {
			kept = append(kept, t)
			continue
		}
		switch ok, err := es.secureOne(ctx, b.session, t); {
		case err != nil:
			busy = append(busy, t)
		case !ok:
			gone = append(gone, t)
		default:
			kept = append(kept, t)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.letters = kept
	for _, t := range busy {
		t.held = nil
	}
	for _, t := range gone {
		b.drop(t)
	}
}

// secureOne claims the letter's session. It reports false when the letter was
// told of meanwhile.
func (es *estates) secureOne(ctx context.Context, s *Session, t *letter) (bool, error) {
	id := t.mail.Session
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.closed {
		return false, ErrClosed
	}
	if es.locks[id] == nil {
		claim, err := s.ledger.ClaimSession(id)
		if err != nil {
			return false, err
		}
		es.locks[id], es.doubt[id] = claim, claim.Left
	}
	if es.doubt[id] {
		s.mail.doubt(t)
	}
	es.users[id]++
	taken := events.Filter{Session: id, Class: events.ClassMailbox, ID: t.mail.ID, Kind: events.KindAcknowledged}
	for _, err := range s.ledger.Read(ctx, taken, 1, 0) {
		es.let(id)
		return false, err
	}
	return true, nil
}

// release gives up one letter's use of its session's claim. seen says that it is
// unread and may have been seen.
func (es *estates) release(session string, seen bool) {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.doubt[session] = es.doubt[session] || seen
	es.let(session)
}

func (es *estates) let(session string) {
	if es.users[session]--; es.users[session] > 0 {
		return
	}
	delete(es.users, session)
	if claim := es.locks[session]; claim != nil {
		giveUp(claim, es.doubt[session])
		delete(es.locks, session)
		delete(es.doubt, session)
	}
}

// giveUp releases a claim, or leaves it for the next to see that mail of the
// session may have been seen.
func giveUp(claim *ledger.Claim, doubt bool) {
	if doubt {
		claim.Leave()
		return
	}
	claim.Release()
}

// doubt notes that a letter may have been seen.
func (b *mailbox) doubt(t *letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.mail.Redelivered = true
}

// close gives everything up.
func (es *estates) close() {
	es.mu.Lock()
	defer es.mu.Unlock()
	es.closed = true
	for _, claim := range es.locks {
		claim.Leave() // in the middle of an offer
	}
	clear(es.locks)
	clear(es.users)
}
