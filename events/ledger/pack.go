package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yieldlog/yieldlog/events"
)

// Packing rewrites a sealed segment whose executions have all settled into a
// twin, in full messages. Whoever packs holds the pack lock, writes the twin and
// reads it back; the host's keeper makes it and lets it take the segment's place:
// the marker names one of the two, at every moment, and the other is deleted, at
// the next open at the latest. So a crash leaves one of them complete.

// PackReport says what a pack did.
type PackReport struct {
	// Segments were packed: they had Before bytes and have After.
	Segments []string `json:"segments"`
	Before   int64    `json:"before"`
	After    int64    `json:"after"`
	// Dense would not become smaller, and Waiting hold output of executions that
	// have not settled. They stay as they are.
	Dense   []string `json:"dense,omitempty"`
	Waiting []string `json:"waiting,omitempty"`
}

const (
	// packInterval is how often a host looks for something to pack, and
	// packPause how long it lets a segment rest that could not be packed.
	packInterval = time.Second
	packPause    = time.Minute
	// dropTimeout bounds how long a failed pack clears up. The next one, or the
	// next open, does it otherwise.
	dropTimeout = 2 * time.Second
	// maxPackExecutions is the most executions of a segment that is packed: one
	// with more holds little of each, and gains nothing.
	maxPackExecutions = 64 << 10
	// packGain is the least part of a segment, 1/packGain, that is worth it.
	packGain = 16
)

// The reasons why a segment stays as it is.
var (
	errUnsettled = errors.New("an execution has not settled")
	errDense     = errors.New("packing does not make the segment smaller")
	errUnsound   = errors.New("the segment is not sound, and stays as it is")
)

// atPackStep is called between the steps of a pack, for tests that kill the
// process there.
var atPackStep = func(string) {}

// AutoPack packs sealed segments while this process hosts the ledger, without
// haste: it rests longer than it works. Call it at most once, after Open; it ends
// with Close.
func (l *Ledger) AutoPack() {
	l.wg.Go(func() {
		rest := map[string]time.Time{}
		t := time.NewTicker(packInterval)
		defer t.Stop()
		for {
			select {
			case <-l.run.Done():
				return
			case <-t.C:
			}
			if l.store.dial.hosting() != nil && l.Writable() == nil {
				l.autoPack(rest)
			}
		}
	})
}

// autoPack packs what does not rest. It notes what shall.
func (l *Ledger) autoPack(rest map[string]time.Time) {
	due := l.packable(func(s string) bool { return time.Now().After(rest[s]) })
	if len(due) == 0 {
		return
	}
	lock, err := lockFile(l.dir().packLock(), true)
	if errors.Is(err, errLocked) {
		return // somebody else packs
	}
	if err != nil {
		l.opts.Logger.Warn("packing output", "error", err)
		return
	}
	defer func() { _ = lock.Close() }()
	for _, s := range due {
		before, after, err := l.packSegment(l.run, s, true)
		switch {
		case err == nil:
			l.opts.Logger.Info("packed output", "segment", s, "before", before, "after", after)
			continue
		case l.run.Err() != nil:
			return
		case !errors.Is(err, errUnsettled) && !errors.Is(err, errDense) && l.dir().counts(s):
			l.opts.Logger.Warn("packing output", "segment", s, "error", err)
		}
		rest[s] = time.Now().Add(packPause)
	}
}

// Pack seals the active segment and packs every sealed one whose executions have
// all settled. What is read meanwhile, by whomever, is the same as before.
func (l *Ledger) Pack(ctx context.Context) (PackReport, error) {
	r := PackReport{Segments: []string{}}
	if l.opts.ReadOnly {
		return r, ErrReadOnly
	}
	lock, err := l.lockPack(ctx)
	if err != nil {
		return r, err
	}
	defer func() { _ = lock.Close() }()
	if err := l.order(ctx, orderRoll, ""); err != nil {
		return r, fmt.Errorf("packing: %w", err)
	}
	for _, s := range l.packable(func(string) bool { return true }) {
		before, after, err := l.packPatiently(ctx, s)
		switch {
		case errors.Is(err, errUnsettled):
			r.Waiting = append(r.Waiting, s)
		case errors.Is(err, errDense):
			r.Dense = append(r.Dense, s)
		case err != nil && !l.dir().counts(s): // it was pruned meanwhile
		case err != nil:
			return r, fmt.Errorf("packing segment %s: %w", s, err)
		default:
			r.Segments = append(r.Segments, s)
			r.Before += before
			r.After += after
		}
	}
	return r, nil
}

