package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// openTimeout bounds how long an open waits for a host that is starting.
const openTimeout = 30 * time.Second

// reconnectWait is the least wait between attempts to reconnect, and the jitter.
// After reconnectSoon attempts, some three seconds, it is reconnectLater: the
// host may never come, as where the state directory was removed.
const (
	reconnectWait  = 4 * time.Millisecond
	reconnectSoon  = 500
	reconnectLater = 100 * time.Millisecond
)

// dialer is the custom dialer of a process's one connection. Each dial finds
// the host or becomes it: when the host dies, whoever gets the lock first opens
// the same store, and the connections of all processes find it there.
type dialer struct {
	o   Options
	dir stateDir
	was fs.FileInfo // the state directory at the open
	// nc is the connection that dials, once it exists.
	nc atomic.Pointer[nats.Conn]
	// orders goes to the host, if this process becomes it.
	orders chan *nats.Msg
	// trouble is why the last attempt to host failed, nil once there is a host.
	trouble atomic.Pointer[error]
	ctx     context.Context // the life of the store: Dial has no context of its own

	mu     sync.Mutex
	host   *host
	closed bool
	// refused is why this process must not host: the ledger is damaged, and another
	// attempt would make copies of it again.
	refused error
	// failed is why it could not, and hostAfter when it may try again.
	failed    error
	hostAfter time.Time
}

// hostPause is the wait after a failure to host. After damage was found it is
// longer, by repairPause and by ten times as long as it took to find: somebody has to repair it.
const (
	hostPause   = 500 * time.Millisecond
	repairPause = 2 * time.Second
)

// Dial returns a connection to the host's server. NATS calls it for the first
// connection and for each attempt to reconnect.
func (d *dialer) Dial(_, _ string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := d.dialLocked()
	if err != nil {
		return nil, err
	}
	d.trouble.Store(nil)
	return c, d.useKey()
}

func (d *dialer) dialLocked() (net.Conn, error) {
	if d.closed {
		return nil, net.ErrClosed
	}
	if d.host == nil && d.removed() {
		return nil, errRemoved // what has its place is another ledger
	}
	if err := d.tryHost(); err != nil && !errors.Is(err, errLocked) {
		return nil, err
	}
	if d.host != nil {
		return d.host.ns.InProcessConn()
	}
	return d.join()
}

var errRemoved = errors.New("the state directory was removed")

// removed reports whether the state directory was removed, be it that another
// has its place.
func (d *dialer) removed() bool {
	now, err := os.Stat(string(d.dir))
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(d.was, now)
}

// tryHost becomes the host if the lock is free. It fails with errLocked when
// another process hosts.
func (d *dialer) tryHost() error {
	if d.host != nil {
		return nil
	}
	lock, err := d.dir.lockHost(true)
	if err != nil {
		return err
	}
	if d.refused != nil {
		return errors.Join(d.refused, lock.Close())
	}
	if time.Now().Before(d.hostAfter) {
		return errors.Join(d.failed, lock.Close())
	}
	began := time.Now()
	h, err := openHost(d.ctx, d.o, lock, d.removed, d.orders)
	if err == nil {
		d.host = h
		return nil
	}
	return d.couldNot(err, lock, time.Since(began))
}

// couldNot notes why this process does not host, and lets another try.
func (d *dialer) couldNot(err error, lock *hostLock, took time.Duration) error {
	d.failed, d.hostAfter = err, time.Now().Add(hostPause)
	d.trouble.Store(&err)
	if errors.Is(err, ErrDamaged) {
		if errors.As(err, new(untouched)) {
			d.hostAfter = d.hostAfter.Add(repairPause + 10*took)
		} else {
			d.refused = err
		}
	}
	return errors.Join(err, lock.Close())
}

// because adds to an error why nobody hosts, if that is known. It does not wait.
func (d *dialer) because(err error) error {
	if why := d.trouble.Load(); why != nil {
		return fmt.Errorf("%w: %w", err, *why)
	}
	return err
}

