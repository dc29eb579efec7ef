package producers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// A Claim is the right to tell an owner of records: while it lasts, nobody else
// does. It ends with [Claim.Delivered] or [Claim.Restore], the first of which
// counts. A nil claim is on nothing. Its methods are safe for concurrent use
// and wait for nothing.
type Claim struct {
	box     *mailbox
	by      string
	letters []*letter
	once    sync.Once
}

// Delivered says that the answer that carries the records was written: each is
// acknowledged, once it is durable.
func (c *Claim) Delivered() {
	if c != nil {
		c.once.Do(func() { c.box.delivered(c) })
	}
}

// taken is Delivered for a sink, which is told when the ledger holds it.
func (c *Claim) taken(recorded func()) {
	c.box.mu.Lock()
	for _, t := range c.letters {
		t.recorded = recorded
	}
	c.box.mu.Unlock()
	c.Delivered()
}

// Restore gives the records back, for another delivery. seen says that the
// owner may have been told all the same; the next offer then says so.
func (c *Claim) Restore(seen bool) {
	if c != nil {
		c.once.Do(func() { c.box.restore(c, seen) })
	}
}

func (b *mailbox) delivered(c *Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isShut() {
		return
	}
	for _, t := range c.letters {
		t.told = &events.Acknowledged{Execution: t.mail.Execution, By: c.by, Redelivered: t.mail.Redelivered, Offered: t.offered}
		if t.durable {
			b.toldOf(t)
		}
	}
}

func (b *mailbox) restore(c *Claim, seen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range c.letters {
		t.mail.Redelivered = t.mail.Redelivered || seen
		b.giveBack(t)
	}
	b.changed()
}

// giveBack ends the claim on a letter. The caller holds the lock.
func (b *mailbox) giveBack(t *letter) {
	t.held = nil
	b.release(t, t.mail.Redelivered)
	b.announce(t)
}

// hold claims a letter. The caller holds the lock.
func (c *Claim) hold(t *letter) {
	t.held = c
	if t.offered.IsZero() {
		t.offered = time.Now().UTC()
	}
	c.letters = append(c.letters, t)
}

// An observer is a call that waits for the end of an execution.
type observer struct {
	box       *mailbox
	execution string
	// end is the record of the end that came while the observer was open.
	end *letter
}

// observe opens an observer: if the execution ends before it is closed, it is
// among the first that may claim the end.
func (b *mailbox) observe(execution string) *observer {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := &observer{box: b, execution: execution}
	if b.watching[execution] == nil {
		b.watching[execution] = map[*observer]bool{}
	}
	b.watching[execution][o] = true
	return o
}

// leave closes the observer without a claim. It may be closed already.
func (o *observer) leave() { o.close("") }

// claim closes the observer and claims the end, unless somebody has it.
func (o *observer) claim(by string) *Claim { return o.close(by) }

func (o *observer) close(by string) (c *Claim) {
	b := o.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.watching[o.execution][o] {
		return nil
	}
	if delete(b.watching[o.execution], o); len(b.watching[o.execution]) == 0 {
		delete(b.watching, o.execution)
	}
	t := o.end
	if t == nil {
		return nil
	}
	if by != "" && t.held == nil {
		c = &Claim{box: b, by: by}
		c.hold(t)
	}
	t.early--
	b.announce(t)
	return c
}

// Observed claims the end of the owner's execution for an answer that shows it.
// It is nil when the end is somebody else's, or its delivery is pending.
func (s *Session) Observed(owner, execution, by string) *Claim {
	b := s.mail
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.letters[execution]
	if t == nil || t.mail.Owner != ownerOf(owner) || !t.durable || t.held != nil || t.early > 0 {
		return nil
	}
	c := &Claim{box: b, by: by}
	c.hold(t)
	return c
}

// Shown notes that an answer that was written showed the output [from, to) of
// the owner's execution: what was shown from the start on is not mailed again.
func (s *Session) Shown(owner, execution string, from, to int64) {
	e, err := s.find(owner, execution)
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if from <= e.shown {
		e.shown = max(e.shown, to)
	}
}

// Unread is the owner's records that can be claimed now, in the order of
// posting. What earlier sessions left is among them once it was found, for which
// the first calls wait a moment.
func (s *Session) Unread(owner string) []Mail {
	s.mail.earlier.glance(s)
	return s.mail.unread(ownerOf(owner))
}

func (b *mailbox) unread(owner string) []Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []Mail
	for _, t := range b.order {
		if t.mail.Owner == owner && b.free(t) {
			list = append(list, t.mail.clone())
		}
	}
	return list
}

// clone is a copy that shares nothing.
func (m Mail) clone() Mail {
	m.Executions = slices.Clone(m.Executions)
	return m
}

// Collect claims the owner's unread records, at most so many, and waits for the
// first one at most for d. more counts those that are left. Of the records of
// earlier sessions it takes those that no other process is telling of.
func (s *Session) Collect(ctx context.Context, owner string, most int, d time.Duration) (list []Mail, more int, claim *Claim, err error) {
	b := s.mail
	owner = ownerOf(owner)
	late := time.NewTimer(d)
	defer late.Stop()
	if err := b.earlier.wait(ctx, s); err != nil {
		return nil, 0, nil, fmt.Errorf("looking for earlier mail: %w", err)
	}
	for {
		b.mu.Lock()
		news := b.news
		b.mu.Unlock()
		list, claim = b.take(ctx, owner, most)
		if len(list) > 0 {
			return list, len(b.unread(owner)), claim, nil
		}
		select {
		case <-news:
		case <-late.C:
			return nil, 0, nil, nil
		case <-b.shut:
			return nil, 0, nil, ErrClosed
		case <-ctx.Done():
			return nil, 0, nil, fmt.Errorf("waiting for mail: %w", context.Cause(ctx))
		}
	}
}

// take claims what is free.
func (b *mailbox) take(ctx context.Context, owner string, most int) ([]Mail, *Claim) {
	c := &Claim{box: b, by: "mailbox"}
	b.mu.Lock()
	for _, t := range b.order {
		if t.mail.Owner == owner && b.free(t) && len(c.letters) < most {
			c.hold(t)
		}
	}
	b.mu.Unlock()
	b.earlier.secure(ctx, b, c)
	list := make([]Mail, 0, len(c.letters))
	for _, t := range c.letters {
		list = append(list, t.mail.clone())
	}
	return list, c
}

// Answered says that the owner has given its answer: what its commands still
// complete is held back until the last of them ends, and then offered in one
// piece. A new command of the owner revokes it.
func (s *Session) Answered(owner string) {
	b := s.mail
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered[ownerOf(owner)] = true
}

// Mailed calls fn for each record of this session that becomes unread, until
// remove is called. fn runs on a goroutine of its own.
func (s *Session) Mailed(fn func(Mail)) (remove func()) {
	b := s.mail
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ears[&fn] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ears, &fn)
	}
}
