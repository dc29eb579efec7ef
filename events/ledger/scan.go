package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/minio/highwayhash"

	"github.com/yieldlog/yieldlog/events"
)

// A block file of JetStream is a row of records, little endian:
//
//	0   length of the record (4 bytes), high bit: the message has a header
//	4   sequence (8), 12 time (8), 20 length of the subject (2)
//	22  subject, [length of the header (4), header], data, checksum (8)
//
// The checksum is the HighwayHash of everything but the two lengths, with a key
// made of the stream's name and the number of the block.
const (
	recordHeader = 22
	recordSum    = 8
	headerBit    = 1 << 31
	// The sequence says of what holds no message that it was erased, or notes a deletion.
	erasedBit, tombstoneBit = 1 << 63, 1 << 62
)

// blockScan is what a scan of one block found.
type blockScan struct {
	path string
	// records counts the records whose checksum holds, before the damage.
	records int
	// last is the sequence of the last of them.
	last uint64
	// damage says what is wrong, or is empty.
	damage string
	// torn says that nothing but the last record of the block is damaged: a
	// write that was cut off and never acknowledged.
	torn bool
	// end is where the good records end, in bytes.
	end int64
}

// blocks lists the block files of a stream in order.
func blocks(streamDir string) ([]string, error) {
	ents, err := os.ReadDir(filepath.Join(streamDir, "msgs"))
	if err != nil {
		return nil, err
	}
	var nums []int
	for _, e := range ents {
		if n, ok := strings.CutSuffix(e.Name(), ".blk"); ok {
			if i, err := strconv.Atoi(n); err == nil {
				nums = append(nums, i)
			}
		}
	}
	slices.Sort(nums)
	paths := make([]string, len(nums))
	for i, n := range nums {
		paths[i] = blockPath(streamDir, n)
	}
	return paths, nil
}

// scanBlock verifies the checksums of one block file.
func scanBlock(path, stream string) (blockScan, error) {
	var buf bytes.Buffer
	return scanInto(&buf, path, stream)
}

// scanInto is scanBlock with the memory for the block.
func scanInto(buf *bytes.Buffer, path, stream string) (blockScan, error) {
	r := blockScan{path: path}
	b, err := readInto(buf, path)
	if err != nil {
		return r, fmt.Errorf("reading block: %w", err)
	}
	h := blockHash(path, stream)
	for off := 0; off < len(b); {
		r.end = int64(off)
		rec, why := record(b[off:], h)
		if why != "" {
			r.damage = fmt.Sprintf("%s at byte %d", why, off)
			r.torn = nextRecord(b[off+1:], h) < 0
			return r, nil
		}
		r.records++
		r.last = max(r.last, sequence(rec))
		off += len(rec)
	}
	r.end = int64(len(b))
	return r, nil
}

// beginsWell reports whether a block begins with what may be a record, or is empty:
// with the sequence first, if that is not 0, or with a good record.
func beginsWell(path, stream string, size int64, first uint64) bool {
	var head [recordHeader + recordSum]byte
	if size == 0 {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return false
	}
	_, why := frame(head[:])
	length := int64(binary.LittleEndian.Uint32(head[:]) &^ headerBit)
	if why == badLength || length > size {
		return false
	}
	if first == 0 || binary.LittleEndian.Uint64(head[4:]) == first {
		return true
	}
	rec := make([]byte, length)
	if _, err := f.ReadAt(rec, 0); err != nil {
		return false
	}
	return holds(rec, blockHash(path, stream))
}

// framesInto is scanInto with a look only at the checksums of records that do not
// follow the one before, or have not the sequence first in the block: it finds
// what makes JetStream cut a block, or pass over what follows.
func framesInto(buf *bytes.Buffer, path, stream string, first uint64) (blockScan, error) {
	r := blockScan{path: path, last: max(first, 1) - 1}
	b, err := readInto(buf, path)
	if err != nil {
		return r, fmt.Errorf("reading block: %w", err)
	}
	h := blockHash(path, stream)
	for off := 0; off < len(b); r.records++ {
		rec, why := frame(b[off:])
		if why == "" {
			seq := binary.LittleEndian.Uint64(rec[4:])
			if seq != r.last+1 && !holds(rec, h) {
				why = badChecksum
			}
			r.last = seq
		}
		if why != "" {
			r.damage = fmt.Sprintf("%s at byte %d", why, off)
			return r, nil
		}
		off += len(rec)
	}
	return r, nil
}

