package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

// Sizes of what is shown at once.
const (
	panelRows   = 8
	panelMost   = 200
	pageRows    = 50
	lastLines   = 2
	searchRows  = 200_000
	tailOfOpen  = 48 << 10
	pageOutput  = 256 << 10
	castOutput  = 4 << 20
	timelineMax = 500
)

// nowView is what runs, and what ran.
type nowView struct {
	Q      Query
	Panel  panel
	Recent list
	// Notice is the newest completion line, for those who listen.
	Notice string
	// Unread counts the mail that waits.
	Unread int
}

// Title implements view.
func (v nowView) Title() string {
	if n := v.Panel.Count; n > 0 {
		return look.Count(n, "command") + " running"
	}
	return "Now"
}

// panel is the one list of running work, of all owners.
type panel struct {
	Rows []rowView
	// Count counts the commands and Monitors those of them that are monitors.
	Count, Monitors int
	Agents          []agent
	// Hidden counts the rows that are not shown; Most that there is no more.
	Hidden   int
	Expanded bool
	CanStop  bool
	Q        Query
}

// agent is an owner with running work.
type agent struct {
	Session, Owner string
	Running        int
}

// list is one page of ended executions.
type list struct {
	Rows        []rowView
	Page, Pages int
	Total       int
	// Capped says that older ones were not looked at.
	Capped bool
	Chips  []chip
	Q      Query
}

// chip is one choice among the ended executions.
type chip struct {
	Show, Text string
	Count      int
	Chosen     bool
}

// rowView is a row, and its inspector if it is open.
type rowView struct {
	look.Row
	Q      Query
	Pinned bool
	Open   *inspectorView
	// CanStop says that there is a stop.
	CanStop bool
	// ShowSession says that the row names its session.
	ShowSession bool
	Crumb       string
	// Now is the moment that is looked at.
	Now time.Time
}

// inspectorView is the inspector, which claims nothing.
type inspectorView struct {
	look.Inspector
	Output  look.Output
	Problem string
	Q       Query
	CanStop bool

	process projections.Process
}

func (s *Server) now(ctx context.Context, _ *http.Request, q Query) (view, error) {
	v := nowView{Q: q}
	var moment time.Time
	var open *inspectorView
	err := s.scene(ctx, q, func(sc *look.Scene, now time.Time) {
		moment = now
		v.Panel, v.Recent = s.panel(sc, q, now), s.recent(sc, q, now)
		if crumbs := sc.Breadcrumbs.List(); len(crumbs) > 0 {
			v.Notice = look.OneLine(crumbs[len(crumbs)-1].Text)
		}
		for _, r := range sc.Mailbox.List("", "") {
			if r.State == projections.MailPosted {
				v.Unread++
			}
		}
		open = opened(v.Panel.Rows, v.Recent.Rows)
	})
	if err != nil {
		return nil, err
	}
	s.fillLines(ctx, v.Panel.Rows, q, moment)
	s.fillInspector(ctx, open, q, moment)
	if q.Deep && q.Text != "" {
		return v, s.searchOutput(ctx, q, &v.Recent)
	}
	return v, nil
}

// opened finds the one open inspector.
func opened(lists ...[]rowView) *inspectorView {
	for _, l := range lists {
		for _, r := range l {
			if r.Open != nil {
				return r.Open
			}
		}
	}
	return nil
}

// row is the view of an execution, with its inspector if the query opens it.
func (s *Server) row(sc *look.Scene, p projections.Process, q Query, now time.Time) rowView {
	r := rowView{Row: look.NewRow(p, now), Q: q, Now: now, CanStop: s.opts.Stop != nil && p.Live() && q.At == 0}
	if p.Live() {
		r.Last = sc.LastLines(p.Execution, lastLines)
	}
	if q.Open == p.Execution {
		r.Open = s.inspector(sc, p, q, now)
	}
	return r
}

func (s *Server) inspector(sc *look.Scene, p projections.Process, q Query, now time.Time) *inspectorView {
	var crumb *projections.Breadcrumb
	if c, ok := sc.Breadcrumbs.Get(p.Execution); ok {
		crumb = &c
	}
	return &inspectorView{
		Inspector: look.NewInspector(p, crumb, sc.Mailbox.List(p.Session, ""), now), Q: q, process: p,
		CanStop: s.opts.Stop != nil && p.Live() && q.At == 0,
	}
}

// panel lists what runs. A row that was opened here stays until it is closed,
// also when it has ended.
func (s *Server) panel(sc *look.Scene, q Query, now time.Time) panel {
	v := panel{Q: q, Expanded: q.More, CanStop: s.opts.Stop != nil && q.At == 0}
	live := sc.Processes.Live()
	for _, p := range live {
		v.Count++
		if p.Requested.Monitor {
			v.Monitors++
		}
		v.Agents = addAgent(v.Agents, p)
	}
	if p, ok := sc.Processes.Get(q.Open); ok && q.Pinned && !p.Live() {
		live = append([]projections.Process{p}, live...)
	}
	shown := panelRows
	if q.More {
		shown = panelMost
	}
	for i, p := range live {
		if i >= shown && p.Execution != q.Open {
			v.Hidden++
			continue
		}
		r := s.row(sc, p, q, now)
		r.Pinned, r.ShowSession = true, true
		v.Rows = append(v.Rows, r)
	}
	return v
}

