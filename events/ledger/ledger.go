package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/yieldlog/yieldlog/events"
)

// Sync says when an append is acknowledged.
type Sync string

// The sync settings. Always acknowledges after fsync: an event survives a power
// cut. Relaxed acknowledges after write: it survives the death of every
// process, but a power cut may take the last moments.
const (
	SyncAlways  Sync = ""
	SyncRelaxed Sync = "relaxed"
)

// Options say which ledger to open, and its limits. Sizes are in bytes.
type Options struct {
	// Dir is the state directory. It is created when it is not there.
	Dir string
	// Sync is when an append is acknowledged; the zero value is the durable one.
	Sync Sync
	// MaxBytes bounds the ledger on disk; 0 means 10 GiB.
	MaxBytes int64
	// SegmentBytes is the size at which an output segment is sealed; 0
	// means 256 MiB, or an eighth of MaxBytes if that is less.
	SegmentBytes int64
	// FreeFloor is the free disk space below which new work is refused; 0 means 256 MiB.
	FreeFloor int64
	// ReadOnly opens an existing ledger without appending to it.
	ReadOnly bool
	// Logger takes what an operator should know; nil discards it.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.MaxBytes == 0 {
		o.MaxBytes = 10 << 30
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = min(256<<20, max(o.MaxBytes/8, 1<<20))
	}
	if o.FreeFloor == 0 {
		o.FreeFloor = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Ledger is one open ledger. Its methods are safe for concurrent use.
type Ledger struct {
	opts Options
	// store is nil while the ledger is read at rest.
	store     *store
	atRest    atomic.Pointer[rest]
	waking    sync.Mutex
	lifecycle *outbox
	encoders  *semaphore.Weighted // the places of chunks that are being compressed
	called    atomic.Int64        // when the newest lifecycle event came, in nanoseconds since 1970
	encoding  sync.WaitGroup
	output    *outbox
	chain     chain
	positions positions
	tally     tally

	unreadable unreadable

	mu     sync.Mutex
	taps   map[int]func(events.Event)
	tapSeq int

	run  context.Context // the life of the goroutines that the ledger owns
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Open opens the ledger of a state directory: it hosts the server, or joins the
// process that does. For reading alone, and if nobody hosts, it does neither
// before it has to. The error says what to do when the ledger cannot be opened.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	l := &Ledger{opts: o.withDefaults(), encoders: semaphore.NewWeighted(maxEncoders), taps: map[int]func(events.Event){}}
	l.run, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := l.open(ctx); err != nil {
		l.stop()
		if l.store != nil {
			err = errors.Join(err, l.store.close())
		}
		return nil, fmt.Errorf("opening the ledger in %s: %w", o.Dir, err)
	}
	return l, nil
}

func (l *Ledger) open(ctx context.Context) (err error) {
	if l.opts.ReadOnly {
		err = l.openReading(ctx)
	} else {
		l.store, err = openStore(ctx, l.opts)
	}
	if err != nil {
		return err
	}
	if l.lifecycle, err = newOutbox(l, maxLifecycleQueue, maxLifecycleInFlight); err != nil {
		return err
	}
	if l.output, err = newOutbox(l, maxOutputQueue, maxOutputInFlight); err != nil || l.opts.ReadOnly {
		return err
	}
	l.lifecycle.behind, l.output.ahead = l.output, l.lifecycle
	l.store.beforeReconnect(func() {
		l.lifecycle.pause()
		l.output.pause()
	})
	l.wg.Go(func() { l.watch(l.run) })
	return nil
}

// dyingMost bounds the wait for a host that was killed: it holds its locks until
// the kernel has taken it apart, which takes a while where its memory is large.
const dyingMost = time.Second

// openReading opens the ledger at rest, or its store when it is not.
func (l *Ledger) openReading(ctx context.Context) error {
	if err := prepare(l.dir(), true); err != nil {
		return err
	}
	r, err := openRest(l.dir())
	dies := false
	for until := time.Now().Add(dyingMost); r == nil && err == nil && time.Now().Before(until); {
		if dies = l.dir().hostDies(); !dies {
			break
		}
		pause(ctx, 5*time.Millisecond)
		r, err = openRest(l.dir())
	}
	if err != nil {
		return err
	}
	if r == nil && dies { // it hangs, and its blocks can be read all the same
		r, _ = restNow(l.dir()) // what is amiss there the host may be changing
	}
	if l.atRest.Store(r); r != nil {
		return nil
	}
	l.store, err = openStore(ctx, l.opts)
	return err
}

// Close waits up to ten seconds for what was posted, and closes. A host shuts
// its server down cleanly.
func (l *Ledger) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience(l.StalledSince(), time.Now()))
	defer cancel()
	err := errors.Join(l.lifecycle.drain(ctx), l.output.drain(ctx))
	l.stop()
	l.wg.Wait()
	l.lifecycle.close()
	l.output.close()
	l.encoding.Wait()
	l.waking.Lock()
	defer l.waking.Unlock()
	if l.store == nil {
		return err
	}
	return errors.Join(err, l.store.close())
}