func readInto(buf *bytes.Buffer, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	buf.Reset()
	if st, err := f.Stat(); err == nil {
		buf.Grow(int(st.Size()) + bytes.MinRead)
	}
	_, err = buf.ReadFrom(f)
	return buf.Bytes(), err
}

// A scanned is what a scan of one block found, or why it could not.
type scanned struct {
	blockScan
	err error
}

// scanAll scans blocks of a stream in a way, as many at once as there are processors.
func scanAll(paths []string, stream string, scan func(buf *bytes.Buffer, path, stream string) (blockScan, error)) []scanned {
	found := make([]scanned, len(paths))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(paths)) {
		workers.Go(func() {
			var buf bytes.Buffer
			for i := next.Add(1) - 1; i < int64(len(paths)); i = next.Add(1) - 1 {
				found[i].blockScan, found[i].err = scan(&buf, paths[i], stream)
			}
		})
	}
	workers.Wait()
	return found
}

func blockHash(path, stream string) hash.Hash {
	n := strings.TrimSuffix(filepath.Base(path), ".blk")
	key := sha256.Sum256([]byte(stream + "-" + n))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		panic(err) // the key has the right length
	}
	return h
}

// record cuts the first record off b, or says why it cannot be one.
func record(b []byte, h hash.Hash) (rec []byte, why string) {
	if rec, why = frame(b); why == "" && !holds(rec, h) {
		return nil, badChecksum
	}
	return rec, why
}

const badLength, badChecksum = "bad record length", "bad checksum"

// frame is record without a look at the checksum.
func frame(b []byte) (rec []byte, why string) {
	if len(b) < recordHeader+recordSum {
		return nil, "cut off record"
	}
	word := binary.LittleEndian.Uint32(b)
	size := int(word &^ headerBit)
	subject := int(binary.LittleEndian.Uint16(b[20:]))
	fixed := subject
	if word&headerBit != 0 {
		fixed += 4
	}
	if size < recordHeader+fixed+recordSum {
		return nil, badLength
	}
	if size > len(b) {
		return nil, "cut off record"
	}
	return b[:size], ""
}

// holds reports whether the checksum of a record is right.
func holds(rec []byte, h hash.Hash) bool {
	subject := int(binary.LittleEndian.Uint16(rec[20:]))
	fixed := subject
	if binary.LittleEndian.Uint32(rec)&headerBit != 0 {
		fixed += 4
	}
	data, want := rec[recordHeader:len(rec)-recordSum], rec[len(rec)-recordSum:]
	h.Reset()
	_, _ = h.Write(rec[4:20])
	_, _ = h.Write(data[:subject])
	_, _ = h.Write(data[fixed:])
	var sum [recordSum]byte
	return bytes.Equal(h.Sum(sum[:0]), want)
}

// sequence is the sequence of a whole record, 0 of one that holds no message.
func sequence(rec []byte) uint64 {
	seq := binary.LittleEndian.Uint64(rec[4:])
	if seq&(erasedBit|tombstoneBit) != 0 {
		return 0
	}
	return seq
}

// nextRecord is where the first whole record in b starts, or -1. The first bytes
// of the subject tell almost every other position apart.
func nextRecord(b []byte, h hash.Hash) int {
	for off := 0; off+recordHeader+recordSum <= len(b); off++ {
		if s := b[off+recordHeader:]; !bytes.HasPrefix(s, eventStart) && !bytes.HasPrefix(s, markStart) {
			continue
		}
		if _, why := record(b[off:], h); why == "" {
			return off
		}
	}
	return -1
}

// One of these begins every subject that is stored in the ledger.
var eventStart, markStart = []byte(events.SubjectRoot + "."), []byte(segmentMark)

func blockNumber(path string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".blk"))
	return n
}

// lastBytes is the last n bytes of a file, or zeros of a shorter one.
func lastBytes(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if st.Size() < n {
		return b, nil
	}
	_, err = f.ReadAt(b, st.Size()-n)
	return b, err
}
