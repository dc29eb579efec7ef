package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Message is an event as it travels: what NATS calls subject, header and data.
type Message struct {
	Subject string
	Header  map[string][]string
	Data    []byte
}

// The headers. CloudEvents attributes carry the prefix "ce-"; owner, prev and
// offset are extensions.
const (
	headerID          = "ce-id"
	headerType        = "ce-type"
	headerSource      = "ce-source"
	headerTime        = "ce-time"
	headerSpec        = "ce-specversion"
	headerSubject     = "ce-subject"
	headerOwner       = "ce-owner"
	headerPrev        = "ce-prev"
	headerOffset      = "ce-offset"
	headerContentType = "content-type"
	headerEncoding    = "content-encoding"
	headerLength      = "ce-length"
	headerHere        = "ce-here"

	specVersion = "1.0"
	typePrefix  = "com.yieldlog."
	jsonType    = "application/json"
	bytesType   = "application/octet-stream"
	encZstd     = "zstd"
)

// CompressFrom is the size in bytes from which an output chunk is compressed,
// and MaxChunk the most that a chunk may hold: a message of the ledger is at
// most 1 MiB, and a decoder refuses to inflate beyond MaxChunk.
const (
	CompressFrom = 4 << 10
	MaxChunk     = 512 << 10
)

// Encode is the event as a message. It fails when a field cannot be a token of
// the subject, the owner fails [CheckOwner], or a chunk is longer than
// [MaxChunk]. The result shares the bytes of an uncompressed chunk with the event.
func Encode(e Event) (Message, error) { return new(Packer).Encode(e) }

// Encode is the function [Encode], with the packer's tables.
func (p *Packer) Encode(e Event) (Message, error) {
	if e.Body == nil {
		return Message{}, fmt.Errorf("event %s has no body", e.ID)
	}
	subject := Subject(e.Session, e.Class(), e.Subject, e.Kind())
	if _, _, _, _, err := parseSubject(subject); err != nil {
		return Message{}, fmt.Errorf("encoding event %s: %w", e.ID, err)
	}
	if err := CheckOwner(e.Owner); err != nil {
		return Message{}, fmt.Errorf("encoding event %s: %w", e.ID, err)
	}
	h := map[string][]string{
		headerSpec:    {specVersion},
		headerID:      {e.ID},
		headerType:    {typePrefix + string(e.Class()) + "." + string(e.Kind())},
		headerSource:  {"/" + SubjectRoot + "/" + e.Session},
		headerSubject: {e.Subject},
		headerTime:    {e.Time.UTC().Format(time.RFC3339Nano)},
	}
	if e.Owner != "" {
		h[headerOwner] = []string{e.Owner}
	}
	if e.Prev != "" {
		h[headerPrev] = []string{e.Prev}
	}
	m := Message{Subject: subject, Header: h}
	switch b := e.Body.(type) {
	case Output:
		if len(b.Data) > MaxChunk {
			return Message{}, fmt.Errorf("encoding event %s: a chunk of %d bytes is over %d", e.ID, len(b.Data), MaxChunk)
		}
		h[headerContentType] = []string{bytesType}
		h[headerOffset] = []string{strconv.FormatInt(b.Offset, 10)}
		m.Data = b.Data
		if len(b.Data) >= CompressFrom {
			z, err := compress(b.Data)
			if err != nil {
				return Message{}, fmt.Errorf("encoding event %s: %w", e.ID, err)
			}
			if len(z) < len(b.Data) {
				m.Data = z
				h[headerEncoding] = []string{encZstd}
				h[headerLength] = []string{strconv.Itoa(len(b.Data))}
			}
		}
	case Packed:
		var err error
		if m.Data, err = p.pack(e.Time, b, h); err != nil {
			return Message{}, fmt.Errorf("encoding event %s: %w", e.ID, err)
		}
	case Unknown:
		h[headerContentType] = []string{b.ContentType}
		m.Data = b.Data
	default:
		data, err := EncodeJSON(b)
		if err != nil {
			return Message{}, fmt.Errorf("encoding event %s: %w", e.ID, err)
		}
		h[headerContentType] = []string{jsonType}
		m.Data = data
	}
	return m, nil
}

