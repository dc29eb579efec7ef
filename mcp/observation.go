package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// observation is what exec, read and wait answer: the facts of an execution and
// a range of its output, at one moment.
type observation struct {
	ProcessID   string             `json:"process_id"`
	Status      string             `json:"status"`
	State       string             `json:"state,omitempty"`
	Command     string             `json:"command,omitempty"`
	PID         *int               `json:"pid"`
	ExitCode    *int               `json:"exit_code"`
	Signal      *string            `json:"signal"`
	Outcome     events.Outcome     `json:"outcome,omitempty"`
	Termination events.Termination `json:"termination,omitempty"`
	DurationMS  int64              `json:"duration_ms"`
	Stdout      *string            `json:"stdout,omitempty"`
	Stderr      *string            `json:"stderr,omitempty"`
	TTY         *string            `json:"tty,omitempty"`
	Truncated   bool               `json:"truncated"`
	// StartSeq is where the output shown begins, NextSeq where the next read
	// goes on, LatestSeq where the recorded output ended. See [seq].
	StartSeq  int64 `json:"start_seq"`
	NextSeq   int64 `json:"next_seq"`
	LatestSeq int64 `json:"latest_seq"`
	// Omitted is the range that is not shown between the head and the tail.
	Omitted *omitted `json:"omitted,omitempty"`
	// CutOff and Descendants tell of processes that outlived the shell.
	CutOff      bool                `json:"cut_off,omitempty"`
	Descendants []events.Descendant `json:"descendants,omitempty"`
	Message     string              `json:"message,omitempty"`
	Error       string              `json:"error,omitempty"`

	// rendered shows the output as a person would see it.
	rendered bool
}

// seq is an output offset as clients count: from 1. To them 0 and 1 are both
// the start, as they were when sequences counted chunks.
func seq(offset int64) int64 { return offset + 1 }

// offset is the output offset of a sequence.
func offset(seq int64) int64 { return max(seq, 1) - 1 }

// omitted is a range of sequences, the second not in it.
type omitted struct {
	From  int64 `json:"from_seq"`
	To    int64 `json:"to_seq"`
	Bytes int64 `json:"bytes"`
}

// observe answers with the facts of p and the page of its output. Where both
// forms of the answer together are too long for the clients, the page shrinks.
func (s *Server) observe(ctx context.Context, c *call, p projections.Process, o observation, r replay.PageRequest) (reply, error) {
	r.Limit = s.outputLimit(r.Limit)
	r = r.Of(p)
	r.From = min(r.From, r.End)
	o.facts(p, time.Now())
	s.observed(c, p)
	budget := max(inlineBudget, s.opts.MaxOutputBytes*9/4)
	structured, shown, err := s.fit(ctx, p, o, r, budget)
	if err != nil {
		return reply{}, err
	}
	out := reply{structured: structured, text: string(structured)}
	rest := budget - len(structured)
	if len(encode(out.text)) <= rest {
		s.shown(c, p, shown, r)
		return out, nil
	}
	rest = max(rest, leastText)
	r.Limit = min(r.Limit, rest/2)
	// Quoting the text again takes about a twentieth, or more where there are many escapes.
	text, shown, err := s.fit(ctx, p, o, r, rest*19/20)
	if err != nil {
		return reply{}, err
	}
	out.text = string(text)
	s.shown(c, p, shown, r)
	return out, nil
}

// observed claims the end of an execution that the answer shows, unless
// somebody has it.
func (s *Server) observed(c *call, p projections.Process) {
	if p.Settled != nil { // also where the ledger stalled, and the yield is not on record
		c.claimed(s.opts.Session.Observed(p.Owner, p.Execution, c.tool))
	}
}

// shown remembers, once the answer was sent, what it showed of the output.
func (s *Server) shown(c *call, p projections.Process, page replay.Page, r replay.PageRequest) {
	end := page.Next
	if page.OmittedTo > page.OmittedFrom {
		end = page.OmittedFrom
	}
	if len(r.Streams) > 0 || r.TailLines > 0 || end <= page.Start {
		return
	}
	c.after = append(c.after, func(written bool) {
		if written {
			s.opts.Session.Shown(p.Owner, p.Execution, page.Start, end)
		}
	})
}

const (
	// inlineBudget is what clients keep inline of both forms together, in bytes.
	inlineBudget = 45_000
	// leastText is what a shortened text may take in any case, in bytes.
	leastText = 4000
	// leastOutput is the least that an answer shows of a stream, in bytes.
	leastOutput = 200
)

// fit encodes the observation with as much output as keeps it within budget.
func (s *Server) fit(ctx context.Context, p projections.Process, o observation, r replay.PageRequest, budget int) ([]byte, replay.Page, error) {
	for {
		var page replay.Page
		if p.Offset > 0 { // Most quick commands say nothing.
			var err error
			if page, err = s.opts.Pages(ctx, p.Session, p.Execution, r); err != nil {
				return nil, page, fmt.Errorf("reading the output of %s: %w", p.Execution, err)
			}
		}
		shown := o
		shown.page(page, r.Streams, p.Requested.TTY != nil)
		b := encode(shown)
		if len(b) <= budget || r.Limit <= leastOutput {
			return b, page, nil
		}
		// Escapes decide how much a byte of output takes; ask for what fits.
		r.Limit = max(leastOutput, min(r.Limit*budget/len(b)*9/10, r.Limit*9/10))
	}
}

