//go:build linux

package producers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// A gate holds back, or fails, the appends of mail.
type gate struct {
	post func(context.Context, events.Event, func(events.Event, error)) error

	mu     sync.Mutex
	open   bool
	fail   int // so many appends are refused
	held   []func()
	called map[string]int // callbacks of each record that say durable
	asked  chan string    // each record that was handed over
}

func newGate(b *bench) *gate {
	g := &gate{post: b.mail.append, called: map[string]int{}, asked: make(chan string, 1000)}
	b.mail.append = g.append
	return g
}

func (g *gate) append(ctx context.Context, e events.Event, done func(events.Event, error)) error {
	if e.Kind() != events.KindPosted {
		return g.post(ctx, e, done)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked <- e.Subject
	if g.fail > 0 {
		g.fail--
		go done(events.Event{}, errors.New("refused on purpose"))
		return nil
	}
	send := func() {
		_ = g.post(ctx, e, func(ev events.Event, err error) {
			g.mu.Lock()
			if err == nil {
				g.called[e.Subject]++
			}
			g.mu.Unlock()
			done(ev, err)
		})
	}
	if g.open {
		go send()
	} else {
		g.held = append(g.held, send)
	}
	return nil
}

// release lets everything through that is held, and that comes.
func (g *gate) release() {
	g.mu.Lock()
	held := g.held
	g.held, g.open = nil, true
	g.mu.Unlock()
	for _, send := range held {
		send()
	}
}

// collect takes what is unread, and waits for the first record.
func (b *bench) collect(owner string) ([]Mail, *Claim) {
	b.t.Helper()
	list, _, claim, err := b.Collect(b.t.Context(), owner, 100, patience)
	if err != nil {
		b.t.Fatal(err)
	}
	return list, claim
}

// delivers collects the owner's mail, which is these records.
func (b *bench) delivers(owner string, ids ...string) {
	b.t.Helper()
	list, claim := b.collect(owner)
	claim.Delivered()
	if !slices.EqualFunc(list, ids, func(m Mail, id string) bool { return m.ID == id }) {
		b.t.Errorf("delivered: %+v", list)
	}
}

func (b *bench) none(owner string) {
	b.t.Helper()
	if list, _, _, err := b.Collect(b.t.Context(), owner, 100, 0); err != nil || len(list) > 0 {
		b.t.Fatalf("unread: %+v, %v", list, err)
	}
}

func (b *bench) posted(id string) events.Event {
	b.t.Helper()
	return b.until(id, func(e events.Event) bool { return e.Kind() == events.KindPosted })
}

func (b *bench) acknowledged(id string) events.Acknowledged {
	b.t.Helper()
	e := b.until(id, func(e events.Event) bool { return e.Kind() == events.KindAcknowledged })
	a, _ := e.Body.(events.Acknowledged)
	return a
}

// yields runs a command that has yielded when it begins.
func (b *bench) yields(command string, change ...func(*Request)) string {
	b.t.Helper()
	id := b.background("read x; "+command, change...)
	b.end(id)
	return id
}

// lands waits until the mailbox knows that a record is durable: that follows the event.
func (b *bench) lands(id string) {
	b.t.Helper()
	for late := time.After(patience); ; {
		news := b.mail.changes()
		if !b.mail.pending(id) {
			return
		}
		select {
		case <-news:
		case <-late:
			b.t.Fatalf("the record of %s is still pending", id)
		}
	}
}

// end lets a command that reads go on.
func (b *bench) end(id string) {
	b.t.Helper()
	b.Session.mu.Lock()
	e := b.executions[id]
	b.Session.mu.Unlock()
	if err := b.Write(e.owner, id, Input{Close: true}); err != nil {
		b.t.Fatal(err)
	}
}

// settles waits until the execution has ended, without observing it.
func (b *bench) settles(id string) {
	b.t.Helper()
	b.until(id, func(e events.Event) bool { return e.Kind() == events.KindSettled })
	e, err := b.find("", id)
	if err == nil {
		<-e.done
	}
}

func closeBench(t *testing.T, b *bench) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := errors.Join(b.Close(ctx, "test"), b.ledger.Close()); err != nil {
		t.Fatal(err)
	}
}
