package ledger

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// A reader need not start the server to read a ledger that nobody hosts: the
// blocks hold everything, and each record a checksum. Under the lock it notes
// which blocks there are and where each ends. What is within those ends never
// changes any more, so the lock is given back at once, and a host that appears
// meanwhile is not in the way, nor kept waiting. Whatever is not as expected
// makes the reader open the ledger as a writer would: see [Ledger.wake].

// errStirred says that the ledger is not as it was when it was at rest, or is
// damaged: the server knows.
var errStirred = errors.New("the ledger is not at rest")

// A rest is a ledger as it was while nobody hosted it. Its methods are safe for
// concurrent use.
type rest struct {
	dir     stateDir
	streams map[string][]restBlock
	// last is the sequence of the newest lifecycle event, 0 when there is none.
	last uint64

	mu sync.Mutex
	// sound is the blocks of which every checksum was found good.
	sound map[string]bool
	// firsts is the first sequences of blocks, and where says for each segment
	// which of its blocks may hold a subject.
	firsts map[string]uint64
	where  map[string]map[string]blockSpan
	// idle is the block that was read last, for the next reader of it.
	idle *restBuffer
}

// A restBlock is a block file and the bytes of it that count.
type restBlock struct {
	path string
	size int64
}

func newRest(d stateDir, streams map[string][]restBlock) *rest {
	return &rest{dir: d, streams: streams, sound: map[string]bool{}, firsts: map[string]uint64{}, where: map[string]map[string]blockSpan{}}
}

// openRest returns the ledger at rest, or nil when it is hosted, or the server
// has to look after it. It changes nothing. The error says that the ledger is damaged.
func openRest(d stateDir) (*rest, error) {
	lock, err := lockShared(d.hostLock())
	if err != nil {
		return nil, nil //nolint:nilerr // it is hosted, or whoever opens it says what is wrong
	}
	if lock != nil {
		defer func() { _ = lock.Close() }()
	}
	at, err := lockDir(string(d), lockTogether)
	switch {
	case err == nil:
		defer func() { _ = at.Close() }()
	case errors.Is(err, errLocked):
		return nil, nil // by a host whose file somebody removed
	}
	return restNow(d)
}

// restNow is [openRest] without a look at the locks: of a host that hangs, the
// blocks are as they are, up to the last whole record.
func restNow(d stateDir) (*rest, error) {
	if len(d.matching("aside-*")) > 0 {
		return nil, nil // of an open that was killed
	}
	m, err := d.readMarker()
	if err != nil {
		return nil, err
	}
	names, err := streamNames(d, m)
	if err != nil || len(names) != len(m.Streams) || !m.has(lifecycleStream) {
		return nil, err // a stream whose creation was cut off
	}
	r := newRest(d, nil)
	if r.streams, err = r.look(m); err != nil {
		return nil, err
	}
	if !r.begins(m) || !r.ends() {
		return nil, nil
	}
	return r, nil
}

// greetMost is how long a host may take to greet who connects: it takes less than
// a millisecond, and one that was killed still accepts connections for a while.
const greetMost = 100 * time.Millisecond

// hostDies reports whether the ledger is locked by a host that greets nobody.
func (d stateDir) hostDies() bool {
	lock, err := lockShared(d.hostLock())
	if lock != nil {
		_ = lock.Close() // it was only tried
	}
	var ep endpoint
	if !errors.Is(err, errLocked) || readJSON(d.endpoint(), &ep) != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", loopback(ep.Port), greetMost)
	if err != nil {
		return true
	}
	defer func() { _ = conn.Close() }()
	if conn.SetReadDeadline(time.Now().Add(greetMost)) == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return err != nil
}

// look finds the blocks: as the last host left them, or by an inspection when it
// left them otherwise.
func (r *rest) look(m *marker) (map[string][]restBlock, error) {
	_, err := os.Stat(r.dir.running())
	if errors.Is(err, fs.ErrNotExist) {
		if left, ok := readLeft(r.dir, m); ok {
			return left, nil
		}
	}
	in, err := inspect(r.dir, m, false)
	if err != nil {
		return nil, err
	}
	if err := in.err(); err != nil {
		return nil, err
	}
	found := map[string][]restBlock{}
	for _, name := range in.names {
		paths, err := blocks(r.dir.stream(name))
		if err != nil {
			return nil, err
		}
		found[name] = make([]restBlock, 0, len(paths))
		for _, p := range paths {
			size, err := readable(p)
			if err != nil {
				return nil, err
			}
			if scan, ok := in.scans[p]; ok {
				size = scan.end
				r.sound[p] = true
			}
			found[name] = append(found[name], restBlock{path: p, size: size})
		}
	}
	return found, nil
}

