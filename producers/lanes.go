package producers

import (
	"container/list"
	"context"
	"sync"
)

// lanes admits commands, first come first served: readers overlap, everything
// else runs alone. Behind a waiting writer later readers wait too, and the
// readers that wait together enter together. It owns no goroutine.
type lanes struct {
	mu      sync.Mutex
	queue   list.List // of *ticket, the oldest first
	readers int       // inside
	writer  bool      // inside
}

func newLanes() *lanes { return &lanes{} }

// ticket is a place in the lanes: it waits, then it is inside, then it has left.
type ticket struct {
	lanes  *lanes
	reader bool
	// ready is closed on admission.
	ready chan struct{}
	// ahead counts those that had to leave first when the ticket was drawn:
	// 0 for one that was admitted at once.
	ahead int

	// Both under lanes.mu: the place in the queue while it waits, and whether
	// it is inside.
	place  *list.Element
	inside bool
}

// enter draws a ticket, and never blocks.
func (l *lanes) enter(reader bool) *ticket {
	t := &ticket{lanes: l, reader: reader, ready: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.ahead = l.ahead(reader)
	t.place = l.queue.PushBack(t)
	l.admit()
	return t
}

// ahead counts those that must leave before a newcomer enters.
func (l *lanes) ahead(reader bool) int {
	waiting := l.queue.Len()
	for e := l.queue.Back(); reader && e != nil && e.Value.(*ticket).reader; e = e.Prev() {
		waiting-- // it will be inside together with the newcomer
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
		if l.writer || (!t.reader && l.readers > 0) {
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

// admitted reports whether the ticket was let in.
func (t *ticket) admitted() bool {
	select {
	case <-t.ready:
		return true
	default:
		return false
	}
}
