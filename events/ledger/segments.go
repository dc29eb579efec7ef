package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

func isPacked(name string) bool { return strings.HasPrefix(name, packedPrefix) }

func isSegment(name string) bool { return strings.HasPrefix(name, segmentPrefix) || isPacked(name) }

// segmentNumber is the number that a segment and its packed twin share, and 0
// for any other stream.
func segmentNumber(name string) int {
	n, err := strconv.Atoi(name[strings.IndexByte(name, '_')+1:])
	if err != nil {
		return 0
	}
	return n
}

// streamLimit is the most bytes that a stream may hold. A segment's is well
// above the size at which it is sealed: a backstop for a host that is late.
func (h *host) streamLimit(name string) int64 {
	if isSegment(name) {
		return max(4*h.o.SegmentBytes, 64<<20)
	}
	return h.o.MaxBytes
}

// ensureStreams creates the streams of a new ledger, and finishes a roll that
// was cut off.
func (h *host) ensureStreams(ctx context.Context) error {
	if !h.marker.has(lifecycleStream) {
		if err := h.addStream(ctx, lifecycleStream); err != nil {
			return err
		}
	}
	if err := h.adjustLimit(ctx); err != nil {
		return err
	}
	segs := h.marker.segments()
	if len(segs) > 0 {
		h.spareMemory(segs[len(segs)-1])
	}
	switch len(segs) {
	case 0:
		return h.addStream(ctx, segmentName(1))
	case 1:
		return nil
	default:
		return sealStream(ctx, h.js, segs[len(segs)-2])
	}
}

// adjustLimit gives the lifecycle stream the limit of the present options.
func (h *host) adjustLimit(ctx context.Context) error {
	s, err := h.js.Stream(ctx, lifecycleStream)
	if err != nil {
		return fmt.Errorf("looking up the lifecycle stream: %w", err)
	}
	c := s.CachedInfo().Config
	if h.o.ReadOnly || c.MaxBytes == h.o.MaxBytes {
		return nil
	}
	c.MaxBytes = h.o.MaxBytes
	if _, err := h.js.UpdateStream(ctx, c); err != nil {
		return fmt.Errorf("adjusting the limit of the lifecycle stream: %w", err)
	}
	return nil
}

// addStream creates a stream, makes its files durable and names it in the
// marker, in that order.
func (h *host) addStream(ctx context.Context, name string) error {
	if err := h.makeStream(ctx, name); err != nil {
		return err
	}
	h.marker.Streams = append(h.marker.Streams, name)
	return h.dir.writeMarker(h.marker)
}

// makeStream creates a stream and makes its files durable.
func (h *host) makeStream(ctx context.Context, name string) error {
	if err := createStream(ctx, h.js, name, h.streamLimit(name)); err != nil {
		return err
	}
	h.spareMemory(name)
	if isSegment(name) { // before anyone can learn of the segment: the mark is its first message
		if _, err := h.js.Publish(ctx, ingestPrefix(name)+segmentMark, nil); err != nil {
			return fmt.Errorf("marking segment %s: %w", name, err)
		}
	}
	if err := h.syncStream(name); err != nil {
		return fmt.Errorf("syncing stream %s: %w", name, err)
	}
	return nil
}

// spareMemory keeps a flood into a segment from filling memory.
func (h *host) spareMemory(name string) {
	if !isSegment(name) {
		return
	}
	acc, err := h.ns.LookupAccount(ledgerAccount)
	if err == nil {
		err = shortenWriteCache(acc, name)
	}
	if err != nil { // it costs memory, and nothing else
		h.o.Logger.Debug("shortening the write cache", "stream", name, "error", err)
	}
}

// dropFull has the server give back the blocks of the active segment that are full.
func (h *host) dropFull() {
	segs := h.marker.segments()
	acc, err := h.ns.LookupAccount(ledgerAccount)
	if err == nil {
		_, err = dropFull(acc, segs[len(segs)-1])
	}
	if err != nil { // it costs memory, and nothing else
		h.o.Logger.Debug("giving back full blocks", "error", err)
	}
}

// syncStream makes the files of a new stream durable, up to the store.
func (h *host) syncStream(name string) error {
	folder := h.dir.stream(name)
	if err := syncTree(folder); err != nil {
		return err
	}
	for folder != h.dir.store() {
		folder = filepath.Dir(folder)
		if err := syncPath(folder); err != nil {
			return err
		}
	}
	return syncPath(string(h.dir))
}

// roll starts a new segment once the active one has so many bytes, and then
// seals that: a writer that finds its segment sealed looks for the next one. It
// returns the bytes of the active segment.
func (h *host) roll(ctx context.Context, bytes uint64) (uint64, error) {
	segs := h.marker.segments()
	active := segs[len(segs)-1]
	s, err := h.js.Stream(ctx, active)
	if err != nil {
		return 0, fmt.Errorf("looking up segment %s: %w", active, err)
	}
	st := s.CachedInfo().State
	if st.Bytes < bytes || st.Msgs < 2 { // the mark is no output
		return st.Bytes, nil
	}
	if err := h.addStream(ctx, segmentName(segmentNumber(active)+1)); err != nil {
		return 0, err
	}
	return 0, sealStream(ctx, h.js, active)
}

// sealed is the segment of a name, or its twin if that counts by now. ok is
// false when it is deleted already, or not sealed.
func (h *host) sealed(name string) (segment string, ok bool) {
	segs := h.marker.segments()
	for _, s := range segs[:max(len(segs)-1, 0)] {
		if segmentNumber(s) == segmentNumber(name) {
			return s, true
		}
	}
	return "", false
}

// deleteSegment deletes a sealed segment whole, from the marker first.
func (h *host) deleteSegment(ctx context.Context, name string) error {
	name, ok := h.sealed(name)
	if !ok {
		return nil
	}
	if err := h.mark(func(m *marker) { m.drop(name) }); err != nil {
		return err
	}
	return h.deleteStream(ctx, name)
}

// mark changes the marker: on disk first.
func (h *host) mark(change func(*marker)) error {
	m := h.marker.clone()
	change(m)
	if err := h.dir.writeMarker(m); err != nil {
		return err
	}
	h.marker = m
	return nil
}

// deleteStream deletes a stream that the marker does not name, if it is there,
// and what a cut-off creation left of it.
func (h *host) deleteStream(ctx context.Context, name string) error {
	if err := h.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("deleting segment %s: %w", name, err)
	}
	if err := os.RemoveAll(h.dir.stream(name)); err != nil {
		return fmt.Errorf("deleting segment %s: %w", name, err)
	}
	// The server moves what it deletes aside and removes it later, unless its process ends first.
	_ = os.RemoveAll(h.dir.stream("." + name))
	return nil
}
