package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

// executionView is one execution with its whole output, a page at a time.
type executionView struct {
	Q  Query
	In *inspectorView
	// Before and After are the addresses of the neighbouring pages, or "".
	First, Before, After, End string
}

// Title implements view.
func (v executionView) Title() string { return v.In.Title }

// find is an execution as of the moment that is looked at.
func (s *Server) find(ctx context.Context, r *http.Request, q Query) (*inspectorView, time.Time, error) {
	var in *inspectorView
	var moment time.Time
	id := r.PathValue("execution")
	err := s.scene(ctx, q, func(sc *look.Scene, now time.Time) {
		moment = now
		if p, ok := sc.Processes.Get(id); ok {
			in = s.inspector(sc, p, q, now)
		}
	})
	if err == nil && in == nil {
		err = fmt.Errorf("execution %s: %w", id, errNone)
	}
	return in, moment, err
}

func (s *Server) execution(ctx context.Context, r *http.Request, q Query) (view, error) {
	in, moment, err := s.find(ctx, r, q)
	if err != nil {
		return nil, err
	}
	v := executionView{Q: q, In: in}
	if q.From < 0 {
		in.Output, err = look.ReadTail(ctx, s.opts.Ledger, in.process, pageOutput, q.until(moment))
	} else {
		in.Output, err = look.ReadOutput(ctx, s.opts.Ledger, in.process, q.From, q.From+pageOutput, q.until(moment))
	}
	if err != nil {
		return nil, err
	}
	o := in.Output
	if o.From > 0 {
		v.First, v.Before = q.Reading(0), q.Reading(max(o.From-pageOutput, 0))
	}
	if o.To < o.End {
		v.After, v.End = q.Reading(o.To), q.Reading(-1)
	}
	return v, nil
}

// playView is the player.
type playView struct {
	Q  Query
	In *inspectorView
	// Cast is the address of the recording.
	Cast string
	// Cut says that the recording holds only the beginning.
	Cut bool
}

// Title implements view.
func (v playView) Title() string { return "Recording of " + v.In.Title }

func (s *Server) play(ctx context.Context, r *http.Request, q Query) (view, error) {
	in, _, err := s.find(ctx, r, q)
	if err != nil {
		return nil, err
	}
	return playView{Q: q, In: in, Cast: q.To("/x/" + in.ID + "/cast"), Cut: in.Size > castOutput}, nil
}

// cast is the recording, in asciinema's format.
func (s *Server) cast(w http.ResponseWriter, r *http.Request) {
	q := s.asked(r.URL.Path, r)
	in, moment, err := s.find(r.Context(), r, q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-asciicast")
	if err := look.WriteCast(r.Context(), w, s.opts.Ledger, in.process, castOutput, q.until(moment)); err != nil {
		s.opts.Logger.Warn("writing a recording", "execution", in.ID, "error", err)
	}
}

// raw is the output as it is, byte for byte. A browser saves it, and never
// shows it: the bytes are hostile.
func (s *Server) raw(w http.ResponseWriter, r *http.Request) {
	q := s.asked(r.URL.Path, r)
	in, moment, err := s.find(r.Context(), r, q)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+look.Short(in.ID)+`.log"`)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	until := q.until(moment)
	for e, err := range s.opts.Ledger.Output(r.Context(), in.Session, in.ID, 0, -1) {
		o, ok := e.Body.(events.Output)
		if err != nil || (!until.IsZero() && e.Time.After(until)) {
			return
		}
		if ok {
			if _, err := w.Write(o.Data); err != nil {
				return
			}
		}
	}
}

func (s *Server) stopExecution(w http.ResponseWriter, r *http.Request) {
	var p projections.Process
	found := false
	s.live.View(func() { p, found = s.live.Processes.Get(r.PathValue("execution")) })
	if !found {
		s.fail(w, r, errNone)
		return
	}
	s.stop(w, r, p.Session, p.Owner, p.Execution)
}

func (s *Server) stopOwner(w http.ResponseWriter, r *http.Request) {
	s.stop(w, r, r.PathValue("session"), r.FormValue("owner"), "")
}

// stopPatience is how long a stop may take to be accepted.
const stopPatience = 20 * time.Second

// stop asks for a stop and goes back to where the button was.
func (s *Server) stop(w http.ResponseWriter, r *http.Request, session, owner, execution string) {
	if s.opts.Stop == nil {
		s.fail(w, r, errNone)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), stopPatience)
	defer cancel()
	if err := s.opts.Stop(ctx, session, owner, execution); err != nil {
		s.opts.Logger.Warn("stopping", "session", session, "execution", execution, "error", err)
		q := parseQuery("/", nil)
		s.write(w, http.StatusConflict, "problem", s.frame(q, problem{Text: "It was not stopped: " + look.OneLine(err.Error())}))
		return
	}
	http.Redirect(w, r, localPath(r.FormValue("back")), http.StatusSeeOther)
}

// localPath is an address of this page, whatever was sent.
func localPath(back string) string {
	u, err := url.Parse(back)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsAny(back, "\\\r\n") {
		return "/"
	}
	return back
}
