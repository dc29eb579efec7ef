package producers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

const (
	// quietMost bounds how long a closing session waits for mail on its way.
	quietMost = 2 * time.Second
	// The pause before what failed is tried again: an append of mail, or its following.
	firstRetry, lastRetry = 100 * time.Millisecond, 5 * time.Second
)

// Mail is one record of a mailbox, as its owner is told of it.
type Mail struct {
	// ID is the record's, and Session the one that posted it: an earlier one
	// when the record outlived that.
	ID, Session, Owner string
	events.Posted
	// At is when it was posted, and Seq the sequence.
	At  time.Time
	Seq uint64
	// Redelivered says that an earlier offer may have been seen already.
	Redelivered bool
	// Unasked says that it came by itself: nobody stopped the command.
	Unasked bool
}

// mailOf is the record that an event posted.
func mailOf(e events.Event, b events.Posted) Mail {
	return Mail{ID: e.Subject, Session: e.Session, Owner: e.Owner, Posted: b, At: e.Time, Seq: e.Seq}
}

// A letter is a record from its making to its acknowledgement. It is guarded by
// the mailbox's lock.
type letter struct {
	mail Mail
	// durable says that the ledger holds it. Until then its delivery is pending.
	durable bool
	// early counts the observers that were waiting when it was made and have
	// not decided yet: they go first.
	early int
	// held is the claim on it, nil while nobody has one.
	held    *Claim
	offered time.Time
	// told is set once an answer that carries it was written.
	told *events.Acknowledged
	// recorded, if not nil, is called when the ledger holds that.
	recorded func()
	// landed, if not nil, is called when the ledger holds it. It must not block.
	landed func()
	// left, if not nil, is called when it reached its owner. It must not block.
	left func()
	// announced says that listeners were told of it.
	announced bool
}

// mailbox is the mail of a session: what was posted and not acknowledged, and
// who has claimed what. Appends never happen under its lock.
type mailbox struct {
	session *Session
	// append queues an event; the ledger's Post, but for tests that hold it back.
	append func(context.Context, events.Event, func(events.Event, error)) error
	// earlier holds what earlier sessions left.
	earlier *estates
	// loans is what sinks were given.
	loans *loans
	// shut is closed when the session has ended: what is late has no effect.
	shut chan struct{}

	mu      sync.Mutex
	letters map[string]*letter
	order   []*letter // in the order of posting, as far as they are durable
	// watching holds the open observers of each execution.
	watching map[string]map[*observer]bool
	// live counts each owner's live executions, and answered are the owners
	// that have answered and take what is left in one piece.
	live     map[string]int
	answered map[string]bool
	flying   int // appends on their way
	closing  bool
	news     chan struct{}
	ears     map[*func(Mail)]bool
}

func newMailbox(s *Session) *mailbox {
	return &mailbox{
		session: s, append: s.ledger.Post, earlier: newEstates(), loans: newLoans(), shut: make(chan struct{}), news: make(chan struct{}),
		letters: map[string]*letter{}, watching: map[string]map[*observer]bool{}, live: map[string]int{},
		answered: map[string]bool{}, ears: map[*func(Mail)]bool{},
	}
}

// changed wakes who waits. The caller holds the lock.
func (b *mailbox) changed() {
	close(b.news)
	b.news = make(chan struct{})
}

func (b *mailbox) isShut() bool { return isClosed(b.shut) }

func (b *mailbox) isClosing() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing
}

// began notes a new execution of the owner: it has not answered, then.
func (b *mailbox) began(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live[owner]++
	delete(b.answered, owner)
}

// ended notes the end of one.
func (b *mailbox) ended(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[owner]--; b.live[owner] == 0 {
		delete(b.live, owner)
		b.changed() // what was held back until the last one is free
	}
}

// completion makes the record of an execution that yielded and settled, for the
// observers that wait for it now and for [mailbox.post]. It returns nil where
// nobody is to be told.
func (b *mailbox) completion(e *execution, r events.Requested, s events.Settled) *letter {
	switch {
	case b.session.cfg.NoMailbox, s.Termination == events.TermSessionEnded, s.Termination == events.TermLost:
		return nil
	}
	t := &letter{mail: Mail{
		ID: e.id, Session: b.session.id, Owner: e.owner, Unasked: unasked(s.Termination),
		Posted: events.Posted{Mail: events.MailCompletion, Execution: e.id, From: min(e.shown, s.Offset), To: s.Offset},
	}}
	if e.monitor != nil {
		t.mail.From, t.mail.Count = s.Offset, e.monitor.finish() // its lines come in batches
		b.takeOff()                                              // until it has posted the last of them
	}
	t.mail.Notice = projections.Notice(r, s, t.mail.Count)
	return b.add(t)
}

// unasked reports whether an execution that ended like this did so by itself.
func unasked(t events.Termination) bool {
	switch t {
	case events.TermStopped, events.TermCancelled, events.TermOwnerStopped, events.TermSessionEnded, events.TermLost:
		return false
	}
	return true
}

func (b *mailbox) add(t *letter) *letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.mail.Mail == events.MailCompletion {
		for o := range b.watching[t.mail.Execution] {
			o.end = t
			t.early++
		}
	}
	b.letters[t.mail.ID] = t
	b.order = append(b.order, t)
	return t
}

// post queues the record. It never waits for the append. A record that is there
// already, from an earlier attempt, is as good.
func (b *mailbox) post(t *letter) { b.tryPost(t, firstRetry) }

