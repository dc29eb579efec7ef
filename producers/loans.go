package producers

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events/ledger"
)

// bySink is what acknowledged a record that a sink took.
const bySink = "sink"

// ackedMost is how many acknowledged leases are known for a repetition.
const ackedMost = 1024

// A loan is a record that a sink was given and has not acknowledged: a claim of
// the sink, with a term.
type loan struct {
	Lent
	// take names the request by which it was lent.
	take  uint64
	owner string
	claim *Claim
	term  *time.Timer
}

// Lent says what a sink may be given.
type Lent struct {
	// Seq is the sequence of the record, and Lease names the loan.
	Seq         uint64 `json:"seq"`
	Lease       uint64 `json:"lease"`
	Redelivered bool   `json:"redelivered,omitempty"`
}

// loans is what a mailbox has lent to sinks. No lock is taken under its own.
type loans struct {
	wait time.Duration // how long a sink has; [ledger.AckWait], but for tests

	mu    sync.Mutex
	open  map[uint64]*loan // by lease
	acked []uint64         // the leases that were acknowledged last
	over  bool
}

func newLoans() *loans { return &loans{wait: ledger.AckWait, open: map[uint64]*loan{}} }

// lend claims the owner's unread records for a sink, at most so many. A request
// that comes again, by its number, gets what it got. The leases count on from
// the number.
func (b *mailbox) lend(ctx context.Context, owner string, most int, take uint64) []Lent {
	if list := b.loans.again(take); len(list) > 0 {
		return list
	}
	c := &Claim{box: b, by: bySink}
	b.mu.Lock()
	for _, t := range b.order {
		// What earlier sessions left is lent by who serves the sink.
		if len(c.letters) < most && t.mail.Owner == owner && b.lendable(t) {
			c.hold(t)
		}
	}
	b.mu.Unlock()
	b.earlier.secure(ctx, b, c)
	list := make([]Lent, 0, len(c.letters))
	for i, t := range c.letters {
		l := &loan{
			Lent: Lent{Seq: t.mail.Seq, Lease: take + uint64(i), Redelivered: t.mail.Redelivered},
			take: take, owner: owner, claim: &Claim{box: b, by: bySink, letters: []*letter{t}},
		}
		if !b.hand(t, l) {
			continue // the session has ended
		}
		list = append(list, l.Lent)
	}
	return list
}

// lendable reports whether a sink may have the letter. The caller holds the lock.
func (b *mailbox) lendable(t *letter) bool {
	return b.free(t) && !b.closing && (b.session.id == "" || t.mail.Session == b.session.id)
}

// hand makes the loan the holder of the letter, and sets its term.
func (b *mailbox) hand(t *letter, l *loan) bool {
	b.mu.Lock()
	t.held = l.claim
	b.mu.Unlock()
	ok := b.loans.add(l, func() {
		if b.loans.end(l.Lease) != nil {
			l.claim.Restore(true)
		}
	})
	if !ok {
		l.claim.Restore(false)
	}
	return ok
}

func (s *loans) add(l *loan, late func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	l.term = time.AfterFunc(s.wait, late)
	s.open[l.Lease] = l
	return true
}

// again is what a request was lent before.
func (s *loans) again(take uint64) []Lent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Lent
	for _, l := range s.open {
		if l.take == take {
			list = append(list, l.Lent)
		}
	}
	slices.SortFunc(list, func(a, b Lent) int { return int(int64(a.Seq) - int64(b.Seq)) })
	return list
}

// end ends a loan, once: it is nil when it had ended.
func (s *loans) end(lease uint64) *loan {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.open[lease]
	if l != nil {
		delete(s.open, lease)
		l.term.Stop()
	}
	return l
}

// hear takes a sink's answer. One to what was never lent here, or whose term is
// over, has no effect.
func (s *loans) hear(a ledger.SinkAck) {
	s.mu.Lock()
	l := s.open[a.Lease]
	repeated := a.Verb == ledger.AckTaken && slices.Contains(s.acked, a.Lease)
	if l != nil && (l.owner != a.Owner || l.Seq != a.Seq) {
		l = nil
	}
	if l != nil && a.Verb == ledger.AckProgress {
		l.term.Reset(s.wait)
	}
	s.mu.Unlock()
	switch {
	case repeated:
		a.Answer()
	case l == nil:
	case a.Verb == ledger.AckProgress:
		a.Answer()
	case s.end(a.Lease) == nil: // its term ended this moment
	case a.Verb == ledger.AckTaken:
		l.claim.taken(func() {
			s.noteAcked(a.Lease)
			a.Answer()
		})
	default:
		l.claim.Restore(a.Verb != ledger.AckNobody)
		a.Answer()
	}
}

func (s *loans) noteAcked(lease uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = append(s.acked, lease)
	if len(s.acked) > ackedMost {
		s.acked = slices.Delete(s.acked, 0, len(s.acked)-ackedMost)
	}
}

// recall ends the loans of an owner: what its sink answers is late.
func (s *loans) recall(owner string) {
	for _, l := range s.drop(func(l *loan) bool { return l.owner == owner }) {
		l.claim.Restore(true)
	}
}

// close ends all loans, and there are no more.
func (s *loans) close() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.drop(func(*loan) bool { return true })
}

func (s *loans) drop(which func(*loan) bool) (dropped []*loan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lease, l := range s.open {
		if which(l) {
			delete(s.open, lease)
			l.term.Stop()
			dropped = append(dropped, l)
		}
	}
	return dropped
}

// told reports whether one of the letters is there and somebody tells of it, so
// that nothing is heard when that ends.
func (b *mailbox) told(letters map[string]*letter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range letters {
		if t := b.letters[id]; t != nil && t.held == nil {
			return true
		}
	}
	return false
}

// changes is closed with the next change.
func (b *mailbox) changes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news
}

// ready returns once a sink may have something of the owner's, at the end of the
// context, or when the session ends.
func (b *mailbox) ready(ctx context.Context, owner string) {
	for {
		b.mu.Lock()
		news := b.news
		done := b.closing || b.isShut() || slices.ContainsFunc(b.order, func(t *letter) bool {
			return t.mail.Owner == owner && b.lendable(t)
		})
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-news:
		case <-b.shut:
		case <-ctx.Done():
			return
		}
	}
}
