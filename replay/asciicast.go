package replay

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Cast describes an asciicast.
type Cast struct {
	// Title names it. Cols and Rows are the terminal's size where the recording
	// tells none; 0 are 80 and 24.
	Title      string
	Cols, Rows int
	// IdleLimit is the longest pause in it; 0 is no limit.
	IdleLimit time.Duration
	// Labelled puts the names of the executions before their lines. See [TextWriter].
	Labelled bool
}

// WriteAsciicast writes frames as asciicast v3, which asciinema plays: one JSON
// value on each line. Bytes that are no UTF-8 become U+FFFD; the ledger keeps
// them as they were.
func WriteAsciicast(w io.Writer, frames iter.Seq2[Frame, error], c Cast) error {
	a := caster{w: w, cast: c, pending: map[string][]byte{}}
	a.text = TextWriter{W: &a.buf, Labelled: c.Labelled}
	for f, err := range frames {
		if err != nil {
			return err
		}
		if err := a.frame(f); err != nil {
			return fmt.Errorf("writing the cast: %w", err)
		}
	}
	return nil
}

type caster struct {
	w    io.Writer
	cast Cast
	text TextWriter
	buf  bytes.Buffer
	// pending holds the unfinished character at the end of each stream.
	pending map[string][]byte
	begun   bool
	tty     bool
	// at and left are the recorded time of the last line, and what rounding left over.
	at   time.Duration
	left time.Duration
}

func (a *caster) frame(f Frame) error {
	if !a.begun {
		a.begun = true
		if err := a.header(f); err != nil {
			return err
		}
	}
	a.buf.Reset()
	if err := a.text.WriteFrame(a.whole(f)); err != nil {
		return err
	}
	if a.buf.Len() > 0 {
		data := a.buf.Bytes()
		if !a.tty {
			data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
		}
		if err := a.event(f, "o", string(data)); err != nil {
			return err
		}
	}
	return a.fact(f)
}

// header is the first line. The terminal is that of the first execution.
func (a *caster) header(f Frame) error {
	r, _ := f.Body.(events.Requested)
	term := map[string]int{"cols": 80, "rows": 24}
	if a.cast.Cols > 0 && a.cast.Rows > 0 {
		term["cols"], term["rows"] = a.cast.Cols, a.cast.Rows
	}
	if r.TTY != nil && r.TTY.Cols > 0 && r.TTY.Rows > 0 {
		a.tty = !a.cast.Labelled
		term["cols"], term["rows"] = r.TTY.Cols, r.TTY.Rows
	}
	return a.line(struct {
		Version   int            `json:"version"`
		Term      map[string]int `json:"term"`
		Timestamp int64          `json:"timestamp"`
		Command   string         `json:"command,omitempty"`
		Title     string         `json:"title,omitempty"`
	}{3, term, f.Time.Unix(), r.Command, a.cast.Title})
}

// whole is the frame with its output cut before an unfinished character, whose
// bytes wait for the next.
func (a *caster) whole(f Frame) Frame {
	out, ok := f.Body.(events.Output)
	if !ok {
		return f
	}
	key := f.Subject + "." + string(out.Stream)
	data := append(a.pending[key], out.Data...)
	n := splitAt(data)
	out.Data, a.pending[key] = data[:n], bytes.Clone(data[n:])
	f.Body = out
	return f
}

// fact writes what a lifecycle event means to a player.
func (a *caster) fact(f Frame) error {
	switch b := f.Body.(type) {
	case events.Input:
		if b.Resize != nil && !a.cast.Labelled {
			return a.event(f, "r", fmt.Sprintf("%dx%d", b.Resize.Cols, b.Resize.Rows))
		}
	case events.Yielded, events.Stopping:
		return a.event(f, "m", projections.Line(f.Event))
	case events.Settled:
		if a.cast.Labelled {
			return a.event(f, "m", projections.End(b))
		}
		if b.ExitCode != nil {
			return a.event(f, "x", strconv.Itoa(*b.ExitCode))
		}
	}
	return nil
}

// event writes one event with the time since the one before, in milliseconds.
// What rounding leaves over goes to the next, so that the times never drift.
func (a *caster) event(f Frame, code, data string) error {
	d := f.At - a.at
	a.at = f.At
	if a.cast.IdleLimit > 0 {
		d = min(d, a.cast.IdleLimit)
	}
	d += a.left
	rounded := d.Round(time.Millisecond)
	a.left = d - rounded
	return a.line([]any{math.Max(0, rounded.Seconds()), code, data})
}

func (a *caster) line(v any) error {
	b, err := events.EncodeJSON(v)
	if err != nil {
		return err
	}
	_, err = a.w.Write(append(b, '\n'))
	return err
}