func (l *Ledger) dir() stateDir { return stateDir(l.opts.Dir) }

// closePatience is how long a closing ledger waits for what is queued. A ledger
// that has not answered since then was waited for already.
func closePatience(stalled, now time.Time) time.Duration {
	const most, least = 10 * time.Second, time.Second
	if stalled.IsZero() {
		return most
	}
	return min(max(most-now.Sub(stalled), least), most)
}

// Append appends a lifecycle event and returns it once it is durable, with Seq,
// ID, Time and Prev filled in. It returns [ErrExists] when the event is of a
// unique kind and its subject is taken. When ctx ends first the event may still
// be appended.
func (l *Ledger) Append(ctx context.Context, e events.Event) (events.Event, error) {
	return l.AppendBeside(ctx, e, func() {})
}

// AppendBeside is [Ledger.Append], and runs beside once while the event is on its
// way, if it is.
func (l *Ledger) AppendBeside(ctx context.Context, e events.Event, beside func()) (events.Event, error) {
	type result struct {
		e   events.Event
		err error
	}
	c := make(chan result, 1)
	if err := l.Post(ctx, e, func(e events.Event, err error) { c <- result{e, err} }); err != nil {
		return e, err
	}
	runtime.Gosched() // to who sends it
	beside()
	select {
	case r := <-c:
		return r.e, r.err
	case <-ctx.Done():
		return e, fmt.Errorf("appending %s: %w", e.Kind(), l.store.dial.because(ctx.Err()))
	}
}

// Post queues an event and returns. It fills in ID, Time and Prev. Events of
// one session keep their order among lifecycle events, and those of one
// execution among output events. Post waits while the outbox is full. done, if
// not nil, is called exactly once, in order, when the event is durable or was
// refused; it must not wait.
func (l *Ledger) Post(ctx context.Context, e events.Event, done func(events.Event, error)) error {
	if l.opts.ReadOnly {
		return ErrReadOnly
	}
	if e.ID == "" {
		e.ID = events.NewID()
	}
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
		if e.Class() == events.ClassOutput { // nobody needs more, and each digit is stored
			e.Time = e.Time.Truncate(time.Microsecond)
		}
	}
	if done == nil {
		done = func(events.Event, error) {}
	}
	if e.Class() == events.ClassOutput {
		return l.postOutput(ctx, e, done)
	}
	return l.postLifecycle(ctx, e, done)
}

// Tap calls fn for each event that this process appended, once it is durable
// and before its done is called: lifecycle events in order, and output events
// in order, the two concurrently. fn must not wait.
func (l *Ledger) Tap(fn func(events.Event)) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tapSeq++
	id := l.tapSeq
	l.taps[id] = fn
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.taps, id)
	}
}

func (l *Ledger) tell(e events.Event) {
	l.mu.Lock()
	fns := make([]func(events.Event), 0, 4)
	for _, fn := range l.taps {
		fns = append(fns, fn)
	}
	l.mu.Unlock()
	for _, fn := range fns {
		fn(e)
	}
}

// Writable is nil when new work may start, and otherwise says why not:
// [ErrReadOnly], [ErrNoSpace] or [ErrUnavailable].
func (l *Ledger) Writable() error {
	if l.opts.ReadOnly {
		return ErrReadOnly
	}
	free, err := freeBytes(l.opts.Dir)
	_, gone := os.Stat(l.dir().stream(lifecycleStream))
	switch {
	case l.store.dial.removed(): // its files take appends still, and nobody finds them again
		return fmt.Errorf("%w: the state directory %s was removed; start yieldlog again", ErrUnavailable, l.opts.Dir)
	case errors.Is(gone, fs.ErrNotExist):
		return fmt.Errorf("%w: its files in %s were removed; put them back from a backup", ErrUnavailable, l.dir().streams())
	case err == nil && free < l.opts.FreeFloor:
		return fmt.Errorf("%w: %d MiB are free in %s and %d MiB must stay free; make room, or prune old output with `yieldlog prune`",
			ErrNoSpace, free>>20, l.opts.Dir, l.opts.FreeFloor>>20)
	}
	if since := l.StalledSince(); !since.IsZero() {
		return l.store.dial.because(fmt.Errorf("%w: appends have waited for %s; running commands wait, and go on when it answers again",
			ErrUnavailable, time.Since(since).Round(time.Second)))
	}
	return nil
}

// StalledSince is when the oldest append was sent that should have been
// acknowledged by now, and zero when appends go through.
func (l *Ledger) StalledSince() time.Time {
	a, b := l.lifecycle.stalledSince(), l.output.stalledSince()
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
