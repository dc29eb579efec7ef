package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/yieldlog/yieldlog/events"
)

// A chain knows the hash of each session's last lifecycle event, for the
// sessions that this process writes to. A head is dropped when its session ends.
type chain struct {
	mu    sync.Mutex
	heads map[string]string
}

// load learns the head of a session from the ledger, unless it is known or the
// event begins the session.
func (c *chain) load(ctx context.Context, l *Ledger, e events.Event) error {
	c.mu.Lock()
	if c.heads == nil {
		c.heads = map[string]string{}
	}
	_, known := c.heads[e.Session]
	c.mu.Unlock()
	if known || e.Kind() == events.KindOpened {
		return nil
	}
	r, err := l.last(ctx, lifecycleStream, events.SubjectRoot+"."+e.Session+".>")
	if err != nil && !errors.Is(err, errNoMessage) {
		return fmt.Errorf("reading the last event of session %s: %w", e.Session, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.heads[e.Session]; !known && err == nil {
		c.heads[e.Session] = events.Hash(r.Message)
	}
	return nil
}

// forget lets the session's head be read from the ledger again.
func (c *chain) forget(session string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.heads, session)
}

// Refresh has the end of a session's chain read again before the next append to
// it: somebody else wrote there. Nothing of the session may be on its way.
func (l *Ledger) Refresh(session string) { l.chain.forget(session) }

func (c *chain) head(session string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heads[session]
}

func (c *chain) set(session, hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads[session] = hash
}

// refuse takes a refused event out of the chain, if nothing follows it yet.
func (c *chain) refuse(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.hash != "" && c.heads[e.event.Session] == e.hash {
		c.heads[e.event.Session] = e.prev
	}
}

// ended drops the head of a session that ended.
func (c *chain) ended(session, hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heads[session] == hash {
		delete(c.heads, session)
	}
}

// stored notes what the reads of this process profit from.
func (l *Ledger) stored(e *entry) {
	switch b := e.event.Body.(type) {
	case events.Output:
		l.positions.note(e.event.Subject, position{offset: b.Offset, segment: e.stream, seq: e.event.Seq})
		l.store.wrote(len(e.msg.Data))
	case events.Closed, events.Lost:
		l.chain.ended(e.event.Session, e.hash)
	}
}
