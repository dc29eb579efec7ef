package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The accounts. Readers live in one of their own: permissions inside one
// account do not stop a reader, since the server publishes replies unchecked.
const (
	ledgerAccount  = "LEDGER"
	readersAccount = "READERS"
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
		return err
	}
	in, err := inspect(h.dir, h.marker, h.o.Sync == SyncRelaxed)
	if err != nil {
		return err
	}
	if err := in.err(); err != nil {
		return err
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

// startServer starts the embedded server on the port of last time, or on
// another when someone else has it now, and connects to it.
func (h *host) startServer() error {
	err := errPort
	if free(h.creds.Port) { // asked first: the server opens the store before it listens
		err = h.listen(h.creds.Port)
	}
	if errors.Is(err, errPort) {
		h.o.Logger.Warn("port of the ledger is taken, choosing another", "port", h.creds.Port)
		err = h.listen(0)
	}
	if err != nil {
		return err
	}
	if port := h.ns.Addr().(*net.TCPAddr).Port; port != h.creds.Port {
		h.creds.Port = port
		if err := h.dir.writeCredentials(h.creds); err != nil {
			return err
		}
	}
	pub, err := h.creds.publicKey()
	if err != nil {
		return err
	}
	h.nc, err = nats.Connect("", nats.InProcessServer(h.ns), nats.Nkey(pub, h.creds.sign), nats.NoReconnect())
	if err != nil {
		return fmt.Errorf("connecting to the embedded server: %w", err)
	}
	if h.js, err = jetstream.New(h.nc); err != nil {
		return err
	}
	_, err = h.nc.Subscribe(hostRoot+"*", func(m *nats.Msg) {
		select {
		case h.orders <- m:
		default: // the keeper is busy: it is asked again
		}
	})
	return err
}

// free reports whether a port can be listened on.
func free(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	return err == nil && l.Close() == nil
}

// errPort says that the port cannot be listened on.
var errPort = errors.New("port is taken")

func (h *host) listen(port int) error {
	opts, err := serverOptions(h.o, h.creds)
	if err != nil {
		return err
	}
	opts.Port = port
	if port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	ns, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("making the embedded server: %w", err)
	}
	log := &serverLog{log: h.o.Logger}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start() // returns once it listens
	if ns.Addr() != nil {
		h.ns = ns
		return nil
	}
	shutdown(ns)
	if port != 0 && log.listenFailed() {
		return errPort
	}
	return fmt.Errorf("starting the embedded server: %s", log.fatal())
}

func (h *host) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", h.creds.Port) }

// stopServer ends the server and waits until it has written its indexes.
func (h *host) stopServer() {
	if h.nc != nil {
		h.nc.Close()
	}
	if h.ns != nil {
		shutdown(h.ns)
	}
	h.nc, h.ns = nil, nil
}

func shutdown(ns *server.Server) {
	ns.Shutdown()
	ns.WaitForShutdown()
}

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
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := writeLeft(h.dir, h.marker); err != nil { // a reader looks for itself
		h.o.Logger.Debug("noting the blocks", "error", err)
	}
	return errors.Join(err, os.Remove(h.dir.running()))
}

// serverOptions configures the embedded server: loopback only, no signals, no
// output, JetStream in the store, readers apart from the ledger.
func serverOptions(o Options, c credentials) (*server.Options, error) {
	pub, err := c.publicKey()
	if err != nil {
		return nil, err
	}
	opts := &server.Options{}
	if err := opts.ProcessConfigString(accountsConfig(pub, c)); err != nil {
		return nil, fmt.Errorf("configuring the embedded server: %w", err)
	}
	opts.ServerName = "yieldlog"
	opts.Host = "127.0.0.1"
	opts.NoSigs = true
	opts.NoLog = true
	opts.DisableJetStreamBanner = true
	opts.MaxPayload = maxMessage + 64<<10 // the message and its headers
	opts.MaxPending = 256 << 20
	opts.AuthTimeout = 5
	opts.JetStream = true
	opts.StoreDir = stateDir(o.Dir).store()
	opts.JetStreamMaxMemory = 64 << 20
	opts.JetStreamMaxStore = 1 << 40
	if o.Sync == SyncAlways {
		opts.SyncAlways = true
	} else {
		opts.SyncInterval = time.Second
	}
	return opts, nil
}

// readerAPI is what readers may ask for: to describe streams and to get
// messages. Creating consumers is left out: one can deliver anywhere.
var readerAPI = []struct{ subject, kind string }{
	{"$JS.API.INFO", ""},
	{"$JS.API.STREAM.NAMES", ""},
	{"$JS.API.STREAM.INFO.*", ""},
	{"$JS.API.DIRECT.GET.*", ", response_type: stream"},
	{"$JS.API.DIRECT.GET.*.>", ", response_type: stream"},
}

func accountsConfig(writer string, c credentials) string {
	exports := []string{`{stream: "yieldlog.>", accounts: [READERS]}`, fmt.Sprintf("{service: %s}", nowhere)}
	imports := []string{`{stream: {account: LEDGER, subject: "yieldlog.>"}}`}
	var publish, sinks []string
	for _, a := range readerAPI {
		exports = append(exports, fmt.Sprintf(`{service: %q, accounts: [READERS]%s}`, a.subject, a.kind))
		imports = append(imports, fmt.Sprintf(`{service: {account: LEDGER, subject: %q}}`, a.subject))
		publish = append(publish, strconv.Quote(a.subject))
	}
	for _, s := range c.Sinks {
		sinks = append(sinks, s.account(c))
	}
	list := func(s []string) string { return strings.Join(s, ", ") }
	return fmt.Sprintf(`
system_account: SYS
accounts {
  SYS {}
  %s { jetstream: enabled, users: [{nkey: %s}], exports: [%s] }
  %s {
    users: [{user: %s, password: %q, permissions: {publish: {allow: [%s]}, subscribe: {allow: ["yieldlog.>", "_INBOX.>"]}}}]
    imports: [%s]
  }
  %s
}`, ledgerAccount, writer, list(exports), readersAccount, readerUser, c.ReaderPassword, list(publish), list(imports), strings.Join(sinks, "\n  "))
}

// serverLog passes the server's warnings on and remembers why it could not
// start. The server calls it from many goroutines.
type serverLog struct {
	log  *slog.Logger
	mu   sync.Mutex
	last string
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

// Warnf leaves out what is so on purpose: the credentials are random and stay in
// memory and in a 0600 file, so hashing them would only cost every connection.
func (l *serverLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		return
	}
	l.log.Warn(fmt.Sprintf(format, v...))
}

// Fatalf is called where a server of its own would end the process.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
}

func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *serverLog) listenFailed() bool {
	return strings.HasPrefix(l.fatal(), "Error listening on port")
}
