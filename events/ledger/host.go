package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// host is the embedded server of the process that holds the host lock.
type host struct {
	o    Options
	dir  stateDir
	lock *hostLock // reachable as long as the server runs: a finalizer would release it
	// removed reports whether the state directory is another one by now, or none.
	removed func() bool
	creds   credentials
	ns      *server.Server
	nc      *nats.Conn // the host's own, for the streams
	js      jetstream.JetStream
	marker  *marker // belongs to the keeper
	noter   noter   // and this
	// orders takes what the processes of the ledger ask of the host.
	orders chan<- *nats.Msg
	// mended has the streams with blocks that were mended since the open, as strings.
	mended sync.Map
	// cleanup waits for the removal of the copies that were set aside, and of
	// what opening left in memory.
	cleanup sync.WaitGroup
}

// openHost opens the store with care and starts the server on it. The caller
// holds the lock; on failure it still does.
func openHost(ctx context.Context, o Options, lock *hostLock, removed func() bool, orders chan<- *nats.Msg) (*host, error) {
	h := &host{o: o, dir: stateDir(o.Dir), lock: lock, removed: removed, orders: orders}
	if err := h.open(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *host) open(ctx context.Context) error {
	// A stale endpoint would send others to whoever has the port now.
	if err := os.Remove(h.dir.endpoint()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing stale endpoint: %w", err)
	}
	if err := finishOpens(h.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(h.dir.store(), 0o700); err != nil {
		return fmt.Errorf("making the store: %w", err)
	}
	var err error
	if h.creds, err = h.dir.ensureCredentials(); err != nil {
		return err
	}
	if h.marker, err = h.dir.readMarker(); err != nil {
		return untouched{err}
	}
	in, err := inspect(h.dir, h.marker, h.o.Sync == SyncRelaxed)
	if err != nil {
		return err
	}
	if err := errors.Join(in.err(), writable(h.dir, h.marker)); err != nil {
		return untouched{err}
	}
	aside, err := setAside(h.dir, in.names, in.torn)
	if err != nil {
		return err
	}
	if err := h.openChecked(ctx, in.names); err != nil {
		return h.refuse(err, aside)
	}
	if err := retire(aside); err != nil {
		return h.refuse(err, aside)
	}
	h.cleanup.Go(func() {
		removeRetired(h.dir)
		giveBack(h.dir)
	})
	// From here on sequences are given anew, should some have been lost.
	if err := os.Remove(h.dir.seen()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h.refuse(fmt.Errorf("removing what was noted of the streams: %w", err), "")
	}
	if err := h.offer(ctx); err != nil {
		return h.refuse(err, "")
	}
	return nil
}

// untouched is an error of an open that changed nothing.
type untouched struct{ error }

func (u untouched) Unwrap() error { return u.error }

// openChecked starts the server and checks that the streams are whole.
func (h *host) openChecked(ctx context.Context, names []string) error {
	if err := os.WriteFile(h.dir.running(), nil, 0o600); err != nil {
		return fmt.Errorf("marking the ledger as running: %w", err)
	}
	if err := removeUnborn(h.dir, h.marker); err != nil {
		return err
	}
	if err := h.startServer(); err != nil {
		return err
	}
	if err := h.reviveStreams(ctx, names); err != nil {
		return err
	}
	if err := checkStreams(ctx, h.js, h.marker, names); err != nil {
		return err
	}
	if err := h.adopt(names); err != nil {
		return err
	}
	return h.dropGivenUp(ctx)
}

// giveBack returns the memory of a long ledger that nobody needs any more: the
// server reads the index whole, and writes it whole. Left to the collector, that
// stays until as much again was used. It takes some tenths of a second.
func giveBack(d stateDir) {
	if st, err := os.Stat(indexFile(d.stream(lifecycleStream))); err == nil && st.Size() > longIndex {
		debug.FreeOSMemory()
	}
}

// longIndex is the size of an index, in bytes, that memory is given back for.
const longIndex = 16 << 20

// dropGivenUp deletes what a pack that was cut off left beside what counts.
func (h *host) dropGivenUp(ctx context.Context) error {
	found, err := streamFolders(h.dir)
	if err != nil {
		return err
	}
	for _, name := range found {
		if !givenUp(h.marker, name) {
			continue
		}
		if err := h.deleteStream(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// offer makes the missing streams of a new ledger, and tells the others where to
// connect.
func (h *host) offer(ctx context.Context) error {
	if err := h.ensureStreams(ctx); err != nil {
		return err
	}
	return h.writeEndpoint()
}

func (h *host) endpoint() endpoint {
	return endpoint{Version: 1, URL: h.url(), Port: h.creds.Port, PID: os.Getpid()}
}

func (h *host) writeEndpoint() error {
	if err := writeJSON(h.dir.endpoint(), h.endpoint(), false); err != nil {
		return fmt.Errorf("writing endpoint: %w", err)
	}
	return nil
}

// signpost puts back what others need to find this host, if somebody removed or
// spoiled it.
func (h *host) signpost() error {
	var ep endpoint
	err := readJSON(h.dir.endpoint(), &ep)
	_, keys := h.dir.readCredentials()
	ok := err == nil && ep == h.endpoint() || err != nil && !spoiled(err)
	if ok && !spoiled(keys) {
		return nil
	}
	h.o.Logger.Warn("the ledger's endpoint or credentials are put back: somebody changed them")
	if spoiled(keys) {
		if err := h.dir.writeCredentials(h.creds); err != nil {
			return err
		}
	}
	return h.writeEndpoint()
}

// spoiled reports whether an error of reading a file means that it is gone, or
// says something else.
func spoiled(err error) bool {
	unread := (*fs.PathError)(nil)
	return errors.Is(err, fs.ErrNotExist) || err != nil && !errors.As(err, &unread)
}

// refuse ends a failed open: the server stops and the streams are put back as
// they were. What the server made of damaged ones is kept.
func (h *host) refuse(cause error, aside string) error {
	h.stopServer()
	kept, err := putBack(h.dir, aside)
	if err != nil {
		return errors.Join(cause, fmt.Errorf("copies are in %s: %w", aside, err))
	}
	if kept == "" {
		return cause
	}
	if !errors.Is(cause, ErrDamaged) {
		return errors.Join(cause, os.RemoveAll(kept))
	}
	if in, _, err := inspectAll(h.dir); err == nil && len(in.faults) > 0 {
		cause = in.err() // it names the blocks
	}
	return fmt.Errorf("%w; the streams were put back as they were, what the server made of them is in %s", cause, kept)
}

// reviveStreams creates again a stream whose blocks are there but whose
// description is not: JetStream then recovers all of its events.
func (h *host) reviveStreams(ctx context.Context, names []string) error {
	for _, n := range names {
		_, err := h.js.Stream(ctx, n)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // checkStreams reports other errors
		}
		if _, err := os.Stat(h.dir.stream(n)); err != nil || !h.marker.has(n) {
			continue
		}
		if err := createStream(ctx, h.js, n, h.streamLimit(n)); err != nil {
			return damaged("the description of stream %s is missing, and it could not be made again: %v", n, err)
		}
		h.o.Logger.Warn("description of a stream was missing and was made again", "stream", n)
	}
	return nil
}

// adopt names in the marker what a crash left between creation and marking.
func (h *host) adopt(names []string) error {
	if len(names) == len(h.marker.Streams) {
		return nil
	}
	h.marker.Streams = names
	return h.dir.writeMarker(h.marker)
}

func (h *host) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", h.creds.Port) }

// close stops hosting in good order. The lock is released last, so that a
// successor finds the store at rest.
func (h *host) close() error {
	return errors.Join(h.stop(), h.lock.Close())
}

// stop ends the server in good order and keeps the lock.
func (h *host) stop() error {
	h.cleanup.Wait()
	h.noter.close()
	if h.removed() {
		h.stopServer()
		return nil
	}
	err := os.Remove(h.dir.endpoint())
	giveBack(h.dir) // the server makes the index in memory
	h.stopServer()
	h.dropMended()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := writeLeft(h.dir, h.marker); err != nil { // a reader looks for itself
		h.o.Logger.Debug("noting the blocks", "error", err)
	}
	return errors.Join(err, os.Remove(h.dir.running()))
}
