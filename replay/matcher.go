package replay

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/charmbracelet/x/ansi"
)

// matcher finds a pattern in lines. Where every match must contain a certain
// text, it looks for that first: that is many times faster.
type matcher struct {
	re      *regexp.Regexp
	literal []byte
	// exact says that the text is the whole pattern.
	exact bool
}

func newMatcher(q Query) (matcher, error) {
	pattern := q.Pattern
	if q.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if q.IgnoreCase {
		pattern = "(?i:" + pattern + ")"
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return matcher{}, fmt.Errorf("reading the pattern: %w", err)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return matcher{}, fmt.Errorf("reading the pattern: %w", err)
	}
	m := matcher{re: re}
	text := required(parsed.Simplify())
	if !bytes.ContainsRune([]byte(text), '\n') {
		m.literal = []byte(text)
	}
	m.exact = text != "" && parsed.Op == syntax.OpLiteral && parsed.Flags&syntax.FoldCase == 0
	return m, nil
}

// required is the longest text that every match contains, as far as it is easy
// to see.
func required(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var longest string
		for _, sub := range re.Sub {
			if s := required(sub); len(s) > len(longest) {
				longest = s
			}
		}
		return longest
	}
	return ""
}

// candidate is an index in block before which no line matches, or -1.
func (m matcher) candidate(block []byte) int {
	if len(m.literal) == 0 {
		return 0
	}
	return bytes.Index(block, m.literal)
}

// escape is where an escape sequence begins in a block, or -1.
func escape(block []byte) int { return bytes.IndexByte(block, ansi.ESC) }

// matchLine is match of a line as it was written or, if that does not match,
// without escape sequences: colours split words.
func (m matcher) matchLine(line []byte) (text []byte, start, end int, ok bool) {
	start, end, ok = m.match(line)
	if ok || escape(line) < 0 {
		return line, start, end, ok
	}
	text = []byte(ansi.Strip(string(line)))
	start, end, ok = m.match(text)
	return text, start, end, ok
}

// match is the bounds of the first match in a line.
func (m matcher) match(line []byte) (start, end int, ok bool) {
	if m.exact {
		start = bytes.Index(line, m.literal)
		return start, start + len(m.literal), start >= 0
	}
	if loc := m.re.FindIndex(line); loc != nil {
		return loc[0], loc[1], true
	}
	return 0, 0, false
}
