package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// AckWait is how long a sink may take to acknowledge what it was given.
	AckWait = 30 * time.Second

	// maxPulls bounds the requests of a sink that wait in one process, pullMost
	// the time that one waits, and pullBatch its records.
	maxPulls  = 256
	pullMost  = 5 * time.Minute
	pullBatch = 256
)

// headerRedelivered marks a record that the owner may have seen already.
const headerRedelivered = "ce-redelivered"

// A Pull is a sink's request for mail, as JetStream's pull consumers take it. It
// is answered by one goroutine.
type Pull struct {
	// Owner is whose mail is asked for.
	Owner string
	// NoWait says that only what is there now is wanted.
	NoWait bool

	sink  *sinkServer
	reply string
	left  int
	bytes int // that may still be delivered, -1 if that does not matter
	beat  time.Duration
	until time.Time
	// gone is closed when the sink does not listen any more.
	gone chan struct{}
	// full says that the next record had no room.
	full bool
	gave bool
}

// A SinkAck is a sink's answer to a record that it was given.
type SinkAck struct {
	// Owner is whose sink answered.
	Owner string
	// Seq is the sequence of the record, and Lease what [Pull.Deliver] was given.
	Seq, Lease uint64
	Verb       AckVerb
	// Answer tells the sink that its answer took effect. It may be called once,
	// later.
	Answer func()
}

// AckVerb is what a sink answers.
type AckVerb string

// The answers. Nobody is what the server says when the sink had left.
const (
	AckTaken    AckVerb = "taken"
	AckReturned AckVerb = "returned"
	AckProgress AckVerb = "progress"
	AckNobody   AckVerb = "nobody"
)

