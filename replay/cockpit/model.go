package cockpit

import (
	"context"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

// mode is what the keys mean at the moment.
type mode int

const (
	modeList mode = iota
	modeSearch
	modeStop
	modeFull
	modePlay
	modeHelp
)

// listed bounds the ended executions that are listed.
const listed = 500

// model is the state of the cockpit.
type model struct {
	ctx   context.Context
	opts  Options
	scene *look.Scene
	mode  mode

	width, height int
	now           time.Time

	rows []look.Row
	// live and agents count what runs.
	live, queued, agents int
	// selected is the execution that the cursor is on, open the one whose
	// inspector is open, or "".
	selected, open string
	// before is what was open before the full view.
	before    string
	inspector *look.Inspector
	output    []string
	// end is the length of the output that was read.
	end int64
	// scroll is how many lines of output are below what is shown; 0 follows.
	scroll int
	// loading says that output is being read.
	loading bool

	filter  string
	message string
	play    *recording
}

func newModel(ctx context.Context, o Options, scene *look.Scene) *model {
	return &model{ctx: ctx, opts: o, scene: scene, width: 80, height: 24, now: time.Now()}
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 20), max(msg.Height, 6)
	case tickMsg:
		m.now = time.Time(msg)
		m.refresh()
		return m, tea.Batch(tick(), m.load())
	case outputMsg:
		m.take(msg)
	case stoppedMsg:
		m.message = "Stopped " + msg.title + "."
		if msg.err != nil {
			m.message = "Not stopped: " + look.OneLine(msg.err.Error())
		}
	case tea.KeyMsg:
		return m.keys(msg)
	}
	return m, nil
}

// refresh takes what is new from the scene.
func (m *model) refresh() {
	m.scene.View(func() {
		m.rows, m.live, m.queued = m.rows[:0], 0, 0
		owners := map[string]bool{}
		for _, p := range m.scene.Processes.Live() {
			m.live++
			if p.State == projections.StateQueued {
				m.queued++
			}
			owners[p.Session+p.Owner] = true
			m.add(p)
		}
		m.agents = len(owners)
		ended := 0
		for p := range m.scene.Processes.All() {
			if ended >= listed {
				break
			}
			if !p.Live() && m.add(p) {
				ended++
			}
		}
		m.inspect()
	})
	if m.selected == "" && len(m.rows) > 0 {
		m.selected = m.rows[0].ID
	}
	if m.index() < 0 && len(m.rows) > 0 {
		m.selected = m.rows[0].ID
	}
}

// add lists an execution, if the search lets it.
func (m *model) add(p projections.Process) bool {
	r := look.NewRow(p, m.now)
	if m.filter != "" && p.Execution != m.open {
		text := strings.ToLower(r.Title + " " + r.Command + " " + r.Owner + " " + r.Mark.Word + " " + r.ID)
		if !strings.Contains(text, strings.ToLower(m.filter)) {
			return false
		}
	}
	m.rows = append(m.rows, r)
	return true
}

// inspect renews the inspector. It stays open when its execution ends.
func (m *model) inspect() {
	m.inspector = nil
	p, ok := m.scene.Processes.Get(m.open)
	if !ok {
		m.open = ""
		return
	}
	var crumb *projections.Breadcrumb
	if c, ok := m.scene.Breadcrumbs.Get(m.open); ok {
		crumb = &c
	}
	in := look.NewInspector(p, crumb, m.scene.Mailbox.List(p.Session, p.Owner), m.now)
	in.Grow(m.end)
	m.inspector = &in
}

// index is the place of the cursor, -1 if its execution is not listed.
func (m *model) index() int {
	for i, r := range m.rows {
		if r.ID == m.selected {
			return i
		}
	}
	return -1
}

// row is the row under the cursor.
func (m *model) row() (look.Row, bool) {
	if i := m.index(); i >= 0 {
		return m.rows[i], true
	}
	return look.Row{}, false
}

// tailBytes is how much of an output the inspector and the full view hold.
const tailBytes = 256 << 10

// outputMsg is the end of an output.
type outputMsg struct {
	execution string
	output    look.Output
	err       error
}

// load reads the output of the open execution if there may be more of it.
func (m *model) load() tea.Cmd {
	if m.open == "" || m.loading || m.inspector == nil || (!m.inspector.Live && m.end >= m.inspector.Size && m.output != nil) {
		return nil
	}
	var p projections.Process
	found := false
	m.scene.View(func() { p, found = m.scene.Processes.Get(m.open) })
	if !found {
		return nil
	}
	m.loading = true
	ctx, l := m.ctx, m.opts.Ledger
	return func() tea.Msg {
		o, err := look.ReadTail(ctx, l, p, tailBytes, time.Time{})
		return outputMsg{p.Execution, o, err}
	}
}

// take takes output in. Who scrolled back stays at the same lines.
func (m *model) take(msg outputMsg) {
	m.loading = false
	if msg.execution != m.open {
		return
	}
	if msg.err != nil {
		m.message = "The output cannot be read: " + look.OneLine(msg.err.Error())
		m.end = max(m.end, msg.output.End)
		return
	}
	lines := strings.Split(strings.TrimRight(msg.output.Text(), "\n"), "\n")
	if m.scroll > 0 && len(lines) > len(m.output) {
		m.scroll += len(lines) - len(m.output)
	}
	m.output, m.end = lines, msg.output.End
	if msg.output.Empty() {
		m.output = []string{}
	}
}

// stoppedMsg says how a stop went.
type stoppedMsg struct {
	title string
	err   error
}

// stop stops the execution under the cursor.
func (m *model) stop() tea.Cmd {
	r, ok := m.row()
	if !ok || !r.Live || m.opts.Stop == nil {
		return nil
	}
	m.message = "Stopping " + r.Title + " …"
	ctx, stop := m.ctx, m.opts.Stop
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		return stoppedMsg{r.Title, stop(ctx, r.Session, r.Owner, r.ID)}
	}
}
