package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/yieldlog/yieldlog/events"
)

// The JetStream error codes that the outbox acts on.
const (
	codeWrongLastSequence = 10071
	codeSealed            = 10109
)

// onAck takes the answer to one attempt. It runs on the subscription's goroutine.
func (o *outbox) onAck(m *nats.Msg) {
	attempt, err := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
	if err != nil {
		return
	}
	o.mu.Lock()
	var e *entry
	for _, q := range o.queue {
		if q.attempt == attempt && q.state == inFlight {
			e = q
			break
		}
	}
	if e == nil {
		o.mu.Unlock()
		return
	}
	o.flying--
	o.settle(e, m)
	if e.state == checking || e.state == doubted {
		o.mu.Unlock()
		ok, seq, err := o.l.alreadyStored(e)
		o.mu.Lock()
		o.decide(e, ok, seq, err)
	}
	o.advance()
}

// An ack is what JetStream answers to a publish.
type ack struct {
	Stream string `json:"stream"`
	Seq    uint64 `json:"seq"`
	Error  *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

func (o *outbox) settle(e *entry, m *nats.Msg) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" { // nobody listens: the stream moved, or the server starts
		o.elsewhere(e)
		return
	}
	var a ack
	if err := json.Unmarshal(m.Data, &a); err != nil {
		e.state, e.err = refused, fmt.Errorf("reading the acknowledgement of %s: %w", e.event.ID, err)
		return
	}
	switch {
	case a.Error == nil:
		e.event.Seq, e.stream, e.state = a.Seq, a.Stream, stored
	case a.Error.Code == codeWrongLastSequence:
		e.state = checking
	case a.Error.Code == codeSealed:
		o.elsewhere(e)
	case retriable(a.Error.Code):
		o.again(e)
	default:
		e.state, e.err = refused, fmt.Errorf("appending %s: %s (JetStream error %d)", e.event.Kind(), a.Error.Description, a.Error.Code)
	}
}

// retriable reports whether a refusal passes: no space, no stream yet, not ready.
func retriable(code int) bool {
	switch code {
	case 10008, // JetStream not available
		10023, // insufficient resources
		10047, // storage resources exceeded
		10077, // maximum bytes exceeded
		10059, // stream not found
		10118, // stream offline
		10167: // too many requests
		return true
	}
	return false
}

// elsewhere sends an entry to the next segment, unless a lost attempt may be in
// this one.
func (o *outbox) elsewhere(e *entry) {
	o.again(e)
	o.l.store.lookAgain()
	if e.doubt {
		e.state = doubted
	}
}

// decide ends the check of an entry.
func (o *outbox) decide(e *entry, mine bool, seq uint64, err error) {
	switch {
	case err != nil:
		o.again(e)
	case !mine && e.state == doubted:
		e.doubt = false
		o.again(e)
	case mine:
		e.event.Seq, e.state = seq, stored
	default:
		e.state, e.err = refused, ErrExists
	}
}

// again marks the entry for another attempt, and holds the outbox until all that
// is in flight was answered.
func (o *outbox) again(e *entry) {
	e.state, e.attempt = waiting, 0
	o.holding = true
	o.retryAt = time.Now().Add(20 * time.Millisecond)
}

// alreadyStored reports whether the entry's own event is in the ledger, and its
// sequence.
func (l *Ledger) alreadyStored(e *entry) (bool, uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if o, ok := e.event.Body.(events.Output); ok {
		return l.outputStored(ctx, e.event, o)
	}
	r, err := l.last(ctx, lifecycleStream, e.msg.Subject)
	if errors.Is(err, errNoMessage) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	ev, ok := l.readable(r)
	return ok && ev.ID == e.event.ID, r.Seq, nil
}