// begins reports whether the lifecycle has its first block. A server says what is missing.
func (r *rest) begins(m *marker) bool {
	list := r.streams[lifecycleStream]
	if len(list) == 0 || len(m.Missing) > 0 {
		return true
	}
	first, err := r.first(list[0])
	return err == nil && first <= 2
}

// ends finds the last sequence, and reports whether the end of the lifecycle is
// as expected.
func (r *rest) ends() bool {
	for _, b := range slices.Backward(r.streams[lifecycleStream]) {
		err := r.walk(b, lifecycleStream, 0, func(rec []byte) bool {
			r.last = max(r.last, sequence(rec))
			return true
		})
		if err != nil {
			return false
		}
		if r.last > 0 {
			return true
		}
	}
	return true
}

// first is the first sequence in a block, and 0 of an empty one.
func (r *rest) first(b restBlock) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if seq, ok := r.firsts[b.path]; ok {
		return seq, nil
	}
	seq, err := firstSequence(b)
	if err == nil {
		r.firsts[b.path] = seq
	}
	return seq, err
}

// firstSequence reads the first sequence in a block.
func firstSequence(b restBlock) (uint64, error) {
	f, err := os.Open(b.path)
	if err != nil {
		return 0, errStirred
	}
	defer func() { _ = f.Close() }()
	for off := int64(0); off < b.size; {
		var head [recordHeader]byte
		if _, err := f.ReadAt(head[:], off); err != nil {
			return 0, errStirred
		}
		if seq := sequence(head[:]); seq > 0 {
			return seq, nil
		}
		size := binary.LittleEndian.Uint32(head[:]) &^ headerBit
		if size < recordHeader+recordSum {
			return 0, errStirred
		}
		off += int64(size)
	}
	return 0, nil
}

// A restBuffer is a block in memory.
type restBuffer struct {
	path string
	b    []byte
}

// take reads a block, unless it was the last one that was read.
func (r *rest) take(b restBlock) (*restBuffer, error) {
	r.mu.Lock()
	buf := r.idle
	r.idle = nil
	r.mu.Unlock()
	switch {
	case buf == nil:
		buf = &restBuffer{}
	case buf.path == b.path:
		return buf, nil
	}
	buf.path = b.path
	f, err := os.Open(b.path)
	if err != nil {
		return nil, errStirred
	}
	defer func() { _ = f.Close() }()
	if int64(cap(buf.b)) < b.size {
		buf.b = make([]byte, b.size)
	}
	buf.b = buf.b[:b.size]
	if n, err := f.ReadAt(buf.b, 0); n < len(buf.b) || err != nil {
		return nil, errStirred // it was cut since, or cannot be read
	}
	return buf, nil
}

func (r *rest) give(buf *restBuffer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = buf
}

// walk hands each record of a block to fn, from a sequence on, until fn says
// that it is enough. Their checksums hold. fn must not keep the record.
func (r *rest) walk(b restBlock, stream string, from uint64, fn func(rec []byte) bool) error {
	buf, err := r.take(b)
	if err != nil {
		return err
	}
	defer r.give(buf)
	r.mu.Lock()
	sound := r.sound[b.path]
	r.mu.Unlock()
	h, whole := blockHash(b.path, stream), true
	for off := 0; off < len(buf.b); {
		rec, why := frame(buf.b[off:])
		if why != "" {
			return errStirred
		}
		off += len(rec)
		if seq := sequence(rec); seq == 0 || seq < from {
			whole = false
			continue
		}
		if !sound && !holds(rec, h) {
			return errStirred
		}
		if !fn(rec) {
			return nil
		}
	}
	if whole && !sound {
		r.mu.Lock()
		r.sound[b.path] = true
		r.mu.Unlock()
	}
	return nil
}
