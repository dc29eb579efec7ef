package look

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// idleLimit is the longest pause of a recording in seconds; a player skips the
// rest.
const idleLimit = 2.0

// WriteCast writes an execution's output as an asciicast v2 recording, which
// asciinema and its player play: at most limit bytes of output, as far as they
// were there at the moment until (zero: now). JSON carries the bytes, so no
// output can break out of it; < and > are escaped, so it may stand in a page.
func WriteCast(ctx context.Context, w io.Writer, l *ledger.Ledger, p projections.Process, limit int64, until time.Time) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	c := caster{p: p, enc: enc, start: p.SpawnedAt}
	if c.start.IsZero() {
		c.start = p.RequestedAt
	}
	if err := enc.Encode(c.header()); err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	for e, err := range l.Output(ctx, p.Session, p.Execution, 0, limit) {
		if err != nil {
			return fmt.Errorf("reading the output of %s: %w", p.Execution, err)
		}
		out, ok := e.Body.(events.Output)
		if !ok || (!until.IsZero() && e.Time.After(until)) {
			continue
		}
		if err := c.write(e.Time, string(out.Data)); err != nil {
			return fmt.Errorf("writing a recording: %w", err)
		}
	}
	if err := c.end(limit); err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	return nil
}

// caster turns chunks into the lines of a recording.
type caster struct {
	p     projections.Process
	enc   *json.Encoder
	start time.Time
	at    float64
	// rest is the beginning of a character whose end is in the next chunk, and
	// cr whether the last byte was a carriage return.
	rest string
	cr   bool
}

// header is the first line: the terminal's size, and what was run.
func (c *caster) header() any {
	cols, rows := 100, 28
	if t := c.p.Requested.TTY; t != nil && t.Cols > 0 && t.Rows > 0 {
		cols, rows = min(t.Cols, 400), min(t.Rows, 200)
	}
	return map[string]any{
		"version": 2, "width": cols, "height": rows, "timestamp": c.start.Unix(), "idle_time_limit": idleLimit,
		"title": NewRow(c.p, c.start).Title, "command": OneLine(c.p.Requested.Command),
	}
}

func (c *caster) write(at time.Time, data string) error {
	// Clocks step; a recording only goes on.
	c.at = max(c.at, at.Sub(c.start).Seconds())
	data = c.rest + data
	cut := len(data)
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if utf8.RuneStart(data[len(data)-i]) {
			if !utf8.FullRuneInString(data[len(data)-i:]) {
				cut = len(data) - i
			}
			break
		}
	}
	data, c.rest = data[:cut], data[cut:]
	return c.event(strings.ToValidUTF8(data, "\uFFFD"))
}

// event writes one line. What did not run in a terminal ends its lines with a
// line feed alone, which a terminal would draw as stairs.
func (c *caster) event(text string) error {
	if text == "" {
		return nil
	}
	if c.p.Requested.TTY == nil {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
	}
	return c.enc.Encode([]any{c.at, "o", text})
}

// end says how it ended, in words of our own.
func (c *caster) end(limit int64) error {
	row := NewRow(c.p, c.start)
	text := "\r\n\x1b[0m\x1b[2m── " + row.Mark.Word
	if row.Note != "" {
		text += " · " + row.Note
	}
	if c.p.Offset > limit {
		text += fmt.Sprintf(" · the recording holds the first %s of %s", Bytes(limit), Bytes(c.p.Offset))
	}
	if c.p.Settled != nil {
		c.at = max(c.at, c.p.EndedAt.Sub(c.start).Seconds())
	}
	return c.enc.Encode([]any{c.at, "o", text + " ──\x1b[0m\r\n"})
}
