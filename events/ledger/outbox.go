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

	// stallAfter is how long an append may take before new work is refused.
	stallAfter = 3 * time.Second
	// resendAfter is how long an append may take before it is sent again.
	resendAfter = 5 * time.Second
)

// An entry is one event on its way. Its fields belong to the lane's lock.
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
	first   time.Time // when it was first sent
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

// A lane is a bounded queue that publishes in order and resends from its oldest
// unacknowledged entry (go-back-N): entries leave at the front only, so nothing
// is overtaken, and an entry keeps its id, so nothing is stored twice.
type lane struct {
	l           *Ledger
	maxBytes    int
	maxInFlight int
	inbox       string
	sub         *nats.Subscription
	// length counts the entries of the queue. While there are any in the lane
	// ahead, this one keeps a single message in flight: an answer waits for
	// lifecycle events, and they would wait for the disk behind a flood.
	length        atomic.Int64
	ahead, behind *lane

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

func newLane(l *Ledger, maxBytes, maxInFlight int) (*lane, error) {
	n := &lane{l: l, maxBytes: maxBytes, maxInFlight: maxInFlight, inbox: nats.NewInbox()}
	n.room = sync.NewCond(&n.mu)
	if l.opts.ReadOnly {
		return n, nil // nothing is put into it
	}
	sub, err := l.store.nc.Subscribe(n.inbox+".*", n.onAck)
	if err != nil {
		return nil, fmt.Errorf("subscribing to acknowledgements: %w", err)
	}
	n.sub = sub
	return n, nil
}

// put adds an entry whose event is not encoded yet: prepare runs under the
// lane's lock, in the order of the queue.
func (n *lane) put(ctx context.Context, e *entry, prepare func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bytes >= n.maxBytes {
		stop := context.AfterFunc(ctx, n.wake)
		defer stop()
	}
	for n.bytes >= n.maxBytes && !n.closed && ctx.Err() == nil {
		n.room.Wait()
	}
	if n.closed {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("waiting for room in the outbox: %w", err)
	}
	if err := prepare(); err != nil {
		return err
	}
	n.queue = append(n.queue, e)
	n.length.Store(int64(len(n.queue)))
	e.size = max(e.size, len(e.msg.Data)) + entryOverhead
	n.bytes += e.size
	n.send()
	return nil
}

func (n *lane) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.room.Broadcast()
}

// send publishes what may be published. The caller holds the lock.
func (n *lane) send() {
	if n.holding || n.paused || time.Now().Before(n.retryAt) {
		return
	}
	most := n.maxInFlight
	if n.ahead != nil && n.ahead.length.Load() > 0 {
		most = 1
	}
	to := "" // where what is in flight goes
	for _, e := range n.queue {
		if n.flying >= most {
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
		ingest, ok := n.ingest(e)
		if !ok {
			n.retryAt = time.Now().Add(20 * time.Millisecond)
			return
		}
		if to != "" && ingest != to {
			return // another stream may take this one and refuse those before it
		}
		if to = ingest; !n.publish(e, ingest) {
			return
		}
	}
}

// ingest is where the entry is published, if there is a stream to take it.
func (n *lane) ingest(e *entry) (string, bool) {
	if e.doubt {
		return e.ingest, true // there its id is known
	}
	return n.l.store.ingest(e.event.Class())
}

func (n *lane) publish(e *entry, ingest string) bool {
	m := &nats.Msg{Subject: ingest + e.msg.Subject, Header: nats.Header(e.msg.Header), Data: e.msg.Data}
	n.attempts++
	m.Reply = n.inbox + "." + strconv.FormatUint(n.attempts, 10)
	if err := n.l.store.nc.PublishMsg(m); err != nil {
		// Not connected: the reconnect sends again.
		return false
	}
	e.attempt, e.sent, e.state, e.ingest = n.attempts, time.Now(), inFlight, ingest
	if e.first.IsZero() {
		e.first = e.sent
	}
	n.flying++
	return true
}

// advance takes finished entries off the front and tells of them, then sends
// more. It releases the lock.
func (n *lane) advance() {
	var ready []*entry
	for len(n.queue) > 0 && (n.queue[0].state == stored || n.queue[0].state == refused) {
		e := n.queue[0]
		n.queue[0] = nil
		n.queue = n.queue[1:]
		n.bytes -= e.size
		ready = append(ready, e)
	}
	if n.flying == 0 {
		n.holding = false
	}
	// Told under the lock: the order of the calls is the order of the events.
	for _, e := range ready {
		n.finish(e)
	}
	n.send()
	if len(ready) > 0 {
		n.room.Broadcast()
	}
	n.length.Store(int64(len(n.queue)))
	free := len(n.queue) == 0 && len(ready) > 0
	n.mu.Unlock()
	if free && n.behind != nil {
		n.behind.kick()
	}
}

// kick sends what may be sent now.
func (n *lane) kick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.send()
}

func (n *lane) finish(e *entry) {
	if e.state == stored {
		n.l.tally.stored(time.Since(e.first))
		n.l.stored(e)
		n.l.tell(e.event)
		e.done(e.event, nil)
		return
	}
	n.l.tally.refused()
	n.l.chain.refuse(e)
	e.done(e.event, e.err)
}

// drain waits until the queue is empty, or ctx ends.
func (n *lane) drain(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	stop := context.AfterFunc(ctx, n.wake)
	defer stop()
	for len(n.queue) > 0 && ctx.Err() == nil {
		n.room.Wait()
	}
	if len(n.queue) > 0 {
		return fmt.Errorf("closing with %d events not acknowledged: %w", len(n.queue), ErrUnavailable)
	}
	return nil
}

// close refuses what is left.
func (n *lane) close() {
	n.mu.Lock()
	left := n.queue
	n.queue, n.closed, n.bytes = nil, true, 0
	n.length.Store(0)
	n.room.Broadcast()
	n.mu.Unlock()
	for _, e := range left {
		e.done(e.event, ErrClosed)
	}
	if n.sub != nil {
		_ = n.sub.Unsubscribe() // the connection closes next
	}
}

func (l *Ledger) postLifecycle(ctx context.Context, e events.Event, done func(events.Event, error)) error {
	if err := l.chain.load(ctx, l, e); err != nil {
		return err
	}
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
	select {
	case l.encoders <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for room in the outbox: %w", ctx.Err())
	}
	en.state, en.size = encoding, size
	if err := l.output.put(ctx, en, func() error { return nil }); err != nil {
		<-l.encoders
		return err
	}
	l.encoding.Go(func() {
		m, err := encode(en.event)
		<-l.encoders // the next chunk need not wait until this one is sent
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
func (n *lane) encoded(e *entry, m events.Message, err error) {
	n.mu.Lock()
	if n.closed { // it was refused with the rest
		n.mu.Unlock()
		return
	}
	e.msg, e.state = m, waiting
	if err != nil {
		e.state, e.err = refused, err
	}
	n.advance()
}
