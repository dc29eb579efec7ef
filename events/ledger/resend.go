package ledger

import (
	"context"
	"time"
)

// pause stops sending until rewind. It is called before each attempt to reconnect.
func (n *lane) pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = true
}

// rewind forgets what is in flight and sends again from the front: after a
// reconnect, when its answers will not come.
func (n *lane) rewind() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.l.store.nc.IsConnected() {
		return // lost again; another rewind follows
	}
	n.paused = false
	for _, e := range n.queue {
		if e.state == inFlight {
			e.state, e.attempt, e.doubt = waiting, 0, true
		}
	}
	n.flying, n.holding, n.retryAt = 0, false, time.Time{}
	n.send()
}

// tick resends what has waited too long. An old attempt may have been stored
// and its answer lost: within the duplicate window the id protects, beyond it
// the ledger is asked first.
func (n *lane) tick(now time.Time) {
	n.mu.Lock()
	overdue := len(n.queue) > 0 && n.queue[0].state == inFlight && now.Sub(n.queue[0].sent) > resendAfter
	old := overdue && now.Sub(n.queue[0].first) > duplicateWindow/2
	if !overdue {
		n.send()
		n.mu.Unlock()
		return
	}
	front := n.queue[0]
	n.mu.Unlock()
	if old {
		mine, seq, err := n.l.alreadyStored(front)
		if err != nil {
			return // the ledger does not answer: sending again would not help
		}
		n.mu.Lock()
		if front.state == inFlight && mine {
			n.flying--
			front.event.Seq, front.state = seq, stored
			n.advance()
			n.rewind()
			return
		}
		n.mu.Unlock()
	}
	n.rewind()
}

func (n *lane) stalledSince() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 || n.queue[0].first.IsZero() || time.Since(n.queue[0].first) < stallAfter {
		return time.Time{}
	}
	return n.queue[0].first
}

// watch resends and notices reconnects until ctx ends.
func (l *Ledger) watch(ctx context.Context) {
	t := time.NewTicker(25 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.store.reconnected:
			l.lifecycle.rewind()
			l.output.rewind()
		case now := <-t.C:
			l.lifecycle.tick(now)
			l.output.tick(now)
			l.store.waits(l.StalledSince(), now)
		}
	}
}
