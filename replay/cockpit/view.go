package cockpit

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/charmbracelet/x/ansi"

	"github.com/yieldlog/yieldlog/replay/look"
)

// The styles: greys, one accent, and a colour for each state, which always has
// a word and a sign beside it.
var (
	accent  = lipgloss.AdaptiveColor{Light: "#0b6663", Dark: "#5cc8c0"}
	grey    = lipgloss.AdaptiveColor{Light: "#5d646c", Dark: "#9aa3ab"}
	faint   = lipgloss.AdaptiveColor{Light: "#c4c5c0", Dark: "#414850"}
	bad     = lipgloss.AdaptiveColor{Light: "#b3261e", Dark: "#ff8f84"}
	brand   = lipgloss.NewStyle().Bold(true).Foreground(accent)
	bold    = lipgloss.NewStyle().Bold(true)
	dim     = lipgloss.NewStyle().Foreground(grey)
	line    = lipgloss.NewStyle().Foreground(faint)
	cursor  = lipgloss.NewStyle().Foreground(accent).Bold(true)
	warning = lipgloss.NewStyle().Foreground(bad).Bold(true)

	colours = map[string]lipgloss.AdaptiveColor{
		look.MarkRunning.Class: accent, look.MarkStopping.Class: accent, look.MarkQueued.Class: grey, look.MarkStopped.Class: grey,
		look.MarkCompleted.Class: {Light: "#2c6e3f", Dark: "#7fc491"},
		look.MarkFailed.Class:    bad, look.MarkRefused.Class: bad,
		look.MarkTimedOut.Class: {Light: "#8a5300", Dark: "#e8b25a"},
		look.MarkLost.Class:     {Light: "#7a3e9d", Dark: "#cfa0ee"},
	}
)

// View implements tea.Model.
func (m *model) View() string {
	var body []string
	switch m.mode {
	case modePlay:
		body = m.play.lines()
	case modeFull:
		body = m.outputLines()
	case modeHelp:
		body = helpLines
	default:
		body = m.listLines()
	}
	height := m.height - 2
	lines := make([]string, 0, m.height)
	lines = append(lines, m.header())
	for i := range height {
		text := ""
		if i < len(body) {
			text = body[i]
		}
		lines = append(lines, ansi.Truncate(text, m.width, "…"))
	}
	return strings.Join(append(lines, ansi.Truncate(m.footer(), m.width, "…")), "\n")
}

// header says what there is, in one line.
func (m *model) header() string {
	left := brand.Render("yieldlog")
	var parts []string
	switch m.mode {
	case modePlay:
		parts = append(parts, bold.Render(m.play.title), m.play.status())
	case modeFull:
		if in := m.inspector; in != nil {
			parts = append(parts, bold.Render(in.Title), mark(in.Mark))
		}
	default:
		parts = append(parts, look.Count(m.live, "command")+" running")
		if m.queued > 0 {
			parts = append(parts, fmt.Sprintf("%d queued", m.queued))
		}
		parts = append(parts, look.Count(m.agents, "agent"))
		if m.filter != "" {
			parts = append(parts, cursor.Render("/"+m.filter))
		}
	}
	left += "  " + strings.Join(parts, dim.Render(" · "))
	right := dim.Render(m.now.Local().Format("15:04:05"))
	left = ansi.Truncate(left, m.width-10, "…")
	return left + strings.Repeat(" ", max(m.width-ansi.StringWidth(left)-ansi.StringWidth(right), 1)) + right
}

// footer says what the keys do.
func (m *model) footer() string {
	switch m.mode {
	case modeSearch:
		return cursor.Render("/"+m.filter+"▏") + dim.Render("  Enter keeps, Esc clears")
	case modeStop:
		r, _ := m.row()
		return warning.Render("Stop "+r.Title+"?") + "  y stops, any other key does not"
	case modePlay:
		return dim.Render("space pause  + − speed  . step  q back")
	case modeFull:
		return dim.Render("↑↓ PgUp PgDn scroll  g G ends  f follow  s stop  p play  q back")
	case modeHelp:
		return dim.Render("any key goes back")
	}
	if m.message != "" {
		return m.message
	}
	return dim.Render("↑↓ move  ↵ inspect  o output  p play  s stop  f follow  / search  ? help  q quit")
}

var helpLines = []string{
	"", "  j k ↑ ↓      move", "  Enter        open the inspector in place, or close it", "  PgUp PgDn    scroll the output", "  f            follow the output's end",
	"  o            the output on the whole screen", "  p            play the recording", "  s            stop the command (asks first)",
	"  /            search names, commands, owners, states", "  Esc          close the inspector; clear the search", "  g G          first, last", "  q            quit",
	"", "  Looking claims nothing: an agent sees the same output and mail as without you.",
}

func mark(k look.Mark) string {
	return lipgloss.NewStyle().Foreground(colours[k.Class]).Render(k.Sign + " " + k.Word)
}

