package replay

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/yieldlog/yieldlog/events"
)

// Plain is output as a person would see it pass by: without escape sequences,
// and of lines that were written over (a progress bar, or several) their last state.
func Plain(data []byte) string {
	if upOrDown.Match(data) {
		return redrawn(data)
	}
	var b strings.Builder
	for line := range bytes.Lines(data) {
		text, end := lineOf(line)
		b.WriteString(overwritten(text))
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// lineOf is the text of a line, and whether that has an end.
func lineOf(line []byte) (text string, end bool) {
	text, end = strings.CutSuffix(strings.ToValidUTF8(string(line), "\uFFFD"), "\n")
	return strings.TrimSuffix(text, "\r"), end
}

var (
	// lineEdit is a sequence that moves the cursor within its line, or erases some
	// of that, and upOrDown one that moves it to other lines, or erases those below.
	lineEdit = regexp.MustCompile(`\x1b\[(\d{0,4})([CDGK])`)
	upOrDown = regexp.MustCompile(`\x1b\[(?:\d{0,4}[ABEF]|0?J)`)
	anyEdit  = regexp.MustCompile(`\x1b\[(\d{0,4})([A-GJK])`)
)

// overwritten is what stays of one line after all that moved its cursor.
func overwritten(text string) string {
	if !strings.ContainsAny(text, "\r\b") && !lineEdit.MatchString(text) {
		return ansi.Strip(text)
	}
	s := sheet{rows: make([]row, 1)}
	s.put(text, lineEdit)
	return string(s.rows[0].cells)
}

// redrawn is what stays of lines among which the cursor moved.
func redrawn(data []byte) string {
	s := sheet{rows: make([]row, 1)}
	for line := range bytes.Lines(data) {
		text, end := lineOf(line)
		s.put(text, anyEdit)
		if end {
			s.move(s.at + 1)
			s.rows[s.at].at = 0
		}
	}
	var b strings.Builder
	for i, r := range s.rows {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(r.cells))
	}
	return b.String()
}

// A sheet is the lines of a terminal without end, and the one that its cursor is in.
type sheet struct {
	rows []row
	at   int
}

// put writes text, and obeys the sequences in it that edits finds.
func (s *sheet) put(text string, edits *regexp.Regexp) {
	done := 0
	for _, e := range edits.FindAllStringSubmatchIndex(text, -1) {
		s.rows[s.at].put(ansi.Strip(text[done:e[0]]))
		n, _ := strconv.Atoi(text[e[2]:e[3]]) // 0 where there is none
		s.edit(text[e[4]], n)
		done = e[1]
	}
	s.rows[s.at].put(ansi.Strip(text[done:]))
}

// edit is CSI n op. A move down stays among the lines that there are.
func (s *sheet) edit(op byte, n int) {
	switch op {
	case 'A', 'F':
		s.move(max(s.at-max(n, 1), 0))
	case 'B', 'E':
		s.move(min(s.at+max(n, 1), len(s.rows)-1))
	case 'J':
		if n > 0 {
			return // clearing the screen takes nothing of what passed by
		}
		s.rows = s.rows[:s.at+1]
		s.rows[s.at].erase(0)
	default:
		s.rows[s.at].edit(op, n)
	}
	if op == 'E' || op == 'F' {
		s.rows[s.at].at = 0
	}
}

// move takes the cursor to another line, which may be one after the last.
func (s *sheet) move(to int) {
	column := s.rows[s.at].at
	if to == len(s.rows) {
		s.rows = append(s.rows, row{})
	}
	s.at = to
	s.rows[to].at = column
}

// A row is a line of a terminal without end, and its cursor.
type row struct {
	cells []rune
	at    int
}

func (r *row) put(text string) {
	for _, c := range text {
		switch c {
		case '\r':
			r.at = 0
		case '\b':
			r.at = max(r.at-1, 0)
		default:
			r.pad()
			if r.at == len(r.cells) {
				r.cells = append(r.cells, c)
			} else {
				r.cells[r.at] = c
			}
			r.at++
		}
	}
}

// pad puts blanks up to the cursor.
func (r *row) pad() {
	for len(r.cells) < r.at {
		r.cells = append(r.cells, ' ')
	}
}

// widest bounds how far a sequence moves the cursor to the right.
const widest = 1000

// edit is CSI n op.
func (r *row) edit(op byte, n int) {
	switch op {
	case 'C':
		r.at = max(r.at, min(r.at+max(n, 1), widest))
	case 'D':
		r.at = max(r.at-max(n, 1), 0)
	case 'G':
		r.at = min(max(n, 1), widest) - 1
	case 'K':
		r.erase(n)
	}
}

// erase drops the cells from the cursor on (0), up to it (1), or all (2).
func (r *row) erase(which int) {
	switch which {
	case 0:
		r.cells = r.cells[:min(r.at, len(r.cells))]
	case 1:
		for i := range min(r.at+1, len(r.cells)) {
			r.cells[i] = ' '
		}
	case 2:
		r.cells = r.cells[:0]
	}
}

// Screen is what a terminal of the size shows after the bytes, without colours.
func Screen(data []byte, size events.Size) string {
	cols, rows := max(size.Cols, 1), max(size.Rows, 1)
	terminal := Emulator(cols, rows)
	answered := make(chan struct{})
	go func() { // It answers queries of the program; nobody asked.
		defer close(answered)
		buf := make([]byte, 256)
		for {
			if _, err := terminal.Read(buf); err != nil {
				return
			}
		}
	}()
	Feed(terminal, affordable(data, cols, rows))
	screen := strings.TrimRight(terminal.String(), "\n")
	if pipe, ok := terminal.InputPipe().(io.Closer); ok { // Its own Close races with Read.
		_ = pipe.Close()
	}
	<-answered
	return screen
}
