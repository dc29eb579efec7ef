package look

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// lineRunes bounds a line of output on a screen.
const lineRunes = 2000

// Text is output as plain text that is safe to show anywhere: escape sequences
// are gone, a carriage return or a backspace has done its work, and every other
// character that would do something instead of being seen is shown by name.
// Lines are cut to a bounded length. The result is valid UTF-8.
func Text(output []byte) string {
	s := ansi.Strip(strings.ToValidUTF8(string(output), "\uFFFD"))
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s))
	for line := range strings.SplitSeq(s, "\n") {
		b.WriteString(textLine(line))
		b.WriteByte('\n')
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// OneLine is text such as a command on one line, with every character that
// would do something shown by name.
func OneLine(s string) string {
	return textLine(strings.Join(strings.Fields(Text([]byte(s))), " "))
}

// textLine is one line as a terminal would leave it.
func textLine(line string) string {
	line = strings.TrimRight(line, "\r")
	if i := strings.LastIndexByte(line, '\r'); i >= 0 {
		line = line[i+1:] // a progress line: what was printed over is gone
	}
	if plain(line) {
		return line
	}
	out := make([]rune, 0, min(len(line), lineRunes))
	cut := 0
	for _, r := range line {
		switch {
		case r == '\b':
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		case len(out) >= lineRunes:
			cut++
		default:
			out = append(out, Visible(r)...)
		}
	}
	if cut > 0 {
		return fmt.Sprintf("%s … %d more characters", string(out), cut)
	}
	return string(out)
}

// plain reports whether a line is short printable ASCII, as most are.
func plain(line string) bool {
	if len(line) > lineRunes {
		return false
	}
	for i := range len(line) {
		if c := line[i]; c >= utf8.RuneSelf || (c < ' ' && c != '\t') || c == 0x7f {
			return false
		}
	}
	return true
}

// Visible is a character, or its name if showing it would do something.
func Visible(r rune) []rune {
	const zeroWidthJoiner, replacement = '\u200d', '\uFFFD'
	switch {
	case r == '\t' || r == zeroWidthJoiner || r == replacement || strconv.IsPrint(r):
		return []rune{r}
	case r < ' ':
		return []rune{'\u2400' + r} // ␀, ␇ and the like
	case r == 0x7f:
		return []rune{'\u2421'}
	case r == '\u00a0' || r == '\ufe0f': // space, and the emoji form of what stands before
		return []rune{r}
	}
	q := strconv.QuoteRuneToASCII(r)
	return []rune(q[1 : len(q)-1])
}

// LastLines is the last n lines of text that are not blank, oldest first.
func LastLines(text string, n int) []string {
	lines := strings.Split(text, "\n")
	var last []string
	for i := len(lines) - 1; i >= 0 && len(last) < n; i-- {
		if strings.TrimSpace(lines[i]) != "" {
			last = append([]string{lines[i]}, last...)
		}
	}
	return last
}
