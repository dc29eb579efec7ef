package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

// sessionsView is the list of sessions.
type sessionsView struct {
	Q           Query
	Rows        []look.SessionRow
	Page, Pages int
	Total       int
}

// Title implements view.
func (sessionsView) Title() string { return "Sessions" }

func (s *Server) sessions(ctx context.Context, _ *http.Request, q Query) (view, error) {
	v := sessionsView{Q: q, Page: q.Page}
	err := s.scene(ctx, q, func(sc *look.Scene, now time.Time) {
		all := sc.Sessions.List()
		v.Total = len(all)
		v.Pages = max((len(all)+pageRows-1)/pageRows, 1)
		from := min((q.Page-1)*pageRows, len(all))
		for _, p := range all[from:min(from+pageRows, len(all))] {
			v.Rows = append(v.Rows, look.NewSessionRow(p, now))
		}
	})
	return v, err
}

// sessionView is one session: its timeline, transcript and mailboxes.
type sessionView struct {
	Q        Query
	Session  look.SessionRow
	Timeline look.Timeline
	// Undrawn counts the executions that the timeline has no place for.
	Undrawn int
	// Owners are whose transcript can be looked at alone, if there are several.
	Owners     []string
	Transcript []transcriptRow
	// Page counts from the end: 1 is the newest.
	Page, Pages int
	Mail        []look.Mail
	Unread      int
}

// Title implements view.
func (v sessionView) Title() string { return "Session " + look.Short(v.Session.ID) }

// transcriptRow is a call, which is a row with all that belongs to it, or one
// line about something else.
type transcriptRow struct {
	Call *rowView
	At   time.Time
	Kind string
	Text string
	Who  string
	Seq  uint64
	// Execution is what an input or a stop was for, or whose end a notice tells.
	Execution string
	// Notices are what a row stands for that stands for several.
	Notices []transcriptRow
	Q       Query
}

// transcriptRows is how many rows of a transcript are shown at once.
const transcriptRows = 100

func (s *Server) session(ctx context.Context, r *http.Request, q Query) (view, error) {
	id := r.PathValue("session")
	v := sessionView{Q: q}
	rows, err := s.transcripts.rows(ctx, id, q.Owner, q.At, s.live.Seq())
	if err != nil {
		return nil, err
	}
	v.Page, v.Pages = pageOf(rows, q), max((len(rows)+transcriptRows-1)/transcriptRows, 1)
	to := max(len(rows)-(v.Page-1)*transcriptRows, 0)
	rows = rows[max(to-transcriptRows, 0):to]
	found := false
	var moment time.Time
	var calls []rowView
	err = s.scene(ctx, q, func(sc *look.Scene, now time.Time) {
		var p projections.Session
		if p, found = sc.Sessions.Get(id); !found {
			return
		}
		moment = now
		v.Session = look.NewSessionRow(p, now)
		v.draw(sc, id, now)
		v.addMail(sc.Mailbox.List(id, ""))
		calls = make([]rowView, 0, len(rows))
		for _, row := range rows {
			v.Transcript = append(v.Transcript, s.transcriptRow(sc, row, q, now, &calls))
		}
	})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("session %s: %w", id, errNone)
	}
	s.fillInspector(ctx, opened(calls), q, moment)
	return v, nil
}

// pageOf is the page of the row that is asked for, or the page that is.
func pageOf(rows []projections.Row, q Query) int {
	i := slices.IndexFunc(rows, func(r projections.Row) bool { return r.Seq == q.Row })
	if q.Row == 0 || i < 0 {
		return q.Page
	}
	return (len(rows)-1-i)/transcriptRows + 1
}

// draw makes the timeline of the newest executions.
func (v *sessionView) draw(sc *look.Scene, session string, now time.Time) {
	var rows []look.Row
	for p := range sc.Processes.All() {
		switch {
		case p.Session != session:
		case len(rows) == timelineMax:
			v.Undrawn++
		default:
			rows = append(rows, look.NewRow(p, now))
		}
	}
	v.Timeline = look.NewTimeline(rows, now)
	v.Owners = []string{events.RootOwner}
	for _, g := range v.Timeline.Groups {
		if g.Owner != events.RootOwner {
			v.Owners = append(v.Owners, g.Owner)
		}
	}
}

func (v *sessionView) addMail(records []projections.Record) {
	for _, r := range records {
		m := look.NewMail(r)
		if m.Read.IsZero() {
			v.Unread++
		}
		v.Mail = append(v.Mail, m)
	}
	v.Mail = v.Mail[max(0, len(v.Mail)-transcriptRows):]
}

func (s *Server) transcriptRow(sc *look.Scene, row projections.Row, q Query, now time.Time, calls *[]rowView) transcriptRow {
	t := transcriptRow{
		At: row.At, Kind: string(row.Kind), Text: look.OneLine(row.Text), Who: look.OneLine(row.Owner), Seq: row.Seq,
		Execution: row.Execution, Q: q,
	}
	if p, ok := sc.Processes.Get(row.Execution); ok && row.Kind == projections.RowCall {
		r := s.row(sc, p, q, now)
		if row.Breadcrumb != nil {
			r.Crumb = look.OneLine(row.Breadcrumb.Text)
		}
		*calls = append(*calls, r) // never grows beyond its capacity, so the pointer stays good
		t.Call = &(*calls)[len(*calls)-1]
	}
	for _, n := range row.Notices {
		t.Notices = append(t.Notices, s.transcriptRow(sc, n, q, now, calls))
	}
	return t
}

// transcripts keeps the transcripts of the sessions that are looked at, so that
// a change costs only what is new.
type transcripts struct {
	ledger *ledger.Ledger
	mu     sync.Mutex
	kept   []*keptTranscript // the last used first
}

type keptTranscript struct {
	session    string
	engine     *replay.Engine
	transcript *projections.Transcript
}

// transcriptsKept is how many transcripts are kept.
const transcriptsKept = 4

func newTranscripts(l *ledger.Ledger) *transcripts { return &transcripts{ledger: l} }

// rows is a session's transcript as the owner sees it, or with "" people, as of
// a sequence, or with 0 as of now.
func (t *transcripts) rows(ctx context.Context, session, owner string, at, now uint64) ([]projections.Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := at
	if at == 0 || at > now {
		to = now
	}
	if to == 0 {
		return nil, nil
	}
	k := t.take(session, to)
	if err := k.engine.RunTo(ctx, t.ledger, events.Filter{Session: session}, to); err != nil {
		return nil, fmt.Errorf("reading the transcript of %s: %w", session, err)
	}
	if at == 0 {
		t.kept = append([]*keptTranscript{k}, t.kept...)
		t.kept = t.kept[:min(len(t.kept), transcriptsKept)]
	}
	return k.transcript.Rows(owner), nil
}

// take takes the kept transcript out if it is not beyond to, or makes one.
func (t *transcripts) take(session string, to uint64) *keptTranscript {
	for i, k := range t.kept {
		if k.session == session && k.engine.Seq() <= to {
			t.kept = append(t.kept[:i], t.kept[i+1:]...)
			return k
		}
	}
	k := &keptTranscript{session: session, transcript: projections.NewTranscript(session)}
	k.engine = replay.NewEngine(k.transcript)
	return k
}
