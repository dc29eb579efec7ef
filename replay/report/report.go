package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
)

// The sizes of a report, in bytes as they stand in the file: 1,000 executions
// stay under 5 MB whatever they printed.
const (
	outputBudget = 1600 << 10
	outputEach   = 64 << 10
	outputLeast  = 1 << 10
	castBudget   = 600 << 10
	castEach     = 160 << 10
	castsMost    = 40
	barsMost     = 2_000
)

// ErrNoSession says that the ledger holds no such session.
var ErrNoSession = errors.New("there is no such session in the ledger")

// Report is one session, ready to be written.
type Report struct {
	Session  look.SessionRow
	Made     time.Time
	Timeline look.Timeline
	// Undrawn counts the executions that the timeline has no place for.
	Undrawn int
	// Trouble is what deserves a look, and Rows everything in order.
	Trouble []*Call
	Rows    []Row
	Mail    []look.Mail
}

// Row is one row of the transcript: a call, or a line about something else.
type Row struct {
	Call *Call
	At   time.Time
	Text string
	Who  string
}

// Call is an execution with its output, as far as the report holds it.
type Call struct {
	look.Inspector
	Head, Tail look.Output
	// Omitted counts the bytes of output between head and tail.
	Omitted int64
	// Cast is a recording, or "".
	Cast string

	process projections.Process
}

// Make reads a session and makes its report as of a moment, which is now for a
// session that has ended.
func Make(ctx context.Context, l *ledger.Ledger, session string, now time.Time) (*Report, error) {
	scene := look.NewScene()
	transcript := projections.NewTranscript(session)
	engine := replay.NewEngine(transcript)
	for _, e := range []*replay.Engine{scene.Engine, engine} {
		if err := e.RunTo(ctx, l, events.Filter{Session: session}, 0); err != nil {
			return nil, fmt.Errorf("reading session %s: %w", session, err)
		}
	}
	p, ok := scene.Sessions.Get(session)
	if !ok {
		return nil, fmt.Errorf("reporting on %s: %w", session, ErrNoSession)
	}
	r := &Report{Session: look.NewSessionRow(p, now), Made: now}
	r.collect(scene, transcript, session, now)
	if err := r.fillOutputs(ctx, l); err != nil {
		return nil, err
	}
	return r, r.fillCasts(ctx, l)
}

// collect makes the rows.
func (r *Report) collect(scene *look.Scene, transcript *projections.Transcript, session string, now time.Time) {
	records := map[string][]projections.Record{}
	for _, m := range scene.Mailbox.List(session, "") {
		r.Mail = append(r.Mail, look.NewMail(m))
		records[m.Execution] = append(records[m.Execution], m)
	}
	var bars []look.Row
	for _, row := range transcript.Rows("") {
		v := Row{At: row.At, Text: look.OneLine(row.Text), Who: look.OneLine(row.Owner)}
		if p, ok := scene.Processes.Get(row.Execution); ok && row.Kind == projections.RowCall {
			v.Call = &Call{process: p, Inspector: look.NewInspector(p, row.Breadcrumb, records[row.Execution], now)}
			bars = append(bars, v.Call.Row)
			if v.Call.Mark.Trouble() {
				r.Trouble = append(r.Trouble, v.Call)
			}
		}
		r.Rows = append(r.Rows, v)
	}
	r.Undrawn = max(len(bars)-barsMost, 0)
	r.Timeline = look.NewTimeline(bars[r.Undrawn:], now)
}

// Calls lists the executions, what deserves a look first.
func (r *Report) Calls() []*Call {
	calls := append([]*Call(nil), r.Trouble...)
	for _, row := range r.Rows {
		if row.Call != nil && !row.Call.Mark.Trouble() {
			calls = append(calls, row.Call)
		}
	}
	return calls
}

// fillOutputs shares the budget out: what deserves a look gets its part first,
// and what one does not need is left for the others.
func (r *Report) fillOutputs(ctx context.Context, l *ledger.Ledger) error {
	left := int64(outputBudget)
	calls := r.Calls()
	for i, c := range calls {
		share := min(max(left/int64(len(calls)-i), outputLeast), outputEach)
		if c.Mark.Trouble() {
			share = min(outputEach, max(left/2, outputLeast))
		}
		if left <= 0 {
			share = 0
		}
		if err := c.read(ctx, l, share); err != nil {
			return err
		}
		left -= c.cost()
	}
	return nil
}

// read reads the beginning and the end of the output. The end tells more, so it
// gets more.
func (c *Call) read(ctx context.Context, l *ledger.Ledger, share int64) (err error) {
	size := c.process.Offset
	if size <= share || share == 0 {
		if share > 0 {
			c.Head, err = look.ReadOutput(ctx, l, c.process, 0, -1, time.Time{})
		} else {
			c.Omitted = size - c.Pruned()
		}
		c.trim(share)
		return err
	}
	if c.Head, err = look.ReadOutput(ctx, l, c.process, 0, share/4, time.Time{}); err != nil {
		return err
	}
	c.Tail, err = look.ReadTail(ctx, l, c.process, share*3/4, time.Time{})
	if between := c.Tail.From - c.Head.To; between > 0 {
		c.Omitted = between - c.process.PrunedIn(c.Head.To, c.Tail.From)
	}
	c.trim(share)
	return err
}

// trim cuts output that grew by being made harmless or being escaped.
func (c *Call) trim(share int64) {
	left := share * 5 / 4
	for _, o := range []*look.Output{&c.Tail, &c.Head} {
		for i := range o.Pieces {
			p := &o.Pieces[i]
			for int64(len(html.EscapeString(p.Text))) > left && p.Text != "" {
				c.Omitted += int64(len(p.Text) - len(p.Text)/2)
				p.Text = strings.ToValidUTF8(p.Text[:len(p.Text)/2], "")
			}
			left -= int64(len(html.EscapeString(p.Text)))
		}
	}
}

// cost is the size of the output in the file.
func (c *Call) cost() int64 {
	return int64(len(html.EscapeString(c.Head.Text())) + len(html.EscapeString(c.Tail.Text())))
}

// fillCasts records what is worth playing: terminals, then what went wrong,
// then what went on for a while.
func (r *Report) fillCasts(ctx context.Context, l *ledger.Ledger) error {
	left, n := castBudget, 0
	for _, worth := range []func(*Call) bool{
		func(c *Call) bool { return c.TTY != nil },
		func(c *Call) bool { return c.TTY == nil && c.Mark.Trouble() },
		func(c *Call) bool { return c.TTY == nil && !c.Mark.Trouble() && c.Yielded },
	} {
		for _, c := range r.Calls() {
			if n >= castsMost || c.process.Offset == 0 || !worth(c) {
				continue
			}
			var b bytes.Buffer
			if err := look.WriteCast(ctx, &b, l, c.process, castEach, time.Time{}); err != nil {
				return fmt.Errorf("reporting on %s: %w", c.ID, err)
			}
			size := len(html.EscapeString(b.String()))
			if size > left || size > 3*castEach {
				continue
			}
			c.Cast = b.String()
			left, n = left-size, n+1
		}
	}
	return nil
}

// Pruned counts the bytes of output that were deleted on purpose.
func (c *Call) Pruned() int64 { return c.process.PrunedIn(0, -1) }

// Shown reports whether the report holds any of the output.
func (c *Call) Shown() bool { return !c.Head.Empty() || !c.Tail.Empty() }
