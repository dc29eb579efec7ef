package replay

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

const (
	// longLine is the most of a line that is held, in bytes: a longer one is
	// searched in parts that overlap.
	longLine = 1 << 20
	overlap  = 4 << 10
	// shownLine is the most of a line that a match shows, in bytes.
	shownLine = 2 << 10
)

// lineSearch searches one stream, line by line, whatever its chunks are.
type lineSearch struct {
	matcher matcher
	stream  events.Kind
	at      time.Time
	context int
	found   func(Match) bool

	// rest is a line that was begun, and starts says where its parts are.
	rest   []byte
	starts []mark
	// matched says that an earlier part of the line matched already.
	matched bool
	// line is the number of lines that are done.
	line int64
	// before holds the last lines that are done, for the context.
	before []contextLine
	// open are the matches whose context after them is not complete.
	open []Match
}

// contextLine is a line as it is shown, and where it begins in the output.
type contextLine struct {
	text   string
	offset int64
}

// mark says that the byte at index of some bytes is at offset in the output.
type mark struct {
	index  int
	offset int64
}

// write takes the next bytes of the stream; offset is where they are.
func (l *lineSearch) write(data []byte, offset int64) {
	end := bytes.LastIndexByte(data, '\n') + 1
	if len(l.rest) > 0 && end > 0 {
		first := bytes.IndexByte(data, '\n') + 1
		l.begin(data[:first], offset)
		l.endLine()
		data, offset, end = data[first:], offset+int64(first), end-first
	}
	l.block(data[:end], []mark{{0, offset}})
	if end < len(data) {
		l.begin(data[end:], offset+int64(end))
		if len(l.rest) > longLine {
			l.part()
		}
	}
}

// begin adds to the line that was begun.
func (l *lineSearch) begin(data []byte, offset int64) {
	l.starts = append(l.starts, mark{len(l.rest), offset})
	l.rest = append(l.rest, data...)
}

// endLine searches the line that was begun, which is complete now.
func (l *lineSearch) endLine() {
	if l.matched {
		l.line++
		l.remember(l.rest, l.starts)
	} else {
		l.block(l.rest, l.starts)
	}
	l.rest, l.starts, l.matched = l.rest[:0], l.starts[:0], false
}

// part searches what there is of a very long line, and keeps its end.
func (l *lineSearch) part() {
	if !l.matched {
		if text, start, end, ok := l.matcher.matchLine(l.rest); ok {
			l.matched = true
			l.report(text, start, end, l.starts, 0, slices.Clone(l.before))
		}
	}
	cut := len(l.rest) - overlap
	l.starts = append(l.starts[:0], mark{0, offsetAt(l.starts, cut)})
	l.rest = append(l.rest[:0], l.rest[cut:]...)
}

// close searches the last line, if it has no end.
func (l *lineSearch) close() {
	if len(l.rest) > 0 {
		l.endLine()
	}
	for _, m := range l.open {
		if !l.found(m) {
			return
		}
	}
	l.open = nil
}

// block searches complete lines.
func (l *lineSearch) block(block []byte, starts []mark) {
	l.follow(block, starts)
	counted, candidate, escaped := 0, -1, -1
	for at := 0; at < len(block); {
		candidate = nextIndex(block, at, candidate, l.matcher.candidate)
		escaped = nextIndex(block, at, escaped, escape) // its line may match without that
		next := min(candidate, escaped)
		if next == len(block) {
			break
		}
		from := bytes.LastIndexByte(block[:next], '\n') + 1
		to := lineEnd(block, next)
		if text, start, end, ok := l.matcher.matchLine(chomp(block[from:to])); ok {
			l.line += int64(bytes.Count(block[counted:from], newline))
			counted = from
			if l.report(text, start, end, starts, from, l.linesBefore(block[:from], starts)) {
				l.followLast(block, starts, to)
			}
		}
		at = to
	}
	l.line += int64(bytes.Count(block[counted:], newline))
	if len(block) > 0 && block[len(block)-1] != '\n' {
		l.line++
	}
	l.remember(block, starts)
}