// EncodeJSON is v as JSON on one line, without HTML escapes.
func EncodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Decode is the event of a message. It never panics, and fails on a message
// that is no event: a bad subject, missing attributes, or a body that is not
// what its kind says. An unknown kind is no failure. Seq stays 0: it belongs to
// the stream, not to the message.
func Decode(m Message) (Event, error) {
	session, class, id, kind, err := parseSubject(m.Subject)
	if err != nil {
		return Event{}, err
	}
	e := Event{
		ID: get(m.Header, headerID), Session: session, Subject: id,
		Owner: get(m.Header, headerOwner), Prev: get(m.Header, headerPrev),
	}
	if v := get(m.Header, headerSpec); v != specVersion {
		return Event{}, fmt.Errorf("message on %s: ce-specversion is %q, not %s", m.Subject, v, specVersion)
	}
	if e.ID == "" {
		return Event{}, fmt.Errorf("message on %s has no ce-id", m.Subject)
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, get(m.Header, headerTime)); err != nil {
		return Event{}, fmt.Errorf("event %s: reading ce-time: %w", e.ID, err)
	}
	if e.Body, err = decodeBody(m, class, kind); err != nil {
		return Event{}, fmt.Errorf("event %s on %s: %w", e.ID, m.Subject, err)
	}
	if here := get(m.Header, headerHere); here != "" {
		if e.Body, err = localized(e.Body, here); err != nil {
			return Event{}, fmt.Errorf("event %s: reading %s: %w", e.ID, headerHere, err)
		}
	}
	return e, nil
}

// Localize is a rewound or forked message that goes to another ledger: its body
// keeps its bytes, and with them the hash chain, and a header says which
// sequence of the other ledger it means. [Decode] heeds it.
func Localize(m Message, seq uint64) Message {
	m.Header = maps.Clone(m.Header)
	m.Header[headerHere] = []string{strconv.FormatUint(seq, 10)}
	return m
}

// localized is the body with the sequence that it means in this ledger.
func localized(body Body, here string) (Body, error) {
	seq, err := strconv.ParseUint(here, 10, 64)
	switch b := body.(type) {
	case Rewound:
		b.To = seq
		return b, err
	case Forked:
		b.At = seq
		return b, err
	}
	return body, nil
}

func decodeBody(m Message, class Class, kind Kind) (Body, error) {
	if class == ClassOutput && (kind == KindStdout || kind == KindStderr || kind == KindTTY) {
		return decodeOutput(m, kind)
	}
	if class == ClassOutput && kind == KindPacked && get(m.Header, headerContentType) == packedType {
		return decodePacked(m)
	}
	dec, ok := decoders[kind]
	if !ok || dec.class != class {
		return Unknown{UnknownKind: kind, UnknownClass: class, ContentType: get(m.Header, headerContentType), Data: m.Data}, nil
	}
	return dec.decode(m.Data)
}

type decoder struct {
	class  Class
	decode func([]byte) (Body, error)
}

var decoders = map[Kind]decoder{
	KindOpened: jsonBody[Opened](), KindClosed: jsonBody[Closed](), KindLost: jsonBody[Lost](),
	KindForked: jsonBody[Forked](), KindRewound: jsonBody[Rewound](),
	KindRequested: jsonBody[Requested](), KindRefused: jsonBody[Refused](), KindQueued: jsonBody[Queued](),
	KindAdmitted: jsonBody[Admitted](), KindSpawned: jsonBody[Spawned](), KindYielded: jsonBody[Yielded](),
	KindInput: jsonBody[Input](), KindStopping: jsonBody[Stopping](), KindSettled: jsonBody[Settled](),
	KindPruned: jsonBody[Pruned](), KindPosted: jsonBody[Posted](), KindAcknowledged: jsonBody[Acknowledged](),
}

