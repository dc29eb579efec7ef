package ledger

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yieldlog/yieldlog/events"
)

// The bounds of what a packer holds.
const (
	maxPacking      = 4096     // executions
	maxPackingBytes = 32 << 20 // data, and what it costs to hold it
	recordOverhead  = 128
	// packWork is how long a gentle packer works before it rests, and packRest how
	// many times as long: whoever else waits for the processor goes first.
	packWork = time.Millisecond
	packRest = 9
	// publishTimeout bounds how long a packed message may take.
	publishTimeout = 10 * time.Second
)

// A packer writes the twin of a segment.
type packer struct {
	l      *Ledger
	twin   string
	gentle bool
	woke   time.Time

	open    map[string]*packing
	bytes   int
	encoder events.Packer
}

// packing is the chunks of one execution that wait for more.
type packing struct {
	order  uint64        // the sequence of the first
	origin Raw           // the first as it is stored
	event  events.Event  // and decoded, for its attributes
	body   events.Packed // all of them
	size   int
}

func newPacker(ctx context.Context, l *Ledger, twin string, gentle bool) *packer {
	p := &packer{l: l, twin: twin, gentle: gentle, woke: time.Now(), open: map[string]*packing{}}
	if gentle {
		p.encoder.Rest = func() { p.rest(ctx) }
	}
	return p
}

// about is the execution that an output subject is about.
func about(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	session, rest, _ := strings.Cut(rest, ".")
	_, rest, _ = strings.Cut(rest, ".")
	id, kind, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(kind, ".") {
		return ""
	}
	return session + "." + id
}

// add packs a message about an execution, with the event that it is. One that
// holds no chunk is carried as it is.
func (p *packer) add(ctx context.Context, key string, r Raw, e events.Event) error {
	o, ok := e.Body.(events.Output)
	if !ok || !time.Unix(0, e.Time.UnixNano()).Equal(e.Time) { // a packed time is within 1678 to 2262
		return errors.Join(p.flush(ctx, key), p.publish(ctx, r.Message))
	}
	k := p.open[key]
	if k != nil && !k.takes(e, o) {
		if err := p.flush(ctx, key); err != nil {
			return err
		}
		k = nil
	}
	if k == nil {
		k = &packing{order: r.Seq, origin: r, event: e, body: events.Packed{Offset: o.Offset}}
		p.open[key] = k
	}
	k.body.Records = append(k.body.Records, events.Record{Stream: o.Stream, Time: e.Time, Data: o.Data})
	k.size += len(o.Data)
	p.bytes += len(o.Data) + recordOverhead
	if len(p.open) >= maxPacking || p.bytes >= maxPackingBytes {
		return p.flushAll(ctx)
	}
	return nil
}

// takes reports whether a chunk fits behind the others.
func (k *packing) takes(e events.Event, o events.Output) bool {
	return o.Offset == k.body.Offset+int64(k.size) && e.Owner == k.event.Owner &&
		k.size+len(o.Data) <= events.MaxChunk && len(k.body.Records) < events.MaxRecords
}

