package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/replay/look"
)

// view is what a page shows in its middle.
type view interface{ Title() string }

// A builder makes a view of what an address asks for.
type builder func(ctx context.Context, r *http.Request, q Query) (view, error)

// frame is what stands around every view.
type frame struct {
	Q    Query
	View view
	// Live says that the view changes by itself.
	Live bool
	// Last is the newest sequence, Seq the one that is looked at, Moment its time.
	Last, Seq uint64
	Moment    time.Time
	Now       time.Time
	// Warning is shown on every page, or "".
	Warning string
}

// page registers a view under its address, and its changes under /live.
func (s *Server) page(mux *http.ServeMux, pattern, name string, build builder) {
	mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
		s.catchUp(r.Context())
		q := s.asked(r.URL.Path, r)
		v, err := build(r.Context(), r, q)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.write(w, http.StatusOK, name, s.frame(q, v))
	})
	mux.HandleFunc("GET /live"+pattern, func(w http.ResponseWriter, r *http.Request) {
		q := s.asked(strings.TrimPrefix(r.URL.Path, "/live"), r)
		s.stream(w, r, func() ([]byte, error) {
			v, err := build(r.Context(), r, q)
			if err != nil {
				return nil, err
			}
			return render(name, "view", s.frame(q, v))
		})
	})
}

// patience is how long a page waits to show what was appended before it was
// asked for. What is later comes as a change.
const patience = 100 * time.Millisecond

// asked is the query of a request. The newest moment is now.
func (s *Server) asked(path string, r *http.Request) Query {
	q := parseQuery(path, r.URL.Query())
	if q.At >= s.live.Seq() {
		q.At = 0
	}
	return q
}

func (s *Server) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if last, err := s.opts.Ledger.LastSeq(ctx); err == nil {
		_ = s.live.WaitFor(ctx, last) // what is not there in time comes later
	}
}

func (s *Server) frame(q Query, v view) frame {
	f := frame{Q: q, View: v, Live: q.At == 0 && !q.Deep, Now: time.Now(), Last: s.live.Seq(), Seq: q.At}
	s.live.View(func() { f.Moment = s.live.Moment() })
	if q.At > 0 && q.At < f.Last {
		_ = s.past.At(context.Background(), q.At, func(sc *look.Scene) error { // the builder was here: it is kept
			f.Moment = sc.Moment()
			return nil
		})
	} else {
		f.Seq = f.Last
	}
	if since := s.opts.Ledger.StalledSince(); !since.IsZero() {
		f.Warning = "The ledger has not answered for " + look.Duration(time.Since(since)) + ": running commands wait."
	}
	return f
}

// scene hands the scene that the query asks for to visit, which must not block.
func (s *Server) scene(ctx context.Context, q Query, visit func(sc *look.Scene, now time.Time)) error {
	if q.At == 0 {
		s.live.View(func() { visit(s.live, time.Now()) })
		return nil
	}
	return s.past.At(ctx, min(q.At, max(s.live.Seq(), 1)), func(sc *look.Scene) error {
		sc.View(func() { visit(sc, sc.Moment()) })
		return nil
	})
}

func (s *Server) write(w http.ResponseWriter, code int, name string, f frame) {
	page, err := render(name, "page", f)
	if err != nil {
		s.opts.Logger.Error("making a page", "page", name, "error", err)
		http.Error(w, "The page could not be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(page) // nobody is left to tell
}

// The pace of changes: at most one in changePace, and a page that is costly to
// make comes less often, so that it takes at most a fifth of the time.
const (
	changePace = 250 * time.Millisecond
	restFactor = 4
	// keepAlive is the pause after which a comment shows that we are there.
	keepAlive = 20 * time.Second
)

// stream sends a view whenever it has changed, until the browser leaves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, make func() ([]byte, error)) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	var last [sha256.Size]byte
	for {
		changed := s.live.Changed()
		began := time.Now()
		page, err := make()
		if err != nil {
			s.opts.Logger.Debug("following a page", "path", r.URL.Path, "error", err)
			return
		}
		if sum := sha256.Sum256(page); sum != last {
			last = sum
			if err := sendEvent(w, "view", page); err != nil || rc.Flush() != nil {
				return
			}
		}
		rest := max(changePace, restFactor*time.Since(began))
		if !s.waitChange(r.Context(), w, rc, changed, rest) {
			return
		}
	}
}

// waitChange returns true at the first change after a rest, and false when the
// browser has gone.
func (s *Server) waitChange(ctx context.Context, w io.Writer, rc *http.ResponseController, changed <-chan struct{}, rest time.Duration) bool {
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return false
	}
	for {
		select {
		case <-changed:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(keepAlive):
			if _, err := io.WriteString(w, ": here\n\n"); err != nil || rc.Flush() != nil {
				return false
			}
		}
	}
}

// sendEvent writes one server-sent event.
func sendEvent(w io.Writer, name string, data []byte) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", name)
	for line := range bytes.Lines(data) {
		b.WriteString("data: ")
		b.Write(bytes.TrimRight(line, "\r\n"))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}