// join connects to the host that the endpoint file names.
func (d *dialer) join() (net.Conn, error) {
	var ep endpoint
	if err := readJSON(d.dir.endpoint(), &ep); err != nil {
		return nil, fmt.Errorf("the host of the ledger is starting or stopping: %w", err)
	}
	return net.DialTimeout("tcp", loopback(ep.Port), 2*time.Second)
}

// useKey makes the connection log in with the present key: it may have been
// rotated. NATS holds the connection's lock while it dials, so that the field
// is ours to write.
func (d *dialer) useKey() error {
	nc := d.nc.Load()
	if nc == nil {
		return nil
	}
	c, err := d.dir.readCredentials()
	if err != nil {
		return err
	}
	pub, err := c.publicKey()
	if err != nil {
		return err
	}
	nc.Opts.Nkey = pub
	return nil
}

// connect makes the process's one connection. It waits for another host that is
// starting, up to [openTimeout].
func (d *dialer) connect(ctx context.Context, opts ...nats.Option) (*nats.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if err := d.settle(); err != nil {
			return nil, err
		}
		nc, err := d.attempt(opts)
		if err == nil {
			d.nc.Store(nc)
			return nc, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: waiting for its host%s: %w", ErrUnavailable, d.dir.hostPID(), err)
		case <-time.After(wait):
		}
	}
}

// settle decides who hosts: this process when the lock is free.
func (d *dialer) settle() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.tryHost(); !errors.Is(err, errLocked) {
		return err
	}
	return nil
}

// attempt connects once, with the key that the host made.
func (d *dialer) attempt(opts []nats.Option) (*nats.Conn, error) {
	c, err := d.dir.readCredentials()
	if err != nil {
		return nil, err
	}
	pub, err := c.publicKey()
	if err != nil {
		return nil, err
	}
	return nats.Connect("nats://127.0.0.1", slices.Concat(d.options(), opts, []nats.Option{nats.Nkey(pub, d.sign)})...)
}

// sign answers the server's challenge with the present key.
func (d *dialer) sign(nonce []byte) ([]byte, error) {
	c, err := d.dir.readCredentials()
	if err != nil {
		return nil, err
	}
	return c.sign(nonce)
}

// queueLength is how many messages a subscription holds for its reader. Each
// reserves room for them: 64 Ki, as is usual, made half a megabyte of garbage a read.
const queueLength = 2048

func (d *dialer) options() []nats.Option {
	return []nats.Option{
		nats.SyncQueueLen(queueLength),
		nats.Name(fmt.Sprintf("yieldlog %d", os.Getpid())),
		nats.SetCustomDialer(d),
		nats.SkipHostLookup(),
		nats.IgnoreDiscoveredServers(),
		nats.IgnoreAuthErrorAbort(),
		nats.Timeout(5 * time.Second),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), // a publish without a server fails at once: the outbox sends it again
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			d.o.Logger.Debug("ledger connection", "error", err)
		}),
		nats.PingInterval(20 * time.Second),
	}
}

// hosting is the host, if this process is it.
func (d *dialer) hosting() *host {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.host
}

// restart stops the server and opens it again, after a change to the host if
// one is given. The lock is kept, so nobody else takes over.
func (d *dialer) restart(change func(*host)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.host == nil {
		return nil
	}
	if d.removed() { // what has its place is another ledger
		return errRemoved
	}
	h, began := d.host, time.Now()
	err := h.stop()
	if change != nil {
		change(h)
	}
	if err := errors.Join(err, h.open(d.ctx)); err != nil {
		d.host = nil
		return d.couldNot(err, h.lock, time.Since(began))
	}
	return nil
}

// close stops hosting, if this process does; no dial succeeds afterwards.
func (d *dialer) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.host == nil {
		return nil
	}
	h := d.host
	d.host = nil
	return h.close()
}