// packPatiently packs a segment, and again when the host was replaced meanwhile:
// the next one drops a twin that is not finished.
func (l *Ledger) packPatiently(ctx context.Context, segment string) (before, after int64, err error) {
	for {
		hosts := l.store.nc.Stats().Reconnects
		before, after, err = l.packSegment(ctx, segment, false)
		replaced := l.store.nc.Stats().Reconnects != hosts || !l.store.nc.IsConnected()
		if err == nil || errors.Is(err, errUnsettled) || errors.Is(err, errDense) || !replaced || ctx.Err() != nil || !l.dir().counts(segment) {
			return before, after, err
		}
		pause(ctx, passPause)
	}
}

// lockPack waits until nobody else packs.
func (l *Ledger) lockPack(ctx context.Context) (*os.File, error) {
	for {
		lock, err := lockFile(l.dir().packLock(), true)
		if !errors.Is(err, errLocked) || ctx.Err() != nil {
			return lock, err
		}
		pause(ctx, passPause)
	}
}

// packable lists the sealed raw segments that may gain.
func (l *Ledger) packable(due func(string) bool) []string {
	m, err := l.dir().readMarker()
	if err != nil {
		return nil
	}
	var list []string
	segs := m.segments()
	for _, s := range segs[:max(len(segs)-1, 0)] {
		if !isPacked(s) && !slices.Contains(m.Dense, s) && due(s) {
			list = append(list, s)
		}
	}
	return list
}

// packSegment packs one segment and returns its size before and after. The
// caller holds the pack lock.
func (l *Ledger) packSegment(ctx context.Context, segment string, gentle bool) (before, after int64, err error) {
	settled, err := l.settledIn(ctx, segment)
	if err != nil {
		return 0, 0, l.stays(ctx, segment, err)
	}
	state, err := l.streamState(ctx, segment)
	if err != nil {
		return 0, 0, err
	}
	before = int64(state.Bytes)
	if free, err := freeBytes(l.opts.Dir); err == nil && free-before < l.opts.FreeFloor {
		return before, 0, ErrNoSpace
	}
	if err := l.order(ctx, orderTwin, segment); err != nil {
		return before, 0, fmt.Errorf("making the twin: %w", err)
	}
	atPackStep("made")
	if after, err = l.fillTwin(ctx, segment, settled, gentle); err == nil && after > before-before/packGain {
		err = errDense
	}
	if err != nil {
		err = l.stays(ctx, segment, err)
		return before, after, errors.Join(err, l.dropTwin(ctx, segment))
	}
	atPackStep("verified")
	if err := l.order(ctx, orderSwap, segment); err != nil {
		return before, after, errors.Join(err, l.dropTwin(ctx, segment))
	}
	return before, after, nil
}

// stays has the host remember a segment that no later pack would change.
func (l *Ledger) stays(ctx context.Context, segment string, err error) error {
	if errors.Is(err, errDense) || errors.Is(err, errUnsound) {
		return errors.Join(err, l.order(ctx, orderDense, segment))
	}
	return err
}

func (l *Ledger) dropTwin(ctx context.Context, segment string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	return l.order(ctx, orderDrop, segment)
}

// settledIn is the settlements of a segment's executions. It fails unless all
// have settled.
func (l *Ledger) settledIn(ctx context.Context, segment string) (map[string]events.Settled, error) {
	list, err := l.executions(ctx, segment)
	if err != nil {
		return nil, err
	}
	if len(list) > maxPackExecutions {
		return nil, errDense
	}
	settled := make(map[string]events.Settled, len(list))
	for _, f := range list {
		r, err := l.last(ctx, lifecycleStream, events.Subject(f.Session, events.ClassExecution, f.ID, events.KindSettled))
		if errors.Is(err, errNoMessage) {
			return nil, errUnsettled
		}
		if err != nil {
			return nil, err
		}
		e, err := decode(r)
		if err != nil {
			return nil, err
		}
		if b, ok := e.Body.(events.Settled); ok {
			settled[f.Session+"."+f.ID] = b
		}
	}
	return settled, nil
}

// fillTwin writes the twin of a segment, reads both again from the store, and
// returns the twin's size if they hold the same.
func (l *Ledger) fillTwin(ctx context.Context, segment string, settled map[string]events.Settled, gentle bool) (int64, error) {
	read := contents{}
	p := newPacker(ctx, l, twinName(segment), gentle)
	_, err := l.readStill(ctx, segment, func(r Raw, e events.Event) error {
		defer p.rest(ctx)
		key := about(r.Subject)
		return errors.Join(read.add(key, r, e), p.add(ctx, key, r, e))
	})
	if err != nil {
		return 0, err
	}
	if err := p.flushAll(ctx); err != nil {
		return 0, err
	}
	atPackStep("written")
	if !l.dir().counts(segment) { // it was pruned while it was read: the twin may lack its end
		return 0, errMoved
	}
	packed := contents{}
	after, err := l.readStill(ctx, twinName(segment), func(r Raw, e events.Event) error {
		defer p.rest(ctx)
		return packed.add(about(r.Subject), r, e)
	})
	return after, errors.Join(err, read.equal(packed), read.match(settled))
}

