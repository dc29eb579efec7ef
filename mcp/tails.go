package mcp

import (
	"bytes"
	"strings"

	"github.com/yieldlog/yieldlog/events"
)

const (
	tailLines = 5
	// tailWidth bounds a line of a tail, in bytes.
	tailWidth = 200
)

// tails is the fold behind progress notifications: of each live execution the
// number of lines and the last few. It forgets an execution at its end.
type tails struct {
	live map[string]*tail
}

// tail is one execution's.
type tail struct {
	lines int64
	end   int64 // the offset after the last byte seen
	// last holds the last complete lines, and the unfinished one behind them.
	last []byte
}

func newTails() *tails { return &tails{live: map[string]*tail{}} }

// apply takes an event. Output that was seen before, and all but output and
// ends, changes nothing.
func (t *tails) apply(e events.Event) {
	switch b := e.Body.(type) {
	case events.Settled, events.Refused:
		delete(t.live, e.Subject)
	case events.Output:
		l := t.live[e.Subject]
		if l == nil {
			l = &tail{}
			t.live[e.Subject] = l
		}
		if b.Offset >= l.end {
			l.add(b.Data)
			l.end = b.End()
		}
	}
}

func (t *tail) add(data []byte) {
	t.lines += int64(bytes.Count(data, []byte("\n")))
	if most := (tailLines + 1) * tailWidth; len(data) > most {
		data = data[len(data)-most:]
	}
	t.last = append(t.last, data...)
	start := len(bytes.TrimSuffix(t.last, []byte("\n")))
	for range tailLines {
		if start = bytes.LastIndexByte(t.last[:start], '\n'); start < 0 {
			break
		}
	}
	start = max(start+1, len(t.last)-tailLines*tailWidth)
	t.last = append(t.last[:0], t.last[start:]...)
}

// of is the number of lines of a live execution, and its last lines as text.
func (t *tails) of(execution string) (lines int64, last string) {
	l := t.live[execution]
	if l == nil {
		return 0, ""
	}
	return l.lines, strings.ToValidUTF8(strings.TrimSuffix(string(l.last), "\n"), "")
}
