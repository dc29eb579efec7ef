package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/oklog/ulid/v2"
)

// KindPacked is the kind of a [Packed] message. It is stored, and never told live.
const KindPacked Kind = "packed"

// Packed is many chunks of one execution's output in one message: how a sealed
// segment keeps what was written in small pieces. The bytes stand where they
// stood, and [Unpack] gives the chunks back.
type Packed struct {
	// Offset is the position of the first byte in the execution's one output order.
	Offset int64
	// Records are the chunks, in offset order without gaps; there is at least one.
	Records []Record
}

// Record is a chunk in a [Packed].
type Record struct {
	// Stream is [KindStdout], [KindStderr] or [KindTTY].
	Stream Kind
	// Time is when the writer made the chunk.
	Time time.Time
	Data []byte
}

// End is the offset after the last byte.
func (p Packed) End() int64 { return p.Offset + int64(p.size()) }

func (p Packed) size() (n int) {
	for _, r := range p.Records {
		n += len(r.Data)
	}
	return n
}

// Kind is [KindPacked].
func (Packed) Kind() Kind { return KindPacked }

// Class is [ClassOutput].
func (Packed) Class() Class { return ClassOutput }
func (Packed) sealed()      {}

// The format of a packed message. Its data is zstd, in one frame or several, of
// the format's number, the number of records, the unit of time in nanoseconds,
// and then column by column: a byte for each record's stream (its place in
// packedStreams), its length and 1, or 0 for all up to and with the next newline,
// the units of time from the record before (from ce-time for the first), and the
// bytes. Numbers are varints, the times zigzag.
const (
	packedType   = "application/vnd.yieldlog.packed"
	packedFormat = 1
	// headerDigest is the SHA-256 of the packed bytes, in hex.
	headerDigest = "ce-digest"

	// MaxRecords is the most records of a packed message. Together they hold at
	// most [MaxChunk] bytes.
	MaxRecords = 32 << 10
	// maxPacked bounds what a decoder inflates: the bytes and what is told of them.
	maxPacked = 1 << 20
	// framesFrom is the number of records from which columns are compressed apart:
	// their bytes are unlike.
	framesFrom = 256
)

var packedStreams = []Kind{KindStdout, KindStderr, KindTTY}

// A Packer encodes events. For packed ones it holds tables of 35 MB, so who makes
// many of them has one of its own, for as long as it does. The zero value is ready.
type Packer struct {
	// Rest, if it is not nil, is called between the steps of compressing a message.
	Rest func()

	squeezer *squeezer
	columns  []byte
}

func (by *Packer) pack(at time.Time, p Packed, h map[string][]string) ([]byte, error) {
	size := p.size()
	switch {
	case len(p.Records) == 0 || len(p.Records) > MaxRecords:
		return nil, fmt.Errorf("%d records are not 1 to %d", len(p.Records), MaxRecords)
	case size > MaxChunk:
		return nil, fmt.Errorf("%d packed bytes are over %d", size, MaxChunk)
	case p.Offset < 0 || p.Offset > math.MaxInt64-MaxChunk:
		return nil, fmt.Errorf("%d is no byte offset", p.Offset)
	}
	unit := p.unit(at)
	b := binary.AppendUvarint(append(by.columns[:0], packedFormat), uint64(len(p.Records)))
	b = binary.AppendUvarint(b, uint64(unit))
	for _, r := range p.Records {
		i := slices.Index(packedStreams, r.Stream)
		if i < 0 {
			return nil, fmt.Errorf("%q is no stream of output", r.Stream)
		}
		b = append(b, byte(i))
	}
	for _, r := range p.Records {
		b = binary.AppendUvarint(b, packedLength(r.Data))
	}
	times, last := len(b), at.UnixNano()
	for _, r := range p.Records {
		t := r.Time.UnixNano()
		b = binary.AppendVarint(b, (t-last)/unit)
		last = t
	}
	start := len(b)
	for _, r := range p.Records {
		b = append(b, r.Data...)
	}
	by.columns = b
	h[headerContentType] = []string{packedType}
	h[headerEncoding] = []string{encZstd}
	h[headerOffset] = []string{strconv.FormatInt(p.Offset, 10)}
	h[headerLength] = []string{strconv.Itoa(size)}
	h[headerDigest] = []string{digest(b[start:])}
	if len(p.Records) < framesFrom {
		return by.frames(b)
	}
	return by.frames(b[:times], b[times:start], b[start:])
}

// packedLength is 0 for a line, which most records are.
func packedLength(data []byte) uint64 {
	if bytes.IndexByte(data, '\n') == len(data)-1 && len(data) > 0 {
		return 0
	}
	return uint64(len(data)) + 1
}

