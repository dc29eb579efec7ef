package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

const (
	// mailMost is how many records one answer holds.
	mailMost = 10
	// previewBytes bounds a record's output of each stream: equal head and tail.
	previewBytes = 2000
	// batchBytes shows a monitor's batch whole.
	batchBytes = 8 << 10
)

func (s *Server) mailboxTool() *tool {
	return &tool{
		name: "mailbox", title: "Read your mail",
		description: "Unread completions of background commands, and lines of monitors, each once. timeout_ms (at most 55000) waits for the first.",
		params: []param{
			{name: "timeout_ms", kind: kindInteger},
			{name: "answered", kind: kindBoolean, text: "Your answer is given: hold completions until your last command ends"},
			ownerParam,
		},
		output: object(map[string]any{"records": "array", "more": "integer"}),
		hints:  hints{idempotent: true},
		eager:  true,
		run:    s.mailbox,
	}
}

// letter is a mailbox record in an answer.
type letter struct {
	Kind      events.MailKind `json:"kind"`
	ProcessID string          `json:"process_id,omitempty"`
	// Session is set when an earlier session posted the record.
	Session     string             `json:"session,omitempty"`
	Notice      string             `json:"notice"`
	PostedAt    *string            `json:"posted_at"`
	Redelivered bool               `json:"redelivered,omitempty"`
	Command     string             `json:"command,omitempty"`
	Status      events.Status      `json:"status,omitempty"`
	ExitCode    *int               `json:"exit_code,omitempty"`
	Signal      string             `json:"signal,omitempty"`
	Outcome     events.Outcome     `json:"outcome,omitempty"`
	Termination events.Termination `json:"termination,omitempty"`
	DurationMS  int64              `json:"duration_ms,omitempty"`
	Message     string             `json:"message,omitempty"`
	Error       string             `json:"error,omitempty"`
	// Count is the lines of a monitor.
	Count int `json:"count,omitempty"`
	// FromSeq and ToSeq bound the output that the record is about; Omitted was
	// cut out of what is shown of it.
	FromSeq int64    `json:"from_seq"`
	ToSeq   int64    `json:"to_seq"`
	Stdout  string   `json:"stdout,omitempty"`
	Stderr  string   `json:"stderr,omitempty"`
	TTY     string   `json:"tty,omitempty"`
	Omitted *omitted `json:"omitted,omitempty"`
	// Lost lists the commands that an earlier session lost.
	Lost []lost `json:"lost,omitempty"`
}

type lost struct {
	ProcessID string `json:"process_id"`
	Command   string `json:"command,omitempty"`
}

func (s *Server) mailbox(ctx context.Context, c *call) (reply, error) {
	owner := c.args.owner()
	if c.args.flag("answered", false) {
		s.opts.Session.Answered(owner)
	}
	list, more, claim, err := s.opts.Session.Collect(ctx, owner, mailMost, min(c.args.millis("timeout_ms", 0), maxWait))
	if errors.Is(err, producers.ErrClosed) {
		return reply{}, refuse("the session is closing")
	}
	if err != nil {
		return reply{}, fmt.Errorf("reading the mailbox: %w", err)
	}
	c.claimed(claim)
	out := struct {
		Records []letter `json:"records"`
		More    int      `json:"more"`
	}{make([]letter, 0, len(list)), more}
	for _, m := range list {
		l, err := s.open(ctx, m)
		if err != nil {
			return reply{}, err
		}
		out.Records = append(out.Records, l)
	}
	return answer(out), nil
}

// open makes a record readable: the facts and a preview of the output.
func (s *Server) open(ctx context.Context, m producers.Mail) (letter, error) {
	l := letter{
		Kind: m.Mail, ProcessID: m.Execution, Notice: m.Notice, PostedAt: stamp(m.At), Redelivered: m.Redelivered,
		FromSeq: seq(m.From), ToSeq: seq(m.To), Count: m.Count,
	}
	if m.Session != s.opts.Session.ID() {
		l.Session = m.Session
	}
	for _, id := range m.Executions {
		p, err := s.recall(ctx, m, id)
		if err != nil {
			return l, err
		}
		l.Lost = append(l.Lost, lost{id, shorten(p.Requested.Command, maxCommandEcho)})
	}
	if m.Execution == "" {
		return l, nil
	}
	p, err := s.recall(ctx, m, m.Execution)
	if err != nil {
		return l, err
	}
	l.Command = shorten(p.Requested.Command, maxCommandEcho)
	if e := p.Settled; e != nil && m.Mail == events.MailCompletion {
		l.Status, l.ExitCode, l.Signal = e.Status, e.ExitCode, e.Signal
		l.Outcome, l.Termination, l.DurationMS = e.Outcome, e.Termination, e.DurationMS
		l.Message, l.Error = afterword(p), e.Error
	}
	return l, s.preview(ctx, m, &l)
}

