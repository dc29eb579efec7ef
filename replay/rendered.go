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
// and of a line that was written over (a progress bar) its last state.
func Plain(data []byte) string {
	var b strings.Builder
	for line := range bytes.Lines(data) {
		text, end := strings.CutSuffix(strings.ToValidUTF8(string(line), "\uFFFD"), "\n")
		b.WriteString(overwritten(strings.TrimSuffix(text, "\r")))
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// lineEdit is a sequence that moves the cursor within its line, or erases some
// of that.
var lineEdit = regexp.MustCompile(`\x1b\[(\d{0,4})([CDGK])`)

// overwritten is what stays of one line after all that moved its cursor.
func overwritten(text string) string {
	edits := lineEdit.FindAllStringSubmatchIndex(text, -1)
	if edits == nil && !strings.ContainsAny(text, "\r\b") {
		return ansi.Strip(text)
	}
	var r row
	done := 0
	for _, e := range edits {
		r.put(ansi.Strip(text[done:e[0]]))
		n, _ := strconv.Atoi(text[e[2]:e[3]]) // 0 where there is none
		r.edit(text[e[4]], n)
		done = e[1]
	}
	r.put(ansi.Strip(text[done:]))
	return string(r.cells)
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