func addAgent(agents []agent, p projections.Process) []agent {
	owner := look.OneLine(p.Owner)
	i := slices.IndexFunc(agents, func(a agent) bool { return a.Session == p.Session && a.Owner == owner })
	if i < 0 {
		return append(agents, agent{Session: p.Session, Owner: owner, Running: 1})
	}
	agents[i].Running++
	return agents
}

// recent lists a page of what has ended, the newest first.
func (s *Server) recent(sc *look.Scene, q Query, now time.Time) list {
	v := list{Q: q, Page: q.Page}
	ends, narrowed := sc.Processes.Ends(), q.narrowed()
	if narrowed {
		ends = map[string]int{}
	}
	v.Chips = chips(ends, q)
	seen := 0
	for p := range sc.Processes.All() {
		if seen++; seen > searchRows {
			v.Capped = true
			break
		}
		if p.Live() || (q.Pinned && p.Execution == q.Open) || !q.within(p) {
			continue
		}
		m := look.MarkOf(p)
		if narrowed {
			ends[m.Word]++
		}
		if !q.shows(m) {
			continue
		}
		if !q.Any() && v.Total == q.Page*pageRows {
			v.Total = max(v.Total+1, v.Chips[0].Count) // the rest need not be looked at
			break
		}
		if v.Total++; v.Total > (q.Page-1)*pageRows && v.Total <= q.Page*pageRows {
			r := s.row(sc, p, q, now)
			r.ShowSession = true
			v.Rows = append(v.Rows, r)
		}
	}
	if narrowed {
		v.Chips = chips(ends, q)
	}
	v.Pages = max((v.Total+pageRows-1)/pageRows, 1)
	return v
}

// selects reports whether the list shows an ended execution.
func (q Query) selects(p projections.Process) bool { return q.within(p) && q.shows(look.MarkOf(p)) }

// narrowed reports whether the list is of some executions, whatever their end.
// A search in output looks at too few to count.
func (q Query) narrowed() bool {
	return q.Owner != "" || q.Session != "" || (q.Text != "" && !q.Deep)
}

// shows reports whether the list shows what ended so.
func (q Query) shows(m look.Mark) bool {
	return q.Show == "" || m.Class == q.Show || (q.Show == "trouble" && m.Trouble())
}

// within reports whether an execution is among those that the list is of.
func (q Query) within(p projections.Process) bool {
	if (q.Owner != "" && p.Owner != q.Owner) || (q.Session != "" && p.Session != q.Session) {
		return false
	}
	return q.Text == "" || q.Deep || matches(p, q.Text)
}

// matches looks for text where people would: name, command, owner, ids.
func matches(p projections.Process, text string) bool {
	text = strings.ToLower(text)
	for _, field := range []string{p.Requested.Name, p.Requested.Command, p.Owner, p.Execution, p.Session, p.Requested.Cwd} {
		if strings.Contains(strings.ToLower(field), text) {
			return true
		}
	}
	return false
}

// chips are the choices, with what each of them lists.
func chips(ends map[string]int, q Query) []chip {
	all := 0
	for _, n := range ends {
		all += n
	}
	c := []chip{{Text: "All", Count: all}}
	for _, m := range []look.Mark{look.MarkFailed, look.MarkTimedOut, look.MarkStopped, look.MarkCompleted} {
		c = append(c, chip{Show: m.Class, Text: strings.ToUpper(m.Word[:1]) + m.Word[1:], Count: ends[m.Word]})
	}
	for i := range c {
		c[i].Chosen = c[i].Show == q.Show
	}
	return c
}

// fillLines reads the last lines of the rows whose output was not followed:
// they were printed before the page was opened.
func (s *Server) fillLines(ctx context.Context, rows []rowView, q Query, moment time.Time) {
	for i := range rows {
		r := &rows[i]
		if !r.Live || len(r.Last) > 0 || i >= panelRows {
			continue
		}
		p := projections.Process{Execution: r.ID, Session: r.Session, Offset: r.Size, State: projections.StateRunning}
		if o, err := look.ReadTail(ctx, s.opts.Ledger, p, 4<<10, q.until(moment)); err == nil {
			r.Last = look.LastLines(o.Text(), lastLines)
		}
	}
}

// until is the moment up to which output is shown; zero is now.
func (q Query) until(moment time.Time) time.Time {
	if q.At == 0 {
		return time.Time{}
	}
	return moment
}

// fillInspector reads the end of the output of the open execution.
func (s *Server) fillInspector(ctx context.Context, in *inspectorView, q Query, moment time.Time) {
	if in == nil {
		return
	}
	var err error
	if in.Output, err = look.ReadTail(ctx, s.opts.Ledger, in.process, tailOfOpen, q.until(moment)); err != nil && ctx.Err() == nil {
		s.opts.Logger.Warn("reading output", "execution", in.ID, "error", err)
		in.Problem = "The output cannot be read."
	}
	in.Grow(in.Output.End)
}
