package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

func isSegment(name string) bool { return strings.HasPrefix(name, segmentPrefix) }

func segmentNumber(name string) (n int) {
	_, _ = fmt.Sscanf(name, segmentPrefix+"%d", &n)
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
	if h.o.ReadOnly {
		return nil
	}
	if !h.marker.has(lifecycleStream) {
		if err := h.addStream(ctx, lifecycleStream); err != nil {
			return err
		}
	}
	switch segs := h.marker.segments(); len(segs) {
	case 0:
		return h.addStream(ctx, segmentName(1))
	case 1:
		return nil
	default:
		return sealStream(ctx, h.js, segs[len(segs)-2])
	}
}

// addStream creates a stream, makes its files durable and names it in the
// marker, in that order.
func (h *host) addStream(ctx context.Context, name string) error {
	if err := createStream(ctx, h.js, name, h.streamLimit(name)); err != nil {
		return err
	}
	if isSegment(name) { // before anyone can learn of the segment: the mark is its first message
		if _, err := h.js.Publish(ctx, ingestPrefix(name)+segmentMark, nil); err != nil {
			return fmt.Errorf("marking segment %s: %w", name, err)
		}
	}
	if err := syncTree(h.dir.store()); err != nil {
		return fmt.Errorf("syncing stream %s: %w", name, err)
	}
	h.marker.Streams = append(h.marker.Streams, name)
	return h.dir.writeMarker(h.marker)
}

// roll starts a new segment once the active one is full, and then seals that:
// a writer that finds its segment sealed looks for the next one.
func (h *host) roll(ctx context.Context) error {
	segs := h.marker.segments()
	active := segs[len(segs)-1]
	s, err := h.js.Stream(ctx, active)
	if err != nil {
		return fmt.Errorf("looking up segment %s: %w", active, err)
	}
	if s.CachedInfo().State.Bytes < uint64(h.o.SegmentBytes) {
		return nil
	}
	if err := h.addStream(ctx, segmentName(segmentNumber(active)+1)); err != nil {
		return err
	}
	return sealStream(ctx, h.js, active)
}

// deleteSegment deletes a sealed segment whole, from the marker first.
func (h *host) deleteSegment(ctx context.Context, name string) error {
	m := &marker{Version: h.marker.Version}
	for _, s := range h.marker.Streams {
		if s != name {
			m.Streams = append(m.Streams, s)
		}
	}
	if err := h.dir.writeMarker(m); err != nil {
		return err
	}
	h.marker = m
	if err := h.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("deleting segment %s: %w", name, err)
	}
	return nil
}