// flushAll writes everything, in the order of the segment.
func (p *packer) flushAll(ctx context.Context) error {
	keys := slices.SortedFunc(maps.Keys(p.open), func(a, b string) int {
		return cmp.Compare(p.open[a].order, p.open[b].order)
	})
	for _, key := range keys {
		if err := p.flush(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what waits of an execution. A single chunk stays as it was.
func (p *packer) flush(ctx context.Context, key string) error {
	k := p.open[key]
	if k == nil {
		return nil
	}
	delete(p.open, key)
	p.bytes -= k.size + recordOverhead*len(k.body.Records)
	if len(k.body.Records) == 1 {
		return p.publish(ctx, k.origin.Message)
	}
	m, err := p.encoder.Encode(events.Event{
		ID: events.NewID(), Time: k.event.Time, Session: k.event.Session,
		Owner: k.event.Owner, Subject: k.event.Subject, Body: k.body,
	})
	if err != nil {
		return err
	}
	return p.publish(ctx, m)
}

func (p *packer) publish(ctx context.Context, m events.Message) error {
	once, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m = Portable(m)
	ack, err := p.l.store.js.PublishMsg(once, &nats.Msg{
		Subject: ingestPrefix(p.twin) + m.Subject, Header: nats.Header(m.Header), Data: m.Data,
	})
	if err != nil {
		return fmt.Errorf("writing to %s: %w", p.twin, err)
	}
	if ack.Sequence == 2 {
		atPackStep("begun")
	}
	return nil
}

// rest pauses a gentle packer that has worked.
func (p *packer) rest(ctx context.Context) {
	worked := time.Since(p.woke)
	if !p.gentle || worked < packWork {
		return
	}
	pause(ctx, packRest*worked)
	p.woke = time.Now()
}

// contents is what a segment holds of each execution: a digest of its chunks with
// their places and times, and of each stream.
type contents map[string]*content

type content struct {
	from, end int64
	whole     bool // without gaps
	chunks    hash.Hash
	streams   map[events.Kind]hash.Hash
	room      []byte // for what goes before the bytes of a chunk
}

// add counts a message about an execution, with the event that it is, if it is
// one. One that holds no chunk counts as it is.
func (c contents) add(key string, r Raw, e events.Event) error {
	k := c[key]
	if k == nil {
		k = &content{from: -1, whole: true, chunks: sha256.New(), streams: map[events.Kind]hash.Hash{}}
		c[key] = k
	}
	var err error
	switch b := e.Body.(type) {
	case nil:
		k.note("", 0, 0, r.Data) // it is as it was
	case events.Output:
		err = k.chunk(e.Time, b)
	case events.Packed:
		o := events.Output{Offset: b.Offset}
		for _, chunk := range b.Records {
			o.Stream, o.Offset, o.Data = chunk.Stream, o.End(), chunk.Data
			err = errors.Join(err, k.chunk(chunk.Time, o))
		}
	default:
		k.note(string(e.Kind()), 0, 0, r.Data)
	}
	if err != nil {
		return fmt.Errorf("%w: output of %s: %w", errUnsound, key, err)
	}
	return nil
}

func (k *content) note(kind string, offset, at int64, data []byte) {
	k.room = k.room[:0]
	for _, n := range [...]int64{int64(len(kind)), offset, at, int64(len(data))} {
		k.room = binary.AppendVarint(k.room, n)
	}
	k.room = append(k.room, kind...)
	k.chunks.Write(k.room)
	k.chunks.Write(data)
}

func (k *content) chunk(at time.Time, o events.Output) error {
	if o.Offset < k.end {
		return fmt.Errorf("what is at %d comes after %d", o.Offset, k.end)
	}
	if k.from < 0 {
		k.from, k.end = o.Offset, o.Offset
	}
	k.whole = k.whole && o.Offset == k.end
	k.end = o.End()
	k.note(string(o.Stream), o.Offset, at.UnixNano(), o.Data)
	if k.streams[o.Stream] == nil {
		k.streams[o.Stream] = sha256.New()
	}
	k.streams[o.Stream].Write(o.Data)
	return nil
}

// equal fails unless another segment holds the same.
func (c contents) equal(other contents) error {
	if len(c) != len(other) {
		return fmt.Errorf("%d executions were read and %d written", len(c), len(other))
	}
	for key, k := range c {
		o := other[key]
		if o == nil || !bytes.Equal(k.chunks.Sum(nil), o.chunks.Sum(nil)) {
			return fmt.Errorf("what was packed of %s is not what was read", key)
		}
	}
	return nil
}

// match fails when an execution that is here from its first byte to its last
// does not have the digests of its settlement.
func (c contents) match(settled map[string]events.Settled) error {
	for key, k := range c {
		s, ok := settled[key]
		if !ok || k.from != 0 || !k.whole || k.end != s.Offset {
			continue
		}
		for kind, want := range map[events.Kind]string{
			events.KindStdout: s.Stdout.SHA256, events.KindStderr: s.Stderr.SHA256, events.KindTTY: s.TTY.SHA256,
		} {
			got := k.streams[kind]
			if want != "" && got != nil && hex.EncodeToString(got.Sum(nil)) != want {
				return fmt.Errorf("%w: %s of %s does not have the digest of its settlement (see `yieldlog verify`)", errUnsound, kind, key)
			}
		}
	}
	return nil
}