// listLines is the list with the inspector in its place, cut to the height so
// that the cursor and what belongs to it is seen.
func (m *model) listLines() []string {
	if len(m.rows) == 0 {
		if m.filter != "" {
			return []string{"", dim.Render("  Nothing matches.")}
		}
		return []string{"", dim.Render("  Nothing has run yet.")}
	}
	var lines []string
	from, to := 0, 0 // the lines of the cursor
	divided := m.live == 0
	for _, r := range m.rows {
		if !r.Live && !divided {
			divided = true
			lines = append(lines, line.Render(strings.Repeat("─", m.width)))
		}
		at := len(lines)
		lines = append(lines, m.rowLine(r))
		if r.ID == m.open {
			lines = append(lines, m.inspectorLines()...)
		}
		if r.ID == m.selected {
			from, to = at, len(lines)
		}
	}
	height := m.height - 2
	start := 0
	if to > height {
		start = min(to-height, from)
	}
	if start > 0 && start == to-height && to < len(lines) {
		start = min(start+1, from)
	}
	return lines[start:min(start+height, len(lines))]
}

// The widths of a row's columns.
const (
	markWidth  = 13
	ownerWidth = 16
	timeWidth  = 9
)

// rowLine is the one row grammar: state, what, note, who, how long.
func (m *model) rowLine(r look.Row) string {
	lead := "  "
	title := bold.Render(r.Title)
	if r.ID == m.selected {
		lead, title = cursor.Render("▌ "), cursor.Render(r.Title)
	}
	took := r.Took
	if r.Live {
		took = m.now.Sub(r.Since)
	}
	owner := ownerWidth
	if m.width < 70 {
		owner = 0
	}
	what := title
	if r.Command != "" {
		what += " " + dim.Render(r.Command)
	}
	note := r.Note
	if r.Monitor {
		note = strings.TrimSpace("monitor " + note)
	}
	width := max(m.width-2-markWidth-owner-timeWidth-1, 10)
	if note != "" {
		note = "  " + ansi.Truncate(note, width/2, "…")
	}
	left := width - ansi.StringWidth(note)
	cell := pad(ansi.Truncate(what, left, "…"), left) + dim.Render(note)
	return lead + pad(mark(r.Mark), markWidth) + cell + " " + pad(dim.Render(ansi.Truncate(r.Owner, max(owner-1, 0), "…")), owner) +
		padLeft(look.Duration(took), timeWidth)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-ansi.StringWidth(s), 0))
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(width-ansi.StringWidth(s), 0)) + s
}

// aboutLines are the lines of an inspector above its output.
func (m *model) aboutLines() []string {
	in := m.inspector
	if in == nil {
		return nil
	}
	edge := line.Render("  │ ")
	var lines []string
	for i, text := range strings.Split(ansi.Hardwrap(in.FullCommand, max(m.width-5, 10), true), "\n") {
		if i == 3 {
			lines = append(lines, edge+dim.Render("…"))
			break
		}
		lines = append(lines, edge+text)
	}
	var facts []string
	for _, f := range in.Facts {
		switch f.Name {
		case "in", "process", "output", "end", "effects", "refused", "error":
			facts = append(facts, dim.Render(f.Name+" ")+f.Value)
		case "started":
			facts = append(facts, dim.Render("started ")+f.At.Local().Format("15:04:05"))
		}
	}
	facts = append(facts, dim.Render("session ")+look.Short(in.Session))
	lines = append(lines, edge+strings.Join(facts, dim.Render(" · ")))
	if in.Breadcrumb != "" {
		lines = append(lines, edge+in.Breadcrumb)
	}
	for _, a := range in.Anomalies {
		lines = append(lines, edge+warning.Render(a))
	}
	return lines
}

// outputHeight is how many lines of output are shown.
func (m *model) outputHeight() int {
	if m.mode == modeFull {
		return m.height - 2
	}
	return max(m.height/2-len(m.aboutLines()), 4)
}

func (m *model) inspectorLines() []string {
	lines := m.aboutLines()
	edge := line.Render("  │ ")
	for _, text := range m.outputLines() {
		lines = append(lines, edge+text)
	}
	state := ""
	if m.scroll > 0 {
		state = fmt.Sprintf(" %d lines below; f follows ", m.scroll)
	}
	return append(lines, line.Render("  └─"+state+strings.Repeat("─", max(m.width-4-ansi.StringWidth(state), 0))))
}

// outputLines is the part of the output that is shown.
func (m *model) outputLines() []string {
	if m.output == nil {
		return []string{dim.Render("reading …")}
	}
	if len(m.output) == 0 {
		return []string{dim.Render("It has printed nothing.")}
	}
	to := max(len(m.output)-m.scroll, 0)
	lines := m.output[max(to-m.outputHeight(), 0):to]
	shown := make([]string, len(lines))
	for i, text := range lines {
		shown[i] = strings.ReplaceAll(text, "\t", "    ")
	}
	return shown
}

// status says where the recording is.
func (p *recording) status() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := look.Duration(p.at.Truncate(100*time.Millisecond)) + fmt.Sprintf(" · %g×", p.speed)
	switch {
	case p.done != "":
		s += " · " + p.done
	case p.paused:
		s += " · paused"
	}
	return s
}
