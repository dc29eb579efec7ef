package ledger

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	root := h.lock.root(h.dir)
	opts, err := serverOptions(h.o, root, h.creds)
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
	log := &serverLog{log: h.o.Logger, dir: h.dir, root: root, mended: &h.mended}
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

// serverOptions configures the embedded server: loopback only, no signals, no
// output, JetStream in the store, readers apart from the ledger.
func serverOptions(o Options, root stateDir, c credentials) (*server.Options, error) {
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
	opts.StoreDir = root.store()
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
	dir  stateDir
	root stateDir // dir by the name that the server knows
	// mended takes the streams of blocks that were mended.
	mended *sync.Map
	mu     sync.Mutex
	last   string
}

func (l *serverLog) Noticef(format string, v ...any) { l.log.Debug(l.text(format, v)) }
func (l *serverLog) Errorf(format string, v ...any)  { l.log.Error(l.text(format, v)) }
func (l *serverLog) Debugf(string, ...any)           {}
func (l *serverLog) Tracef(string, ...any)           {}

// Warnf leaves out what is so on purpose: the credentials are random and stay in
// memory and in a 0600 file, so hashing them would only cost every connection.
func (l *serverLog) Warnf(format string, v ...any) {
	if strings.HasPrefix(format, "Plaintext passwords detected") {
		return
	}
	l.mendFirst(format, v)
	l.log.Warn(l.text(format, v))
}

// Fatalf is called where a server of its own would end the process.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = l.text(format, v)
}

// text names files as people know them.
func (l *serverLog) text(format string, v []any) string {
	return strings.ReplaceAll(fmt.Sprintf(format, v...), string(l.root), string(l.dir))
}

func (l *serverLog) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *serverLog) listenFailed() bool {
	return strings.HasPrefix(l.fatal(), "Error listening on port")
}
