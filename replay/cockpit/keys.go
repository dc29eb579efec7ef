package cockpit

import (
	tea "github.com/charmbracelet/bubbletea"
)

// keys does what keys mean. Those typed at once come together; what is pasted
// is text, and means something to the search only.
func (m *model) keys(k tea.KeyMsg) (tea.Model, tea.Cmd) {
	if k.Paste && m.mode != modeSearch {
		return m, nil
	}
	if k.Type != tea.KeyRunes || len(k.Runes) < 2 {
		return m.key(k)
	}
	var all []tea.Cmd
	for _, r := range k.Runes {
		_, cmd := m.key(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}})
		all = append(all, cmd)
	}
	return m, tea.Batch(all...)
}

// key does what one key means.
func (m *model) key(k tea.KeyMsg) (tea.Model, tea.Cmd) {
	if k.Type == tea.KeyCtrlC {
		m.endPlay()
		return m, tea.Quit
	}
	m.message = ""
	switch m.mode {
	case modeSearch:
		m.searchKey(k)
	case modeStop:
		m.mode = modeList
		if k.String() == "y" {
			return m, m.stop()
		}
		m.message = "Nothing was stopped."
	case modePlay:
		m.playKey(k)
	case modeHelp:
		m.mode = modeList
	default:
		return m.listKey(k)
	}
	return m, nil
}

// listKey is a key in the list, and in the full view of an output.
func (m *model) listKey(k tea.KeyMsg) (tea.Model, tea.Cmd) {
	full := m.mode == modeFull
	switch k.String() {
	case "q":
		if !full {
			return m, tea.Quit
		}
		m.closeFull()
	case "esc":
		m.escape(full)
	case "j", "down":
		m.move(1, full)
	case "k", "up":
		m.move(-1, full)
	case "pgdown", " ", "ctrl+d":
		m.scrollBy(-m.page())
	case "pgup", "ctrl+u":
		m.scrollBy(m.page())
	case "g", "home":
		m.edge(full, true)
	case "G", "end":
		m.edge(full, false)
	case "enter", "i":
		if !full {
			m.toggle()
			return m, m.load()
		}
	case "f":
		m.scroll = 0
	case "o":
		m.openFull(full)
		return m, m.load()
	case "p":
		m.startPlay()
	case "s":
		m.askStop()
	case "/":
		m.mode = modeSearch
	case "?":
		m.mode = modeHelp
	}
	return m, nil
}

func (m *model) escape(full bool) {
	switch {
	case full:
		m.closeFull()
	case m.open != "":
		m.openRow("")
	default:
		m.filter = ""
	}
}

// move moves the cursor, or in the full view the output.
func (m *model) move(step int, full bool) {
	if full {
		m.scrollBy(-step)
		return
	}
	if i := m.index() + step; i >= 0 && i < len(m.rows) {
		m.selected = m.rows[i].ID
	}
}

func (m *model) edge(full, first bool) {
	switch {
	case full && first:
		m.scrollBy(len(m.output))
	case full:
		m.scroll = 0
	case len(m.rows) == 0:
	case first:
		m.selected = m.rows[0].ID
	default:
		m.selected = m.rows[len(m.rows)-1].ID
	}
}

func (m *model) page() int { return max(m.outputHeight()-1, 1) }

func (m *model) scrollBy(n int) {
	m.scroll = min(max(m.scroll+n, 0), max(len(m.output)-m.outputHeight(), 0))
}

// toggle opens the inspector of the row under the cursor, and closes it if it
// is open. There is one.
func (m *model) toggle() {
	id := m.selected
	if m.open == id {
		id = ""
	}
	m.openRow(id)
}

func (m *model) openRow(id string) {
	m.open, m.output, m.end, m.scroll, m.loading, m.inspector = id, nil, 0, 0, false, nil
	m.scene.View(m.inspect)
}

func (m *model) openFull(full bool) {
	if full {
		m.closeFull()
		return
	}
	m.before = m.open
	if m.open != m.selected {
		m.openRow(m.selected)
	}
	if m.open != "" {
		m.mode = modeFull
	}
}

// closeFull goes back to the list as it was.
func (m *model) closeFull() {
	m.mode = modeList
	if m.open != m.before {
		m.openRow(m.before)
	}
}

func (m *model) askStop() {
	r, ok := m.row()
	switch {
	case !ok:
	case m.opts.Stop == nil:
		m.message = "There is no stop here."
	case !r.Live:
		m.message = r.Title + " has ended already."
	default:
		m.mode = modeStop
	}
}

// searchKey edits the search, which lists what matches as it is typed.
func (m *model) searchKey(k tea.KeyMsg) {
	switch k.Type {
	case tea.KeyEnter:
		m.mode = modeList
	case tea.KeyEsc:
		m.mode, m.filter = modeList, ""
	case tea.KeyBackspace:
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	case tea.KeySpace:
		m.filter += " "
	case tea.KeyRunes:
		m.filter += string(k.Runes)
	}
	m.refresh()
}

func (m *model) playKey(k tea.KeyMsg) {
	switch k.String() {
	case "q", "esc", "p":
		m.endPlay()
	case " ":
		m.play.toggle()
	case "+", "=":
		m.play.faster(2)
	case "-":
		m.play.faster(0.5)
	case ".":
		m.play.player.Step()
	}
}