// readStill hands on the messages of a stream that nobody writes to, each with the
// event that it is, if it is one, and returns the stream's size. It reads the
// blocks as of a ledger at rest: the server would load each, keep it for a while
// and make every message anew, and all of that is taken from the calls beside it.
// It fails unless it came upon every message that the server knows.
func (l *Ledger) readStill(ctx context.Context, name string, fn func(Raw, events.Event) error) (size int64, err error) {
	state, err := l.streamState(ctx, name)
	if err != nil {
		return 0, err
	}
	list, err := stillBlocks(l.dir().stream(name))
	if err != nil {
		return 0, l.unlessMoved(name, fmt.Errorf("listing the blocks of %s: %w", name, err))
	}
	r, n := newRest(l.dir(), nil), uint64(0)
	next, err := r.records(ctx, list, name, state.FirstSeq, func(rec []byte) error {
		n++
		m, err := message(rec)
		if err != nil || m.Subject == segmentMark {
			return err
		}
		e, err := decode(m)
		if err != nil {
			e = events.Event{} // it stays what it is
		}
		return fn(m, e)
	})
	if errors.Is(err, errStirred) {
		err = errors.New("a block is damaged, or not what it was")
	}
	if err == nil && (n != state.Msgs || next != state.LastSeq+1) {
		err = fmt.Errorf("%d messages up to %d are in the blocks, and %d up to %d in the stream", n, next-1, state.Msgs, state.LastSeq)
	}
	if err != nil {
		return 0, l.unlessMoved(name, fmt.Errorf("reading the blocks of %s: %w", name, err))
	}
	return int64(state.Bytes), nil
}

// stillBlocks is the blocks in the directory of a stream, as they are now.
func stillBlocks(dir string) ([]restBlock, error) {
	paths, err := blocks(dir)
	if err != nil {
		return nil, err
	}
	list := make([]restBlock, len(paths))
	for i, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		list[i] = restBlock{path: p, size: st.Size()}
	}
	return list, nil
}

func (l *Ledger) streamState(ctx context.Context, name string) (jetstream.StreamState, error) {
	s, err := patiently(ctx, l, func(ctx context.Context) (jetstream.Stream, error) {
		return l.store.js.Stream(ctx, name)
	})
	if err != nil {
		return jetstream.StreamState{}, fmt.Errorf("asking for the size of %s: %w", name, err)
	}
	return s.CachedInfo().State, nil
}

// makeTwin makes an empty twin of a sealed raw segment, in place of what an
// earlier pack left.
func (h *host) makeTwin(ctx context.Context, segment string) error {
	if s, ok := h.sealed(segment); !ok || s != segment || isPacked(segment) {
		return fmt.Errorf("%s is no sealed segment that can be packed", segment)
	}
	if err := sealStream(ctx, h.js, segment); err != nil {
		return err
	}
	if err := h.deleteTwin(ctx, segment); err != nil {
		return err
	}
	return h.makeStream(ctx, twinName(segment))
}

// deleteTwin deletes a twin that does not count.
func (h *host) deleteTwin(ctx context.Context, segment string) error {
	twin := twinName(segment)
	if !isPacked(twin) || h.marker.has(twin) {
		return nil
	}
	return h.deleteStream(ctx, twin)
}

// swap lets a complete twin take the place of its segment.
func (h *host) swap(ctx context.Context, segment string) error {
	twin := twinName(segment)
	if isPacked(segment) || !h.marker.has(segment) && !h.marker.has(twin) {
		return fmt.Errorf("%s was deleted while it was packed", segment)
	}
	if !h.marker.has(twin) { // else it is asked again, after a takeover
		if err := sealStream(ctx, h.js, twin); err != nil {
			return err
		}
		if err := h.syncStream(twin); err != nil {
			return fmt.Errorf("syncing stream %s: %w", twin, err)
		}
		atPackStep("sealed")
		err := h.mark(func(m *marker) {
			m.drop(segment)
			m.Streams = append(m.Streams, twin)
		})
		if err != nil {
			return err
		}
	}
	atPackStep("marked")
	err := h.deleteStream(ctx, segment)
	atPackStep("deleted")
	return err
}

// keepRaw remembers that packing does not make a segment smaller.
func (h *host) keepRaw(segment string) error {
	if !h.marker.has(segment) || slices.Contains(h.marker.Dense, segment) {
		return nil
	}
	return h.mark(func(m *marker) { m.Dense = append(m.Dense, segment) })
}