// unit is the unit of all times, in nanoseconds.
func (p Packed) unit(at time.Time) int64 {
	last := at.UnixNano()
	for _, r := range p.Records {
		t := r.Time.UnixNano()
		if (t-last)%int64(time.Microsecond) != 0 {
			return 1
		}
		last = t
	}
	return int64(time.Microsecond)
}

func (by *Packer) frames(parts ...[]byte) ([]byte, error) {
	if by.squeezer == nil { // it is off every answer's path, and may take its time
		by.squeezer = newSqueezer(zstd.SpeedBestCompression, maxPacked)
		if by.Rest != nil {
			by.squeezer.rest = by.Rest
		}
	}
	return by.squeezer.frames(parts...)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

var errPacked = errors.New("the packed records are cut off or damaged")

func decodePacked(m Message) (Body, error) {
	off, err := offsetOf(m)
	if err != nil {
		return nil, err
	}
	size, err := lengthOf(m)
	if err != nil {
		return nil, err
	}
	if enc := get(m.Header, headerEncoding); enc != encZstd {
		return nil, fmt.Errorf("content-encoding is %q, not %s", enc, encZstd)
	}
	at, err := time.Parse(time.RFC3339Nano, get(m.Header, headerTime))
	if err != nil {
		return nil, fmt.Errorf("reading ce-time: %w", err)
	}
	r := unpackers.Get().(*zstd.Decoder)
	defer unpackers.Put(r)
	b, err := r.DecodeAll(m.Data, nil)
	if err != nil {
		return nil, fmt.Errorf("inflating packed output: %w", err)
	}
	p := Packed{Offset: off}
	if p.Records, err = readRecords(b, at.UnixNano(), size, get(m.Header, headerDigest)); err != nil {
		return nil, err
	}
	return p, nil
}

// readRecords reads the columns. The records share the bytes of b.
func readRecords(b []byte, at int64, size int, sum string) ([]Record, error) {
	if len(b) == 0 || b[0] != packedFormat {
		return nil, errors.New("the packed records have a format that this version does not know")
	}
	b = b[1:]
	n, w := binary.Uvarint(b)
	if w <= 0 || n == 0 || n > MaxRecords {
		return nil, errPacked
	}
	b = b[w:]
	unit, w := binary.Uvarint(b)
	if w <= 0 || unit == 0 || unit > uint64(time.Second) || n > uint64(len(b)-w) {
		return nil, errPacked
	}
	b = b[w:]
	list := make([]Record, n)
	for i := range list {
		if int(b[i]) >= len(packedStreams) {
			return nil, errPacked
		}
		list[i].Stream = packedStreams[b[i]]
	}
	b = b[n:]
	lengths := make([]int, n)
	for i := range lengths {
		l, w := binary.Uvarint(b)
		if w <= 0 || l > MaxChunk+1 {
			return nil, errPacked
		}
		lengths[i], b = int(l)-1, b[w:]
	}
	for i := range list {
		d, w := binary.Varint(b)
		if w <= 0 {
			return nil, errPacked
		}
		at += d * int64(unit)
		list[i].Time = time.Unix(0, at).UTC()
		b = b[w:]
	}
	if len(b) != size {
		return nil, fmt.Errorf("%d packed bytes where the header says %d", len(b), size)
	}
	if digest(b) != sum {
		return nil, errors.New("the packed bytes do not have the digest that the header says")
	}
	for i, l := range lengths {
		if l < 0 {
			l = bytes.IndexByte(b, '\n') + 1
		}
		if l > len(b) || l == 0 && lengths[i] < 0 {
			return nil, errPacked
		}
		list[i].Data, b = b[:l:l], b[l:]
	}
	if len(b) > 0 {
		return nil, errPacked
	}
	return list, nil
}

// Unpack is the output events of a packed one, in offset order, and any other
// event itself. Each has the bytes, the place and the time that it was appended
// with; its id is made of the packed event's id and its number, and its sequence
// is the packed event's.
func Unpack(e Event) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		p, ok := e.Body.(Packed)
		if !ok {
			yield(e)
			return
		}
		off := p.Offset
		for i, r := range p.Records {
			o := e
			o.ID, o.Time = unpackedID(e.ID, i, r.Time), r.Time
			o.Body = Output{Stream: r.Stream, Offset: off, Data: r.Data}
			off += int64(len(r.Data))
			if !yield(o) {
				return
			}
		}
	}
}

// unpackedID is a ULID that is always the same for the same record.
func unpackedID(packed string, i int, at time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", packed, i))
	ms := max(at.UnixMilli(), 0)
	id, err := ulid.New(uint64(ms), bytes.NewReader(sum[:]))
	if err != nil {
		panic(err) // a year of four digits fits
	}
	return id.String()
}

var unpackers = newReaders(maxPacked)
