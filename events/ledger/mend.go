package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A clean open looks only at the newest blocks. When the server reads an older
// one and comes to a length that cannot be, it makes the block's state anew, which
// cuts the block there. But first it says so, and waits until that is logged: in
// that moment the damaged records are blanked, so that nothing is cut.

// cutWarning is in what the server logs before it cuts a block; the block's path is
// the first argument.
const cutWarning = "indexCacheBuf corrupt record state in %s"

// mend blanks the damaged records of a block that the server is about to cut, and
// keeps a copy of the block as it was. It says what it did.
func (d stateDir) mend(block string) (string, error) {
	stream := filepath.Base(filepath.Dir(filepath.Dir(block)))
	copied, keepErr := keepDamaged(block, stream, d.damagedNow())
	if keepErr != nil { // without a copy the server would do worse
		copied = "lost: " + keepErr.Error()
	}
	blanked, err := blankDamage(block, stream)
	if err != nil {
		return "", fmt.Errorf("saving the rest of damaged block %s (as it was: %s): %w", block, copied, err)
	}
	return fmt.Sprintf("block %s is damaged: %d bytes of it hold no message any more, all others stay; the block as it was is %s", block, blanked, copied), nil
}

// damagedPrefix begins the name of a folder with damaged blocks as they were.
const damagedPrefix = "damaged-"

// damagedNow is a folder for blocks that are damaged as of now.
func (d stateDir) damagedNow() string {
	return d.file(damagedPrefix + time.Now().UTC().Format("20060102T150405.000000"))
}

// keepDamaged copies a block into a folder, durably, and returns where it is.
func keepDamaged(block, stream, folder string) (string, error) {
	copied := filepath.Join(folder, stream, filepath.Base(block))
	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		return "", err
	}
	if err := copyFile(block, copied); err != nil {
		return "", err
	}
	return copied, syncTree(folder)
}

// blankDamage overwrites what is damaged in a block, in place, with records that
// hold no message, and returns how many bytes. The block stays as long as the
// index says. An end of the newest block is left alone: it may be torn.
func blankDamage(block, stream string) (int, error) {
	f, err := os.OpenFile(block, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	b, err := os.ReadFile(block)
	if err != nil {
		return 0, err
	}
	h, blanked := blockHash(block, stream), 0
	_, err = os.Stat(blockPath(filepath.Dir(filepath.Dir(block)), blockNumber(block)+1))
	newest := errors.Is(err, fs.ErrNotExist)
	for _, s := range damage(b, h) {
		if size := s.to - s.from; size >= recordHeader+recordSum && (!newest || s.to < len(b)) {
			if _, err := f.WriteAt(blankRecord(size, h), int64(s.from)); err != nil {
				return blanked, err
			}
			blanked += size
		}
	}
	return blanked, f.Sync()
}

// blankRecord is a good record of so many bytes that holds no message: to
// JetStream, one that was erased.
func blankRecord(size int, h hash.Hash) []byte {
	rec := make([]byte, size)
	binary.LittleEndian.PutUint32(rec, uint32(size))
	binary.LittleEndian.PutUint64(rec[4:], erasedBit)
	h.Reset()
	_, _ = h.Write(rec[4:20])
	_, _ = h.Write(rec[recordHeader : size-recordSum])
	h.Sum(rec[:size-recordSum])
	return rec
}

// A stretch is the bytes [from, to) of a block.
type stretch struct{ from, to int }

// damage is what of a block holds no good record.
func damage(b []byte, h hash.Hash) []stretch {
	var bad []stretch
	for off := 0; off < len(b); {
		if rec, why := record(b[off:], h); why == "" {
			off += len(rec)
			continue
		}
		s := stretch{off, len(b)}
		if next := nextRecord(b[off+1:], h); next >= 0 {
			s.to = off + 1 + next
		}
		bad = append(bad, s)
		off = s.to
	}
	return bad
}

// hasMended reports whether a block was mended. What the server took the damage for
// it keeps in mind, as messages that are gone: it has to start anew.
func (h *host) hasMended() (has bool) {
	h.mended.Range(func(any, any) bool {
		has = true
		return false
	})
	return has
}

// dropMended removes the indexes that a server wrote of streams with mended blocks.
func (h *host) dropMended() {
	h.mended.Range(func(stream, _ any) bool {
		err := os.Remove(indexFile(h.dir.stream(stream.(string)))) // without one it is made anew
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.o.Logger.Warn("removing the index of a stream with a mended block", "error", err)
		}
		return true
	})
	h.mended.Clear()
}

// mendFirst mends the block that a warning of the server is about, if it is about to cut one.
func (l *serverLog) mendFirst(format string, v []any) {
	if !strings.Contains(format, cutWarning) || len(v) == 0 {
		return
	}
	block, ok := v[0].(string)
	if !ok {
		return
	}
	did, err := l.root.mend(block)
	if err != nil {
		did = err.Error()
	}
	l.mended.Store(filepath.Base(filepath.Dir(filepath.Dir(block))), true)
	l.log.Error(l.text("%s", []any{did}))
}
