package ledger

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yieldlog/yieldlog/events"
)

// The bounds of the outbox. In-flight output is small because each message is
// synced by itself: more of them only delays the lifecycle events beside them.
const (
	maxLifecycleQueue    = 8 << 20 // bytes
	maxLifecycleInFlight = 256     // messages
	maxOutputQueue       = 16 << 20
	maxOutputInFlight    = 8
	entryOverhead        = 1 << 10 // bytes, for the header and the entry itself
	headerOverhead       = 64      // bytes: the header's first line, and what uniqueness adds

	// encodeApart is the size in bytes from which a chunk is compressed beside
	// its writer, who reads on meanwhile, and maxEncoders how many are at once.
	encodeApart = 64 << 10
	maxEncoders = 2
	// callsPass is how long after a lifecycle event calls are taken to go on. One
	// chunk at a time is compressed then: calls take half as long, a flood a fifth
	// longer.
	callsPass = 20 * time.Millisecond

	// stallAfter is how long an append may take before new work is refused.
	stallAfter = 3 * time.Second
	// resendAfter is how long an append may take before it is sent again.
	resendAfter = 5 * time.Second
)

// An entry is one event on its way. Its fields belong to the outbox's lock.
type entry struct {
	event events.Event
	msg   events.Message
	prev  string // the chain head before the event, for a refusal
	hash  string // the chain head that the event is
	done  func(events.Event, error)
	size  int // what it counts in the queue, in bytes

	stream  string    // the stream that holds it, once it is stored
	ingest  string    // where it was last published
	doubt   bool      // an attempt was lost, and may have been stored
	attempt uint64    // the attempt that is in flight, 0 when none is
	first   time.Time // when it was first sent, or could not be
	sent    time.Time // when it was last sent
	state   entryState
	err     error
}

type entryState int

const (
	waiting entryState = iota
	inFlight
	stored
	refused
	checking // its subject is taken: by itself?
	doubted  // its stream takes no more: was the lost attempt stored before?
	encoding // its message is being made
)

// An outbox is a bounded queue that publishes in order and resends from its oldest
// unacknowledged entry (go-back-N): entries leave at the front only, so nothing
// is overtaken, and an entry keeps its id, so nothing is stored twice.
type outbox struct {
	l           *Ledger
	maxBytes    int
	maxInFlight int
	inbox       string
	sub         *nats.Subscription
	// length counts the entries of the queue. While there are any in the one
	// ahead, this one keeps a single message in flight: an answer waits for
	// lifecycle events, and they would wait for the disk behind a flood.
	length        atomic.Int64
	ahead, behind *outbox

	mu       sync.Mutex
	room     *sync.Cond // signalled when the queue shrinks, and at the end
	queue    []*entry
	bytes    int
	flying   int
	attempts uint64
	// holding stops sending after a failure until nothing is in flight: what
	// was sent behind the failed entry must be refused or resent behind it.
	holding bool
	// paused stops sending from before a reconnect until rewind: nothing may go
	// out on the new connection ahead of what was lost with the old one.
	paused  bool
	retryAt time.Time
	closed  bool
}

func newOutbox(l *Ledger, maxBytes, maxInFlight int) (*outbox, error) {
	o := &outbox{l: l, maxBytes: maxBytes, maxInFlight: maxInFlight, inbox: nats.NewInbox()}
	o.room = sync.NewCond(&o.mu)
	if l.opts.ReadOnly {
		return o, nil // nothing is put into it
	}
	sub, err := l.store.nc.Subscribe(o.inbox+".*", o.onAck)
	if err != nil {
		return nil, fmt.Errorf("subscribing to acknowledgements: %w", err)
	}
	o.sub = sub
	return o, nil
}

// put adds an entry whose event is not encoded yet: prepare runs under the
// outbox's lock, in the order of the queue.
func (o *outbox) put(ctx context.Context, e *entry, prepare func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes >= o.maxBytes {
		stop := context.AfterFunc(ctx, o.wake)
		defer stop()
	}
	for o.bytes >= o.maxBytes && !o.closed && ctx.Err() == nil {
		o.room.Wait()
	}
	if o.closed {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for room in the outbox: %w", err)
	}
	if err := prepare(); err != nil {
		return err
	}
	o.queue = append(o.queue, e)
	o.length.Store(int64(len(o.queue)))
	e.size = max(e.size, len(e.msg.Data)) + entryOverhead
	o.bytes += e.size
	o.send()
	return nil
}

func (o *outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.room.Broadcast()
}

// send publishes what may be published. The caller holds the lock.
func (o *outbox) send() {
	if o.holding || o.paused || time.Now().Before(o.retryAt) {
		return
	}
	most := o.maxInFlight
	if o.ahead != nil && o.ahead.length.Load() > 0 {
		most = 1
	}
	to := "" // where what is in flight goes
	for _, e := range o.queue {
		if o.flying >= most {
			return
		}
		if e.state == checking || e.state == doubted || e.state == encoding {
			return // it goes first
		}
		if e.state == inFlight {
			to = e.ingest
		}
		if e.state != waiting {
			continue
		}
		ingest, ok := o.ingest(e)
		if !ok {
			o.retryAt = time.Now().Add(20 * time.Millisecond)
			return
		}
		if to != "" && ingest != to {
			return // another stream may take this one and refuse those before it
		}
		if to = ingest; !o.publish(e, ingest) {
			return
		}
	}
}

// ingest is where the entry is published, if there is a stream to take it.
func (o *outbox) ingest(e *entry) (string, bool) {
	if e.doubt {
		return e.ingest, true // there its id is known
	}
	return o.l.store.ingest(e.event.Class())
}