// preview shows the record's range of the output, its head and tail if it is long.
func (s *Server) preview(ctx context.Context, m producers.Mail, l *letter) error {
	if m.To <= m.From {
		return nil
	}
	limit := previewBytes
	if m.Mail == events.MailMonitor {
		limit = batchBytes
	}
	page, err := s.opts.Pages(ctx, m.Session, m.Execution, replay.PageRequest{
		From: m.From, End: m.To, Limit: limit, HeadTail: true, Final: true,
	})
	if err != nil {
		return fmt.Errorf("reading the output of %s: %w", m.Execution, err)
	}
	l.Stdout, l.Stderr, l.TTY = text(page.Stdout), text(page.Stderr), text(page.TTY)
	if page.OmittedTo > page.OmittedFrom {
		l.Omitted = &omitted{seq(page.OmittedFrom), seq(page.OmittedTo), page.OmittedBytes}
	}
	return nil
}

func text(b []byte) string { return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))) }

// recall is the facts of an execution that mail is about.
func (s *Server) recall(ctx context.Context, m producers.Mail, execution string) (p projections.Process, err error) {
	if m.Session != s.opts.Session.ID() {
		p, _, err = s.legacy.execution(ctx, m.Owner, execution)
		return p, err
	}
	if err := s.opts.Facts.WaitFor(ctx, m.Seq); err != nil {
		return p, fmt.Errorf("waiting for event %d: %w", m.Seq, err)
	}
	s.opts.Facts.View(func() { p, _ = s.opts.Processes.Get(execution) })
	return p, nil
}

// noticesMost is how many notices another tool's answer carries.
const noticesMost = 3

// notice is what every other answer says of unread mail: facts only.
type notice struct {
	Count   int      `json:"count"`
	Notices []string `json:"notices"`
	IDs     []string `json:"process_ids,omitempty"`
	Tool    string   `json:"read_with"`
}

// withUnread adds the notice of the owner's unread mail, if there is one, to an answer.
func (s *Server) withUnread(r reply, owner string) reply {
	if owner == "" || s.opts.Session == nil || !bytes.HasSuffix(r.structured, []byte("}")) {
		return r
	}
	list := s.opts.Session.Unread(owner)
	if len(list) == 0 {
		return r
	}
	n := notice{Count: len(list), Tool: "mailbox"}
	for _, m := range list[max(0, len(list)-noticesMost):] {
		n.Notices = append(n.Notices, m.Notice)
		if m.Execution != "" {
			n.IDs = append(n.IDs, m.Execution)
		}
		n.IDs = append(n.IDs, m.Executions[:min(len(m.Executions), noticesMost)]...)
	}
	n.IDs = unique(n.IDs)
	field := append([]byte(`,"unread":`), encode(n)...)
	add := func(object []byte) []byte {
		if bytes.Equal(object, []byte("{}")) {
			return object
		}
		return append(append(bytes.TrimSuffix(bytes.Clone(object), []byte("}")), field...), '}')
	}
	r.structured, r.text = add(r.structured), string(add([]byte(r.text)))
	return r
}

// unique is the list with each id once, where it comes first.
func unique(ids []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(ids, func(id string) bool {
		was := seen[id]
		seen[id] = true
		return was
	})
}

// claimed ends the claim with the answer: it is delivered once that is written.
func (c *call) claimed(claim *producers.Claim) {
	if claim == nil {
		return
	}
	c.after = append(c.after, func(written bool) {
		if written {
			claim.Delivered()
		} else {
			claim.Restore(true)
		}
	})
}

// end tells who has to know whether the call's answer was written, once.
func (c *call) end(written bool) {
	after := c.after
	c.after = nil
	for _, f := range after {
		f(written)
	}
}

// monitorTool is below the mailbox because its lines arrive there.
func (s *Server) monitorTool() *tool {
	return &tool{
		name: "monitor", title: "Watch a command",
		description: "Run a command in the background and get its lines in your mailbox, in batches.",
		params: []param{
			{name: "command", kind: kindString, required: true, text: "Shell text"},
			{name: "side_effects", kind: kindStrings, required: true, text: "As for exec"},
			{name: "cwd", kind: kindString},
			{name: "name", kind: kindString, text: "Label"},
			{name: "timeout_ms", kind: kindInteger},
			ownerParam,
		},
		output: object(map[string]any{"process_id": "string", "status": "string"}),
		hints:  hints{destructive: true, openWorld: true},
		starts: true,
		run:    s.monitor,
	}
}

// monitored is the answer of monitor.
type monitored struct {
	ProcessID string `json:"process_id"`
	Status    string `json:"status"`
	Message   string `json:"message"`
}

func (s *Server) monitor(ctx context.Context, c *call) (reply, error) {
	if strings.TrimSpace(c.args.text("command")) == "" {
		return reply{}, refuse("command is empty")
	}
	request := s.request(c)
	request.Monitor, request.Yield, request.CloseStdin = true, 0, true
	return s.launch(ctx, c, request)
}