func (b *mailbox) tryPost(t *letter, pause time.Duration) {
	if !b.takeOff() {
		return
	}
	done := func(ev events.Event, err error) {
		if errors.Is(err, ledger.ErrExists) {
			err = nil
		}
		if err != nil && !errors.Is(err, ledger.ErrClosed) {
			b.session.log.Warn("posting mail", "record", t.mail.ID, "error", err)
			time.AfterFunc(pause, func() { b.tryPost(t, min(2*pause, lastRetry)) })
		}
		b.landed(t, ev, err)
	}
	if err := b.append(b.session.life, b.session.event(t.mail.Owner, t.mail.ID, t.mail.Posted), done); err != nil {
		done(events.Event{}, err)
	}
}

// takeOff counts an append that begins, unless the session has ended.
func (b *mailbox) takeOff() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isShut() {
		return false
	}
	b.flying++
	return true
}

// land counts an append that is over.
func (b *mailbox) land() {
	b.flying--
	b.changed()
}

// landed notes what became of a record's append. It runs on the ledger's
// goroutine and waits for nothing.
func (b *mailbox) landed(t *letter, ev events.Event, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.land()
	if err != nil || t.durable || b.isShut() {
		return
	}
	t.durable = true
	t.mail.Seq, t.mail.At = ev.Seq, ev.Time
	if i := slices.Index(b.order, t); i >= 0 {
		b.order = append(slices.Delete(b.order, i, i+1), t)
	}
	if t.landed != nil {
		t.landed()
	}
	if t.told != nil {
		b.toldOf(t)
		return
	}
	b.announce(t)
}

// announce tells of a record once it can be claimed, the first time only. The
// caller holds the lock.
func (b *mailbox) announce(t *letter) {
	if !b.free(t) {
		return
	}
	b.changed()
	if t.announced || b.closing || b.isShut() {
		return
	}
	t.announced = true
	for ear := range b.ears {
		go (*ear)(t.mail)
	}
}

// free reports whether the record can be claimed now. The caller holds the lock.
func (b *mailbox) free(t *letter) bool {
	return t.durable && t.held == nil && t.early == 0 && !b.holdsBack(t.mail.Owner)
}

// holdsBack reports whether the owner has answered and its last completion is
// still to come, or to be durable. The caller holds the lock.
func (b *mailbox) holdsBack(owner string) bool {
	return b.answered[owner] && (b.live[owner] > 0 ||
		slices.ContainsFunc(b.order, func(t *letter) bool { return t.mail.Owner == owner && !t.durable }))
}

// pending reports whether the execution's record is not durable yet: its
// handle is kept until then.
func (b *mailbox) pending(execution string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.letters[execution]
	return t != nil && !t.durable
}

// toldOf puts away a letter that reached its owner, and begins to record that.
// Until it is recorded the letter is known: it may be found unread once more. The
// caller holds the lock: a session that closes from now on waits for it.
func (b *mailbox) toldOf(t *letter) {
	b.putAway(t)
	b.flying++
	go b.acknowledge(t)
}

// acknowledge records that the letter reached its owner. Its append was counted.
func (b *mailbox) acknowledge(t *letter) {
	b.mu.Lock()
	fact := *t.told
	b.mu.Unlock()
	done := func(_ events.Event, err error) {
		if err != nil && !errors.Is(err, ledger.ErrExists) && !errors.Is(err, ledger.ErrClosed) {
			b.session.log.Warn("acknowledging mail", "record", t.mail.ID, "error", err)
			time.AfterFunc(firstRetry, func() {
				if b.takeOff() {
					b.acknowledge(t)
				}
			})
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil || errors.Is(err, ledger.ErrExists) {
			delete(b.letters, t.mail.ID)
			if t.recorded != nil {
				t.recorded()
			}
			b.release(t, false)
		}
		b.land()
	}
	e := events.Event{Session: t.mail.Session, Owner: t.mail.Owner, Subject: t.mail.ID, Body: fact}
	if err := b.append(b.session.life, e, done); err != nil {
		done(events.Event{}, err)
	}
}

// release ends the use of an earlier session's claim for its letter. seen says
// that the letter is unread and may have been seen.
func (b *mailbox) release(t *letter, seen bool) {
	if t.mail.Session != b.session.id {
		go b.earlier.release(t.mail.Session, seen)
	}
}

// drop forgets a letter. The caller holds the lock.
func (b *mailbox) drop(t *letter) {
	b.putAway(t)
	delete(b.letters, t.mail.ID)
}

// putAway takes a letter out of what can be claimed. The caller holds the lock.
func (b *mailbox) putAway(t *letter) {
	if t.left != nil {
		t.left()
	}
	if i := slices.Index(b.order, t); i >= 0 {
		b.order = slices.Delete(b.order, i, i+1)
	}
}

// hush stops telling listeners: the session is about to close.
func (b *mailbox) hush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closing = true
	b.changed()
}

// offered reports whether something that is still unread may have reached its
// owner. It is meant for a mailbox that has closed.
func (b *mailbox) offered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.order, func(t *letter) bool {
		return t.mail.Session == b.session.id && (t.held != nil || t.mail.Redelivered)
	})
}

// close waits, within a bound, until no mail is on its way. From then on
// nothing has an effect: no append, no acknowledgement, no wake.
func (b *mailbox) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, quietMost)
	defer cancel()
	for {
		b.mu.Lock()
		if b.flying == 0 || ctx.Err() != nil {
			if !b.isShut() {
				close(b.shut)
			}
			b.changed()
			b.mu.Unlock()
			b.loans.close()
			b.earlier.close()
			return
		}
		news := b.news
		b.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}