func jsonBody[B Body]() decoder {
	var zero B
	return decoder{class: zero.Class(), decode: func(data []byte) (Body, error) {
		var b B
		if err := json.Unmarshal(data, &b); err != nil {
			return nil, fmt.Errorf("reading the body: %w", err)
		}
		return b, nil
	}}
}

func decodeOutput(m Message, kind Kind) (Body, error) {
	off, err := offsetOf(m)
	if err != nil {
		return nil, err
	}
	o := Output{Stream: kind, Offset: off, Data: m.Data}
	switch enc := get(m.Header, headerEncoding); enc {
	case "":
		if len(m.Data) > MaxChunk {
			return nil, fmt.Errorf("a chunk of %d bytes is over %d", len(m.Data), MaxChunk)
		}
	case encZstd:
		n, err := lengthOf(m)
		if err != nil {
			return nil, err
		}
		if o.Data, err = inflate(m.Data, n); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("content-encoding is %q, which is neither empty nor %s", enc, encZstd)
	}
	return o, nil
}

// offsetOf is where an output message begins. Its end is an offset, too.
func offsetOf(m Message) (int64, error) {
	off, err := strconv.ParseInt(get(m.Header, headerOffset), 10, 64)
	if err != nil || off < 0 || off > math.MaxInt64-MaxChunk {
		return 0, fmt.Errorf("%s is %q, not a byte offset", headerOffset, get(m.Header, headerOffset))
	}
	return off, nil
}

// lengthOf is the logical length of a compressed output message.
func lengthOf(m Message) (int, error) {
	n, err := strconv.Atoi(get(m.Header, headerLength))
	if err != nil || n < 0 || n > MaxChunk {
		return 0, fmt.Errorf("%s is %q, not a length up to %d", headerLength, get(m.Header, headerLength), MaxChunk)
	}
	return n, nil
}

// OutputSpan is the offsets [from, to) of an output message, read from its
// headers alone. ok is false for any other message.
func OutputSpan(m Message) (from, to int64, ok bool) {
	from, err := strconv.ParseInt(get(m.Header, headerOffset), 10, 64)
	if err != nil {
		return 0, 0, false
	}
	n := len(m.Data)
	if v := get(m.Header, headerLength); v != "" {
		if n, err = strconv.Atoi(v); err != nil {
			return 0, 0, false
		}
	}
	return from, from + int64(n), true
}

// Hash is the SHA-256 of a lifecycle message, in hex: what the session's next
// event carries as Prev. It covers the subject, the attributes and the data,
// each with its length before it.
func Hash(m Message) string {
	b := make([]byte, 0, len(m.Data)+1<<9)
	put := func(s string) {
		b = append(append(strconv.AppendInt(b, int64(len(s)), 10), ':'), s...)
	}
	put(m.Subject)
	for _, k := range [...]string{headerID, headerType, headerSource, headerTime, headerOwner, headerPrev, headerContentType} {
		put(get(m.Header, k))
	}
	b = append(append(strconv.AppendInt(b, int64(len(m.Data)), 10), ':'), m.Data...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// get reads a header under its exact name: NATS keeps the case of names.
func get(h map[string][]string, key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

var zstdReaders = newReaders(MaxChunk)

// newReaders is decoders that inflate to so many bytes at most. They are bounded
// by the callers: each holds one for the length of a call, and idle ones are given
// back to the collector.
func newReaders(most uint64) *sync.Pool {
	return &sync.Pool{New: func() any {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(most), zstd.WithDecoderLowmem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return r
	}}
}

// inflate decompresses to exactly n bytes, and fails without using more memory
// than that.
func inflate(data []byte, n int) ([]byte, error) {
	r := zstdReaders.Get().(*zstd.Decoder)
	defer zstdReaders.Put(r)
	out, err := r.DecodeAll(data, make([]byte, 0, n))
	if err != nil {
		return nil, fmt.Errorf("inflating a chunk: %w", err)
	}
	if len(out) != n {
		return nil, fmt.Errorf("a chunk inflates to %d bytes where its header says %d", len(out), n)
	}
	return out, nil
}
