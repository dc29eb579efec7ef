package replay

import (
	"bytes"
	"io"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"

	"github.com/yieldlog/yieldlog/events"
)

// Plain is output as a person would see it pass by: without escape sequences,
// and of a line that was written over (a progress bar) its last state.
func Plain(data []byte) string {
	var b strings.Builder
	for line := range bytes.Lines(data) {
		b.WriteString(overwritten(ansi.Strip(strings.ToValidUTF8(string(line), "\uFFFD"))))
	}
	return b.String()
}

// overwritten lets carriage returns and backspaces of one line move its cursor.
func overwritten(line string) string {
	text, end := strings.CutSuffix(line, "\n")
	text = strings.TrimSuffix(text, "\r")
	if !strings.ContainsAny(text, "\r\b") {
		if end {
			return text + "\n"
		}
		return text
	}
	var cells []rune
	at := 0
	for _, r := range text {
		switch {
		case r == '\r':
			at = 0
		case r == '\b':
			at = max(at-1, 0)
		case at < len(cells):
			cells[at] = r
			at++
		default:
			cells = append(cells, r)
			at++
		}
	}
	if end {
		cells = append(cells, '\n')
	}
	return string(cells)
}

// Screen is what a terminal of the size shows after the bytes, without colours.
func Screen(data []byte, size events.Size) string {
	terminal := vt.NewEmulator(max(size.Cols, 1), max(size.Rows, 1))
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
	_, _ = terminal.Write(data) // It takes everything.
	screen := strings.TrimRight(terminal.String(), "\n")
	if pipe, ok := terminal.InputPipe().(io.Closer); ok { // Its own Close races with Read.
		_ = pipe.Close()
	}
	<-answered
	return screen
}