// nextIndex is what find finds from an index on, or the block's length. known is
// what it found before, or negative.
func nextIndex(block []byte, at, known int, find func([]byte) int) int {
	if known >= at {
		return known
	}
	if i := find(block[at:]); i >= 0 {
		return at + i
	}
	return len(block)
}

var newline = []byte{'\n'}

func lineEnd(block []byte, at int) int {
	if i := bytes.IndexByte(block[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(block)
}

func chomp(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, newline), []byte{'\r'})
}

// report makes a match of a line. It reports whether the match waits for the
// lines after it.
func (l *lineSearch) report(line []byte, start, end int, starts []mark, from int, before []contextLine) bool {
	m := Match{At: l.at, Stream: l.stream, Line: l.line + 1, Offset: offsetAt(starts, from)}
	for _, b := range before {
		m.Before, m.BeforeAt = append(m.Before, b.text), append(m.BeforeAt, b.offset)
	}
	line = chomp(line)
	if len(line) > shownLine {
		cut := max(0, min(start-shownLine/4, len(line)-shownLine))
		line = line[cut:min(len(line), cut+shownLine)]
		start, end = start-cut, min(end-cut, len(line))
	}
	m.Text, m.Start, m.End = string(line), start, end
	if l.context == 0 {
		l.found(m)
		return false
	}
	l.open = append(l.open, m)
	return true
}

// offsetAt is the output offset of the byte at an index.
func offsetAt(starts []mark, index int) int64 {
	at := starts[0]
	for _, s := range starts {
		if s.index > index {
			break
		}
		at = s
	}
	return at.offset + int64(index-at.index)
}

// linesBefore are the context lines that end where the block's part ends.
func (l *lineSearch) linesBefore(part []byte, starts []mark) []contextLine {
	if l.context == 0 {
		return nil
	}
	lines := lastOf(part, starts, l.context)
	if missing := l.context - len(lines); missing > 0 {
		lines = slices.Concat(l.before[max(0, len(l.before)-missing):], lines)
	}
	return lines
}

// remember keeps the last lines for the context of the next block.
func (l *lineSearch) remember(block []byte, starts []mark) {
	if l.context > 0 && len(block) > 0 {
		l.before = l.linesBefore(block, starts)
	}
}

// lastOf are the last n lines of complete lines.
func lastOf(part []byte, starts []mark, n int) []contextLine {
	var lines []contextLine
	for end := len(part); end > 0 && len(lines) < n; {
		from := bytes.LastIndexByte(part[:end-1], '\n') + 1
		lines = append(lines, contextLine{shown(part[from:end]), offsetAt(starts, from)})
		end = from
	}
	slices.Reverse(lines)
	return lines
}

// follow adds the lines of a new block to the matches that wait for some.
func (l *lineSearch) follow(block []byte, starts []mark) {
	for i := range l.open {
		l.extend(&l.open[i], block, starts, 0)
	}
	for len(l.open) > 0 && len(l.open[0].After) == l.context {
		if !l.found(l.open[0]) {
			return
		}
		l.open = l.open[1:]
	}
}

// followLast adds the rest of the block, from an index on, to the newest match.
func (l *lineSearch) followLast(block []byte, starts []mark, from int) {
	l.extend(&l.open[len(l.open)-1], block, starts, from)
	l.follow(nil, nil)
}

// extend adds the lines of a block from an index on.
func (l *lineSearch) extend(m *Match, block []byte, starts []mark, from int) {
	for from < len(block) && len(m.After) < l.context {
		to := lineEnd(block, from)
		m.After, m.AfterAt = append(m.After, shown(block[from:to])), append(m.AfterAt, offsetAt(starts, from))
		from = to
	}
}

// shown is a line of the context.
func shown(line []byte) string {
	line = chomp(line)
	if len(line) > shownLine {
		return strings.Clone(string(line[:splitAt(line[:shownLine])])) + "…"
	}
	return string(line)
}