// screenBytes is how much of a terminal's output its screen is made from. What
// was drawn before that and never again is missing.
const screenBytes = 256 << 10

// screen answers with what the command's terminal shows now.
func (s *Server) screen(ctx context.Context, c *call, p projections.Process) (reply, error) {
	page, err := s.opts.Pages(ctx, p.Session, p.Execution, replay.PageRequest{
		Newest: true, Limit: screenBytes, Streams: []events.Kind{events.KindTTY},
	}.Of(p))
	if err != nil {
		return reply{}, fmt.Errorf("reading the terminal of %s: %w", p.Execution, err)
	}
	var o observation
	s.observed(c, p)
	o.facts(p, time.Now())
	o.page(page, []events.Kind{events.KindTTY}, true)
	*o.TTY = replay.Screen(page.TTY, p.Size)
	o.Truncated, o.Omitted = false, nil
	return answer(o), nil
}

// outputLimit is the bytes of one stream that an answer may hold.
func (s *Server) outputLimit(asked int) int {
	limit := s.opts.MaxOutputBytes
	if asked > 0 {
		limit = min(asked, limit)
	}
	return limit
}

// facts fills in everything but the output.
func (o *observation) facts(p projections.Process, now time.Time) {
	o.ProcessID = p.Execution
	if o.Status == "" {
		o.Status = string(p.Status)
	}
	o.State = p.State
	if p.PID != 0 {
		o.PID = &p.PID
	}
	o.DurationMS = duration(p, now)
	e := p.Settled
	if e == nil {
		return
	}
	o.State = ""
	o.ExitCode, o.Outcome, o.Termination = e.ExitCode, e.Outcome, e.Termination
	o.CutOff, o.Descendants, o.Error = e.CutOff, e.Descendants, e.Error
	if e.Signal != "" {
		o.Signal = &e.Signal
	}
	if o.Message == "" {
		o.Message = afterword(p)
	}
}

// afterword says what the words for an end leave open.
func afterword(p projections.Process) string {
	switch p.Settled.Termination {
	case events.TermExited, events.TermSignal:
		return outlived(p.Requested.Command, p.Settled.Descendants)
	case events.TermOutputLimit:
		return fmt.Sprintf("The command was ended because it wrote more than %d bytes. Let it write to a file, or filter what it writes.", p.Requested.OutputLimit)
	case events.TermStalled:
		return "The command was ended because its output could not be recorded."
	}
	return ""
}

// outlived says what became of processes that a shell left behind when it ended
// by itself: its exit code says nothing of them.
func outlived(command string, left []events.Descendant) string {
	ended := 0
	for _, d := range left {
		if !d.Left {
			ended++
		}
	}
	switch {
	case ended == 0:
		return ""
	case strings.Contains(command, "&>"):
		return "Processes that outlived the shell were ended. A plain sh takes &> for & and >: write > FILE 2>&1."
	}
	return "Processes that outlived the shell were ended."
}

// duration is how long the execution has run, in milliseconds.
func duration(p projections.Process, now time.Time) int64 {
	switch {
	case p.Settled != nil:
		return p.Settled.DurationMS
	case !p.SpawnedAt.IsZero():
		return max(0, now.Sub(p.SpawnedAt).Milliseconds())
	}
	return max(0, now.Sub(p.RequestedAt).Milliseconds())
}

// page fills in the output: the asked streams, all when none is named.
func (o *observation) page(page replay.Page, streams []events.Kind, tty bool) {
	show := func(stream events.Kind, data []byte) *string {
		if !selected(streams, stream) {
			return nil
		}
		s := string(data)
		if o.rendered {
			s = replay.Plain(data)
		}
		return &s
	}
	o.Stdout = show(events.KindStdout, page.Stdout)
	o.Stderr = show(events.KindStderr, page.Stderr)
	if tty {
		o.TTY = show(events.KindTTY, page.TTY)
	}
	o.Truncated = page.Truncated
	o.StartSeq, o.NextSeq, o.LatestSeq = seq(page.Start), seq(page.Next), seq(page.Latest)
	if page.OmittedTo > page.OmittedFrom {
		o.Omitted = &omitted{seq(page.OmittedFrom), seq(page.OmittedTo), page.OmittedBytes}
	}
}

func selected(streams []events.Kind, stream events.Kind) bool {
	for _, k := range streams {
		if k == stream {
			return true
		}
	}
	return len(streams) == 0
}

// observationSchema is the output schema of exec.
func observationSchema(required ...string) schema {
	s := briefSchema(required...)
	for name, t := range map[string]string{
		"state": "string", "command": "string", "tty": "string", "termination": "string", "outcome": "string", "duration_ms": "integer",
		"omitted": "object", "cut_off": "boolean", "descendants": "array", "message": "string",
	} {
		s["properties"].(schema)[name] = schema{"type": t}
	}
	return s
}

// briefSchema is that of read and wait, which answer with the same fields: the
// list of tools stays small.
func briefSchema(required ...string) schema {
	return object(map[string]any{
		"process_id": "string", "status": "string",
		"pid": orNull("integer"), "exit_code": orNull("integer"), "signal": orNull("string"),
		"stdout": "string", "stderr": "string", "truncated": "boolean",
		"start_seq": "integer", "next_seq": "integer", "latest_seq": "integer", "error": "string",
	}, required...)
}
