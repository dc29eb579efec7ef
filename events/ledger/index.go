package ledger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/highwayhash"
	"github.com/nats-io/nats-server/v2/server/avl"
)

// An index is what JetStream wrote about a stream, in msgs/index.db.
type index struct {
	// fresh says that JetStream will trust it. If it will not, it reads every
	// block again, and a rebuild can destroy what follows a damaged byte.
	fresh bool
	// last is the last sequence of the stream when it was written, 0 when there
	// is no readable index.
	last uint64
	// sizes is the least size of each block's file, in bytes, by its number.
	sizes map[int]int64
	// firsts is the first sequence of each block.
	firsts map[int]uint64
}

func indexFile(streamDir string) string { return filepath.Join(streamDir, "msgs", "index.db") }

// readIndex reads the index of a stream; a missing or damaged one is empty. It
// holds no more than a part of the file, which has an entry for each subject:
// each, if not nil, is told the subject and the first and last block that may
// hold it, before anybody knows whether the index is sound.
func readIndex(streamDir, stream string, each func(subject []byte, first, last int)) index {
	f, err := os.Open(indexFile(streamDir))
	if err != nil {
		return index{}
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil || st.Size() < 32 {
		return index{}
	}
	key := sha256.Sum256([]byte(stream))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	body := io.TeeReader(io.LimitReader(f, st.Size()-recordSum), h)
	ix, rest, err := parseIndex(bufio.NewReaderSize(body, indexBuffer), each)
	if err != nil {
		return index{}
	}
	var sum [recordSum]byte
	if _, err := io.ReadFull(f, sum[:]); err != nil || !bytes.Equal(h.Sum(nil), sum[:]) {
		return index{}
	}
	ix.fresh = endsAt(rest, streamDir)
	return ix
}

// indexBuffer is how much of an index is held at a time, in bytes.
const indexBuffer = 256 << 10

// endsAt reports whether the last block of the stream is the one that the index
// ends with, and ends with the checksum that the index ends with.
func endsAt(body []byte, streamDir string) bool {
	paths, err := blocks(streamDir)
	if err != nil || len(paths) == 0 {
		return false
	}
	last := paths[len(paths)-1]
	tail, err := lastBytes(last, recordSum)
	return err == nil && bytes.HasSuffix(body, append(binary.AppendUvarint(nil, uint64(blockNumber(last))), tail...))
}

// An indexReader reads the numbers of an index. After an error all are 0.
type indexReader struct {
	from *bufio.Reader
	text []byte
	bad  bool
}

func (r *indexReader) skip(n int) {
	if n < 0 || r.bad {
		r.bad = true
		return
	}
	if _, err := r.from.Discard(n); err != nil {
		r.bad = true
	}
}

// subject reads a subject, or skips it. It is good until the next one.
func (r *indexReader) subject(size int, wanted bool) []byte {
	if !wanted || size > maxSubject {
		r.skip(size)
		return nil
	}
	r.text = slices.Grow(r.text[:0], size)[:size]
	if _, err := io.ReadFull(r.from, r.text); err != nil {
		r.bad = true
	}
	return r.text
}

// maxSubject is the most bytes of a subject that an index can hold.
const maxSubject = 1 << 16

// number reads a varint. A signed one is as long, and skipped alike.
func (r *indexReader) number() uint64 {
	if r.bad {
		return 0
	}
	v, err := binary.ReadUvarint(r.from)
	if err != nil {
		r.bad = true
		return 0
	}
	return v
}

var errIndex = errors.New("the index cannot be read")

// parseIndex reads what JetStream's recoverFullState does: two bytes of magic
// and version, the state of the stream, its subjects, its blocks. It returns
// also what the index ends with: the blocks and what is behind them.
func parseIndex(body *bufio.Reader, each func([]byte, int, int)) (ix index, end []byte, err error) {
	r := &indexReader{from: body}
	var version byte
	if magic, err := body.Peek(2); err == nil {
		version = magic[1]
	}
	r.skip(2)
	ix = index{sizes: map[int]int64{}, firsts: map[int]uint64{}}
	for range 5 { // messages, bytes, first sequence, first time, last sequence
		ix.last = r.number()
	}
	r.number() // last time
	for n := r.number(); n > 0 && !r.bad; n-- {
		size := int(r.number())
		if size <= 0 {
			continue
		}
		subject := r.subject(size, each != nil)
		total := r.number()
		first := r.number()
		last := first
		if total > 1 || version >= 4 {
			last = r.number()
		}
		if each != nil && !r.bad {
			each(subject, int(first), int(last))
		}
	}
	if r.bad {
		return index{}, nil, errIndex
	}
	if end, err = io.ReadAll(body); err != nil {
		return index{}, nil, err
	}
	b := &blockReader{b: end}
	for n := b.number(); n > 0 && !b.bad; n-- {
		b.block(version, ix)
	}
	if b.bad {
		return index{}, nil, errIndex
	}
	return ix, end, nil
}

// A blockReader reads the blocks of an index. After an error all numbers are 0.
type blockReader struct {
	b   []byte
	bad bool
}

func (r *blockReader) skip(n int) {
	if n < 0 || n > len(r.b) {
		r.b, r.bad = nil, true
		return
	}
	r.b = r.b[n:]
}

func (r *blockReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.skip(n)
	return v
}

func (r *blockReader) block(version byte, ix index) {
	number, size := int(r.number()), int64(r.number())
	first := r.number()
	for range 3 { // first time, last sequence and time
		r.number()
	}
	deleted := r.number()
	if version >= 2 {
		r.number() // messages that expire
	}
	if version >= 3 {
		r.number() // messages on a schedule
	}
	if deleted > 0 {
		_, n, err := avl.Decode(r.b)
		if err != nil {
			r.bad = true
			return
		}
		r.skip(n)
	}
	ix.sizes[number], ix.firsts[number] = size, first
}
