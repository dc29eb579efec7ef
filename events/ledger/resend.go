package ledger

import (
	"context"
	"time"
)

// pause stops sending until rewind. It is called before each attempt to reconnect.
func (o *outbox) pause() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paused = true
}

// rewind forgets what is in flight and sends again from the front: after a
// reconnect, when its answers will not come.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.l.store.nc.IsConnected() {
		return // lost again; another rewind follows
	}
	o.paused = false
	for _, e := range o.queue {
		if e.state == inFlight {
			e.state, e.attempt, e.doubt = waiting, 0, true
		}
	}
	o.flying, o.holding, o.retryAt = 0, false, time.Time{}
	o.send()
}

// tick resends what has waited too long. An old attempt may have been stored
// and its answer lost: within the duplicate window the id protects, beyond it
// the ledger is asked first.
func (o *outbox) tick(now time.Time) {
	o.mu.Lock()
	overdue := len(o.queue) > 0 && o.queue[0].state == inFlight && now.Sub(o.queue[0].sent) > resendAfter
	old := overdue && now.Sub(o.queue[0].first) > duplicateWindow/2
	if !overdue {
		o.send()
		if len(o.queue) > 0 && o.queue[0].first.IsZero() {
			o.queue[0].first = now // there is nobody to send it to: it waits from now on
		}
		o.mu.Unlock()
		return
	}
	front := o.queue[0]
	o.mu.Unlock()
	if old {
		mine, seq, err := o.l.alreadyStored(front)
		if err != nil {
			return // the ledger does not answer: sending again would not help
		}
		o.mu.Lock()
		if front.state == inFlight && mine {
			o.flying--
			front.event.Seq, front.state = seq, stored
			o.advance()
			o.rewind()
			return
		}
		o.mu.Unlock()
	}
	o.rewind()
}

func (o *outbox) stalledSince() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 || o.queue[0].first.IsZero() || time.Since(o.queue[0].first) < stallAfter {
		return time.Time{}
	}
	return o.queue[0].first
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