// pullRequest is JetStream's, as far as it matters here. Times are in nanoseconds.
type pullRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	NoWait    bool          `json:"no_wait"`
	MaxBytes  int           `json:"max_bytes"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

func (k *sinkServer) onPull(m *nats.Msg) {
	if !toInbox(m) {
		return
	}
	p, err := k.newPull(m)
	if err != nil {
		k.status(m.Reply, "400", "Bad Request: "+err.Error(), 0)
		return
	}
	k.mu.Lock()
	full := k.pulls >= maxPulls || k.closed
	if !full {
		k.pulls++
		k.wg.Add(1)
	}
	k.mu.Unlock()
	if full {
		k.status(m.Reply, "409", "Exceeded MaxWaiting", p.left)
		return
	}
	go k.run(p)
}

// newPull reads a request: JSON, a number of records, or nothing for one.
func (k *sinkServer) newPull(m *nats.Msg) (*Pull, error) {
	var r pullRequest
	if body := strings.TrimSpace(string(m.Data)); body != "" {
		n, err := strconv.Atoi(body)
		if r.Batch = n; err != nil {
			err = json.Unmarshal([]byte(body), &r)
		}
		if err != nil {
			return nil, errors.New("it is neither JSON nor a number")
		}
	}
	if r.Batch < 0 || r.Expires < 0 || r.MaxBytes < 0 || r.Heartbeat < 0 {
		return nil, errors.New("a number is negative")
	}
	p := &Pull{
		Owner: k.owner, NoWait: r.NoWait && r.Expires == 0, sink: k, reply: m.Reply,
		left: min(max(r.Batch, 1), pullBatch), bytes: -1, beat: r.Heartbeat, gone: make(chan struct{}),
	}
	if r.MaxBytes > 0 {
		p.bytes = r.MaxBytes
	}
	if r.Expires == 0 {
		r.Expires = pullMost
	}
	p.until = time.Now().Add(min(r.Expires, pullMost))
	return p, nil
}

// run answers a pull, and ends it as JetStream does.
func (k *sinkServer) run(p *Pull) {
	ctx, cancel := context.WithDeadline(k.ctx, p.until)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		p.beats(ctx)
	}()
	go func() { // ends with the pull
		select {
		case <-p.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	k.pull(ctx, p)
	cancel()
	<-beating
	switch {
	case p.left == 0:
	case p.full:
		k.status(p.reply, "409", "Message Size Exceeds MaxBytes", p.left)
	case p.NoWait && !p.gave:
		k.status(p.reply, "404", "No Messages", p.left)
	default:
		k.status(p.reply, "408", "Request Timeout", p.left)
	}
	k.mu.Lock()
	maps.DeleteFunc(k.flying, func(_ uint64, q *Pull) bool { return p == q })
	k.pulls--
	k.mu.Unlock()
	k.wg.Done()
}

// beats tells a sink that wants it that its request still waits.
func (p *Pull) beats(ctx context.Context) {
	if p.beat == 0 {
		return
	}
	t := time.NewTicker(max(p.beat, 100*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			p.sink.status(p.reply, "100", "Idle Heartbeat", -1)
		}
	}
}

// status sends an answer that is no record. left is how many are still asked
// for, or -1.
func (k *sinkServer) status(reply, code, text string, left int) {
	h := nats.Header{"Status": {code}, "Description": {text}}
	if left >= 0 {
		h.Set("Nats-Pending-Messages", strconv.Itoa(left))
		h.Set("Nats-Pending-Bytes", "0")
	}
	if err := k.nc.PublishMsg(&nats.Msg{Subject: reply, Header: h}); err != nil {
		k.l.opts.Logger.Debug("answering a sink", "error", err) // its request times out
	}
}

// Left is how many records are still asked for: none once the sink has gone.
func (p *Pull) Left() int {
	if p.full || isClosed(p.gone) {
		return 0
	}
	return p.left
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Deliver gives the sink the record that was posted at a sequence. It reports
// false when the sink was not given it, for lack of room or of a connection.
// That nobody listened is heard later, as an [AckNobody].
func (p *Pull) Deliver(ctx context.Context, seq, lease uint64, redelivered bool) bool {
	l := p.sink.l
	m, err := l.message(ctx, lifecycleStream, seq)
	if err != nil {
		l.opts.Logger.Warn("reading mail for a sink", "sequence", seq, "error", err)
		return false
	}
	if redelivered {
		m.Header.Set(headerRedelivered, "true")
	}
	out := &nats.Msg{
		Subject: p.reply, Header: m.Header, Data: m.Data,
		Reply: fmt.Sprintf("%s%d.%d", sinkAck, seq, lease),
	}
	if p.bytes >= 0 && out.Size() > p.bytes {
		p.full = true
		return false
	}
	p.sink.mu.Lock()
	p.sink.flying[lease] = p
	p.sink.mu.Unlock()
	if err := p.sink.nc.PublishMsg(out); err != nil {
		return false
	}
	p.left, p.gave = p.left-1, true
	if p.bytes >= 0 {
		p.bytes -= out.Size()
	}
	return true
}

// message is a stored message as a subscriber sees it: with where it is stored.
func (l *Ledger) message(ctx context.Context, stream string, seq uint64) (*nats.Msg, error) {
	r, err := patiently(ctx, l, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		s, err := l.store.js.Stream(ctx, stream)
		if err != nil {
			return nil, err
		}
		return s.GetMsg(ctx, seq)
	})
	if err != nil {
		return nil, err
	}
	h := nats.Header{}
	maps.Copy(h, r.Header)
	h.Set("Nats-Stream", stream)
	h.Set("Nats-Subject", r.Subject)
	h.Set("Nats-Sequence", strconv.FormatUint(seq, 10))
	return &nats.Msg{Subject: r.Subject, Header: h, Data: r.Data}, nil
}

// onAck takes what a sink answers to a record.
func (k *sinkServer) onAck(m *nats.Msg) {
	seq, lease, ok := ackOf(m.Subject)
	if !ok {
		return
	}
	if m.Header.Get("Status") == "503" {
		k.onNobody(seq, lease)
		return
	}
	a := SinkAck{Owner: k.owner, Seq: seq, Lease: lease, Answer: func() {}}
	if toInbox(m) {
		a.Answer = func() {
			if err := m.Respond(nil); err != nil {
				k.l.opts.Logger.Debug("answering a sink", "error", err) // it acknowledges again
			}
		}
	}
	verb, _, _ := strings.Cut(string(m.Data), " ")
	switch verb {
	case "", "+ACK":
		a.Verb = AckTaken
	case "-NAK":
		a.Verb = AckReturned
	case "+WPI":
		a.Verb = AckProgress
	default:
		return // as if it had not come
	}
	k.ack(a)
}

// onNobody hears from the server that a record which this process delivered
// reached nobody.
func (k *sinkServer) onNobody(seq, lease uint64) {
	k.mu.Lock()
	p := k.flying[lease] // nil once the pull has ended
	delete(k.flying, lease)
	k.mu.Unlock()
	if p != nil && !isClosed(p.gone) {
		close(p.gone) // only here, on the subscription's goroutine
	}
	k.ack(SinkAck{Owner: k.owner, Seq: seq, Lease: lease, Verb: AckNobody, Answer: func() {}})
}

// ackOf reads the end of an acknowledgement's subject.
func ackOf(subject string) (seq, lease uint64, ok bool) {
	a, b, _ := strings.Cut(strings.TrimPrefix(subject, sinkAck), ".")
	seq, errSeq := strconv.ParseUint(a, 10, 64)
	lease, errLease := strconv.ParseUint(b, 10, 64)
	return seq, lease, errSeq == nil && errLease == nil
}

// sinkOpened is when a consumer is said to have been made: it is always there.
var sinkOpened = time.Unix(0, 0).UTC()

// onInfo describes the consumer, as clients ask before they pull. It says
// nothing of the mail.
func (k *sinkServer) onInfo(m *nats.Msg) {
	if !toInbox(m) {
		return
	}
	data, err := json.Marshal(struct {
		Type string `json:"type"`
		jetstream.ConsumerInfo
	}{"io.nats.jetstream.api.v1.consumer_info_response", jetstream.ConsumerInfo{
		Stream: SinkStream, Name: SinkConsumer, Created: sinkOpened,
		Config: jetstream.ConsumerConfig{
			Name: SinkConsumer, Durable: SinkConsumer, DeliverPolicy: jetstream.DeliverAllPolicy,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: AckWait, MaxDeliver: -1, ReplayPolicy: jetstream.ReplayInstantPolicy,
			MaxWaiting: maxPulls, MaxRequestBatch: pullBatch, MaxRequestExpires: pullMost,
			Description: "what was posted to the owner and not told yet",
		},
	}})
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		k.l.opts.Logger.Debug("describing a sink's consumer", "error", err)
	}
}
