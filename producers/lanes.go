package producers

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// lanes admits commands, first come first served: readers overlap, everything
// else runs alone. Behind a waiting writer later readers wait too, and the
// readers that wait together enter together. Who comes draws a ticket at once and
// says later what it is for: until then nobody behind it enters. It owns no
// goroutine.
type lanes struct {
	held time.Duration // how long one is inside at most; [laneHeldMost], but for tests

	mu      sync.Mutex
	queue   list.List // of *ticket, the oldest first
	readers int       // inside
	writer  bool      // inside
}

func newLanes() *lanes { return &lanes{held: laneHeldMost} }

// ticket is a place in the lanes: it is drawn, it waits, then it is inside, then
// it has left.
type ticket struct {
	lanes *lanes
	// ready is closed on admission.
	ready chan struct{}

	// All under lanes.mu. decided says that it is known what the ticket is for,
	// and reader what that is.
	decided, reader bool
	// ahead counts those that had to leave first when that became known: 0 for
	// one that was admitted at once.
	ahead int
	// place is the place in the queue while it waits, and inside whether it is.
	place  *list.Element
	inside bool
}

// draw draws a ticket, and never blocks. The ticket must decide or leave soon.
func (l *lanes) draw() *ticket {
	t := &ticket{lanes: l, ready: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.place = l.queue.PushBack(t)
	return t
}

// decide says what the ticket is for, and never blocks. Only the first call counts.
func (t *ticket) decide(reader bool) {
	l := t.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.decided || t.place == nil {
		return
	}
	t.decided, t.reader = true, reader
	t.ahead = l.ahead(t)
	l.admit()
}

// ahead counts those that must leave before a ticket that waits enters.
func (l *lanes) ahead(t *ticket) int {
	reader, waiting := t.reader, 0
	together := reader // whether it enters with those between it and e
	for e := t.place.Prev(); e != nil; e = e.Prev() {
		if together = together && e.Value.(*ticket).reader; !together {
			waiting++
		}
	}
	inside := l.readers
	if l.writer {
		inside = 1
	} else if reader && waiting == 0 {
		inside = 0
	}
	return waiting + inside
}

// admit lets in whoever may enter.
func (l *lanes) admit() {
	for e := l.queue.Front(); e != nil; e = l.queue.Front() {
		t := e.Value.(*ticket)
		if !t.decided || l.writer || (!t.reader && l.readers > 0) {
			return
		}
		if t.reader {
			l.readers++
		} else {
			l.writer = true
		}
		l.queue.Remove(e)
		t.place, t.inside = nil, true
		close(t.ready)
	}
}

// leave gives the place up, in the queue or inside. It may be called more than
// once and from any goroutine. A ticket that left the queue is never ready.
func (t *ticket) leave() {
	l := t.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t.place != nil:
		l.queue.Remove(t.place)
		t.place = nil
	case !t.inside:
		return
	case t.reader:
		l.readers--
	default:
		l.writer = false
	}
	t.inside = false
	l.admit()
}

// wait returns once the ticket is inside, or with ctx's cause; then it has left.
func (t *ticket) wait(ctx context.Context) error {
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
		t.leave()
		return context.Cause(ctx)
	}
}

// A Turn is a place in the order in which calls came: the commands of a session
// take their turns in that order, however long each is judged. It must be given
// to [Session.Exec] or passed on soon: until then nobody behind it starts. A nil
// turn is none. It is safe for concurrent use.
type Turn struct {
	ticket *ticket
	taken  atomic.Bool
}

// Turn draws the next turn, and never blocks.
func (s *Session) Turn() *Turn { return &Turn{ticket: s.lanes.draw()} }

// Pass gives the turn up, unless a command has it.
func (t *Turn) Pass() {
	if t != nil && t.taken.CompareAndSwap(false, true) {
		t.ticket.leave()
	}
}

// take hands the turn to a command. It is nil if somebody had it before.
func (t *Turn) take() *ticket {
	if t == nil || !t.taken.CompareAndSwap(false, true) {
		return nil
	}
	return t.ticket
}

// admitted reports whether the ticket was let in.
func (t *ticket) admitted() bool { return isClosed(t.ready) }