func (o *outbox) publish(e *entry, ingest string) bool {
	m := &nats.Msg{Subject: ingest + e.msg.Subject, Header: nats.Header(e.msg.Header), Data: e.msg.Data}
	o.attempts++
	m.Reply = o.inbox + "." + strconv.FormatUint(o.attempts, 10)
	if err := o.l.store.nc.PublishMsg(m); err != nil {
		// Not connected: the reconnect sends again.
		return false
	}
	e.attempt, e.sent, e.state, e.ingest = o.attempts, time.Now(), inFlight, ingest
	if e.first.IsZero() {
		e.first = e.sent
	}
	o.flying++
	return true
}

// advance takes finished entries off the front and tells of them, then sends
// more. It releases the lock.
func (o *outbox) advance() {
	var ready []*entry
	for len(o.queue) > 0 && (o.queue[0].state == stored || o.queue[0].state == refused) {
		e := o.queue[0]
		o.queue[0] = nil
		o.queue = o.queue[1:]
		o.bytes -= e.size
		ready = append(ready, e)
	}
	if o.flying == 0 {
		o.holding = false
	}
	// Told under the lock: the order of the calls is the order of the events.
	for _, e := range ready {
		o.finish(e)
	}
	o.send()
	if len(ready) > 0 {
		o.room.Broadcast()
	}
	o.length.Store(int64(len(o.queue)))
	free := len(o.queue) == 0 && len(ready) > 0
	o.mu.Unlock()
	if free && o.behind != nil {
		o.behind.kick()
	}
}

// kick sends what may be sent now.
func (o *outbox) kick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.send()
}

func (o *outbox) finish(e *entry) {
	if e.state == stored {
		o.l.tally.stored(time.Since(e.first))
		o.l.stored(e)
		o.l.tell(e.event)
		e.done(e.event, nil)
		return
	}
	o.l.tally.refused()
	o.l.chain.refuse(e)
	e.done(e.event, e.err)
}

// drain waits until the queue is empty, or ctx ends.
func (o *outbox) drain(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	stop := context.AfterFunc(ctx, o.wake)
	defer stop()
	for len(o.queue) > 0 && ctx.Err() == nil {
		o.room.Wait()
	}
	if len(o.queue) > 0 {
		return fmt.Errorf("closing with %d events not acknowledged: %w", len(o.queue), ErrUnavailable)
	}
	return nil
}

// close refuses what is left.
func (o *outbox) close() {
	o.mu.Lock()
	left := o.queue
	o.queue, o.closed, o.bytes = nil, true, 0
	o.length.Store(0)
	o.room.Broadcast()
	o.mu.Unlock()
	for _, e := range left {
		e.done(e.event, ErrClosed)
	}
	if o.sub != nil {
		_ = o.sub.Unsubscribe() // the connection closes next
	}
}

func (l *Ledger) postLifecycle(ctx context.Context, e events.Event, done func(events.Event, error)) error {
	if err := l.chain.load(ctx, l, e); err != nil {
		return err
	}
	l.called.Store(time.Now().UnixNano())
	en := &entry{event: e, done: done}
	return l.lifecycle.put(ctx, en, func() error {
		en.prev = l.chain.head(e.Session)
		en.event.Prev = en.prev
		m, err := encode(en.event)
		if err != nil {
			return err
		}
		en.hash = events.Hash(m)
		l.chain.set(e.Session, en.hash)
		en.msg = m
		if e.Kind().Unique() {
			m.Header[nats.ExpectedLastSubjSeqHdr] = []string{"0"}
		}
		return nil
	})
}

func (l *Ledger) postOutput(ctx context.Context, e events.Event, done func(events.Event, error)) error {
	en := &entry{event: e, done: done}
	if o, ok := e.Body.(events.Output); ok && len(o.Data) >= encodeApart {
		return l.postLarge(ctx, en, len(o.Data))
	}
	var err error
	if en.msg, err = encode(e); err != nil {
		return err
	}
	return l.output.put(ctx, en, func() error { return nil })
}

// postLarge takes the event's place in the queue and makes its message there.
func (l *Ledger) postLarge(ctx context.Context, en *entry, size int) error {
	places := int64(1)
	if time.Now().UnixNano()-l.called.Load() < int64(callsPass) {
		places = maxEncoders
	}
	if err := l.encoders.Acquire(ctx, places); err != nil {
		return fmt.Errorf("waiting for room in the outbox: %w", err)
	}
	en.state, en.size = encoding, size
	if err := l.output.put(ctx, en, func() error { return nil }); err != nil {
		l.encoders.Release(places)
		return err
	}
	l.encoding.Go(func() {
		m, err := encode(en.event)
		l.encoders.Release(places) // the next chunk need not wait until this one is sent
		l.output.encoded(en, m, err)
	})
	return nil
}

// encode is the event's message. What no stream takes is refused here: in the
// outbox it would be sent for ever, and hold up everything behind it.
func encode(e events.Event) (events.Message, error) {
	m, err := events.Encode(e)
	if err != nil {
		return m, err
	}
	m.Header[nats.MsgIdHdr] = []string{e.ID}
	size := headerOverhead + len(m.Data)
	for name, values := range m.Header {
		for _, value := range values {
			size += len(name) + len(value) + len(": \r\n")
		}
	}
	if size > maxMessage {
		return m, fmt.Errorf("%w: %s of %d bytes, and %d are the most", ErrTooLarge, e.Kind(), size, maxMessage)
	}
	return m, nil
}

// encoded takes the message of an entry, and sends it when it is its turn.
func (o *outbox) encoded(e *entry, m events.Message, err error) {
	o.mu.Lock()
	if o.closed { // it was refused with the rest
		o.mu.Unlock()
		return
	}
	e.msg, e.state = m, waiting
	if err != nil {
		e.state, e.err = refused, err
	}
	o.advance()
}
