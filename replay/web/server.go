package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look"
)

// Options say what the page shows, and what it may do.
type Options struct {
	Ledger *ledger.Ledger
	// Stop asks the process of a session to end an execution, or with an empty
	// execution everything of an owner. Nil: the page has no stop.
	Stop func(ctx context.Context, session, owner, execution string) error
	// Logger takes what went wrong; nil discards it.
	Logger *slog.Logger
}

// Server is the page on one listener. Its methods are safe for concurrent use.
type Server struct {
	opts        Options
	listener    net.Listener
	gate        *gate
	live        *look.Scene
	past        *look.Past
	transcripts *transcripts
}

// New returns the page on a listener, which belongs to the page from now on.
// The listener must be on loopback: the page is for the people of this machine.
func New(listener net.Listener, o Options) (*Server, error) {
	if a, ok := listener.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return nil, fmt.Errorf("the page listens on loopback only, not on %s", listener.Addr())
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		opts: o, listener: listener, gate: newGate(listener.Addr()),
		live: look.NewScene(), past: look.NewPast(o.Ledger), transcripts: newTranscripts(o.Ledger),
	}, nil
}

// Link is an address that lets one browser in, once.
func (s *Server) Link() string {
	return "http://" + s.listener.Addr().String() + "/?token=" + s.gate.token()
}

// Run serves until ctx ends, which is no error.
func (s *Server) Run(ctx context.Context) error {
	g, running := errgroup.WithContext(ctx)
	srv := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return running },
		ErrorLog:    slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	g.Go(func() error { return s.live.Live(running, s.opts.Ledger, events.Filter{}) })
	g.Go(func() error {
		if err := srv.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving the page: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-running.Done()
		// Open pages end with running; Close does not wait for them.
		return srv.Close()
	})
	err := g.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Handler is the page behind its gate.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", assetHandler())
	s.page(mux, "/{$}", "now", s.now)
	s.page(mux, "/sessions", "sessions", s.sessions)
	s.page(mux, "/s/{session}", "session", s.session)
	s.page(mux, "/x/{execution}", "execution", s.execution)
	s.page(mux, "/x/{execution}/play", "play", s.play)
	mux.HandleFunc("GET /x/{execution}/cast", s.cast)
	mux.HandleFunc("GET /x/{execution}/raw", s.raw)
	mux.HandleFunc("POST /x/{execution}/stop", s.stopExecution)
	mux.HandleFunc("POST /s/{session}/stop", s.stopOwner)
	return s.gate.guard(mux)
}

// errNone says that what the address names is not in the ledger, or was not
// there at the moment that is looked at.
var errNone = errors.New("there is no such thing in the ledger at this moment")

// fail answers with an error page. What went wrong inside is logged, and told
// without detail.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody is there
	}
	code, text := http.StatusInternalServerError, "The page could not be made; the terminal where it runs says why."
	if errors.Is(err, errNone) {
		code, text = http.StatusNotFound, "There is no such thing in the ledger at this moment."
	} else {
		s.opts.Logger.Error("making a page", "path", r.URL.Path, "error", err)
	}
	s.write(w, code, "problem", s.frame(parseQuery("/", r.URL.Query()), problem{Text: text}))
}

type problem struct{ Text string }

func (problem) Title() string { return "Not found" }
