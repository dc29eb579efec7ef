package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yieldlog/yieldlog/events"
)

// store is the opened ledger below its events: a connection to the server that
// this process or another hosts, and the care for streams and disk. It owns one
// goroutine, the keeper, and while it hosts those of the server.
type store struct {
	// nc reconnects for ever, to whoever hosts.
	nc *nats.Conn
	js jetstream.JetStream

	o    Options
	dir  stateDir
	dial *dialer

	// reconnected holds a token after each reconnect, and grown when output may have
	// filled a block.
	reconnected, grown chan struct{}
	stored             atomic.Int64 // the bytes of output since then

	cancel context.CancelFunc
	done   sync.WaitGroup

	restarted time.Time // when the keeper last restarted the server
	seen      uint64    // the bytes of the active segment when the keeper last looked
	noted     time.Time // when the keeper last noted how far the streams are
	reported  time.Time // when [store.waits] last told the host

	mu      sync.Mutex
	current string                     // the segment that takes output, "" when it must be looked up
	waiting map[chan struct{}]struct{} // closed when the connection is lost
	before  func()                     // called before each attempt to reconnect
}

// openStore finds the host of the ledger or becomes it. The context bounds the
// opening, not the store.
func openStore(ctx context.Context, o Options) (*store, error) {
	dir := stateDir(o.Dir)
	if err := prepare(dir, o.ReadOnly); err != nil {
		return nil, err
	}
	was, err := os.Stat(string(dir))
	if err != nil {
		return nil, fmt.Errorf("looking at the state directory: %w", err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &store{
		o: o, dir: dir, cancel: cancel,
		dial:        &dialer{o: o, dir: dir, was: was, ctx: life, orders: make(chan *nats.Msg, 16)},
		reconnected: make(chan struct{}, 1),
		grown:       make(chan struct{}, 1),
		waiting:     map[chan struct{}]struct{}{},
	}
	nc, err := s.dial.connect(ctx, nats.CustomReconnectDelay(s.onReconnecting), nats.DisconnectErrHandler(s.onDisconnect), nats.ReconnectHandler(s.onReconnect))
	if err != nil {
		cancel()
		return nil, errors.Join(err, s.dial.close())
	}
	s.nc = nc
	if s.js, err = jetstream.New(nc); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.done.Go(func() { s.keep(life) })
	return s, nil
}

// prepare makes the state directory, for the user only. A read-only open makes
// nothing.
func prepare(dir stateDir, readOnly bool) error {
	if readOnly {
		_, err := os.Stat(dir.marker())
		if errors.Is(err, fs.ErrNotExist) {
			_, err = os.Stat(dir.stream(lifecycleStream)) // a host makes the list anew
		}
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s", ErrNoLedger, string(dir))
		}
		return err
	}
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return fmt.Errorf("making the state directory: %w", err)
	}
	return nil
}

// close ends the connection, and the server when this process hosts it: another
// process that uses the ledger takes over.
func (s *store) close() error {
	s.cancel()
	s.done.Wait()
	s.nc.Close()
	return s.dial.close()
}

// ingest is what goes before the subject of an event of the class to publish
// it, if there is a stream to take it. Output stays with a segment until
// [store.lookAgain] says that the segment refused.
func (s *store) ingest(c events.Class) (string, bool) {
	if c != events.ClassOutput {
		return ingestPrefix(lifecycleStream), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == "" {
		segs := s.dir.segments()
		if len(segs) == 0 {
			return "", false
		}
		s.current = segs[len(segs)-1]
	}
	return ingestPrefix(s.current), true
}

// lookAgain says that the current segment refused: there may be a newer one.
func (s *store) lookAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = ""
}

// onLost is a channel that is closed when the connection is lost. forget lets
// go of it.
func (s *store) onLost() (lost <-chan struct{}, forget func()) {
	c := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[c] = struct{}{}
	return c, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, c)
	}
}

func (s *store) onDisconnect(_ *nats.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.waiting {
		close(c)
	}
	clear(s.waiting)
	if err != nil {
		s.o.Logger.Info("lost the ledger's host", "error", err)
	}
}

// beforeReconnect has fn called before each attempt to reconnect, while nothing
// can be published.
func (s *store) beforeReconnect(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fn
}

// onReconnecting is the wait before an attempt to reconnect. NATS calls it
// before every attempt, with no connection and without its lock.
func (s *store) onReconnecting(attempts int) time.Duration {
	s.mu.Lock()
	fn := s.before
	s.mu.Unlock()
	if fn != nil {
		fn()
	}
	wait := reconnectWait
	if attempts > reconnectSoon {
		wait = reconnectLater
	}
	return wait + rand.N(wait)
}

func (s *store) onReconnect(*nats.Conn) {
	select {
	case s.reconnected <- struct{}{}:
	default: // a token waits already
	}
}
