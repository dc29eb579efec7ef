package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/minio/highwayhash"

	"github.com/yieldlog/yieldlog/events"
)

// blockBytes is about the size of a block of the lifecycle stream.
const blockBytes = 8 << 20

// A blockWriter writes events into block files of a stream, as the embedded
// server would, which takes ten times as long. The format is in
// events/ledger/scan.go; that the server reads it proves it.
type blockWriter struct {
	dir, stream string
	at          time.Time // of the events
	seq         uint64
	prev        string // the hash of the session's last event
	number      int
	file        *os.File
	out         *bufio.Writer
	size        int
	record      []byte
	hash        interface {
		Reset()
		Write(p []byte) (int, error)
		Sum(b []byte) []byte
	}
}

// append writes one event. A session's events follow each other.
func (w *blockWriter) append(e events.Event) error {
	e.ID, e.Time, e.Prev = events.NewID(), w.at, w.prev
	m, err := events.Encode(e)
	if err != nil {
		return err
	}
	w.prev = events.Hash(m)
	m.Header["Nats-Msg-Id"] = []string{e.ID}
	if w.file == nil || w.size > blockBytes {
		if err := w.roll(); err != nil {
			return err
		}
	}
	w.seq++
	header := []byte("NATS/1.0\r\n")
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		header = fmt.Appendf(header, "%s: %s\r\n", name, m.Header[name][0])
	}
	header = append(header, "\r\n"...)
	b := binary.LittleEndian.AppendUint32(w.record[:0], 0) // the length, below
	b = binary.LittleEndian.AppendUint64(b, w.seq)
	b = binary.LittleEndian.AppendUint64(b, uint64(w.at.UnixNano()))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.Subject)))
	b = append(b, m.Subject...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	b = append(append(b, header...), m.Data...)
	w.hash.Reset()
	for _, part := range [][]byte{b[4:20], []byte(m.Subject), header, m.Data} {
		_, _ = w.hash.Write(part) // a hash does not fail
	}
	b = w.hash.Sum(b)
	binary.LittleEndian.PutUint32(b, uint32(len(b))|1<<31) // it has a header
	w.record, w.size = b, w.size+len(b)
	_, err = w.out.Write(b)
	return err
}

// roll begins the next block.
func (w *blockWriter) roll() error {
	if err := w.close(); err != nil {
		return err
	}
	w.number++
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", w.stream, w.number))
	h, err := highwayhash.NewDigest64(key[:])
	if err != nil {
		return err
	}
	w.hash, w.size = h, 0
	w.file, err = os.OpenFile(filepath.Join(w.dir, fmt.Sprintf("%d.blk", w.number)), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w.out = bufio.NewWriterSize(w.file, 1<<20)
	return nil
}

func (w *blockWriter) close() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(w.out.Flush(), w.file.Close())
	w.file = nil
	return err
}
