package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

const (
	defaultMatches = 50
	// maxMatchText bounds the text of a match, in bytes.
	maxMatchText = 300
	// maxSearch bounds a search: clients give up after a minute.
	maxSearch = 40 * time.Second
)

func (s *Server) searchTool() *tool {
	return &tool{
		name: "search", title: "Search output",
		description: "Find lines in recorded output and commands, the newest command first.",
		params: []param{
			{name: "pattern", kind: kindString, required: true, text: "Regular expression (RE2), within a line"},
			{name: "ignore_case", kind: kindBoolean},
			{name: "process_id", kind: kindString, text: "Only this command"},
			{name: "earlier", kind: kindBoolean, text: "Also earlier sessions"},
			{name: "limit", kind: kindInteger, min: 1, def: defaultMatches},
			ownerParam,
		},
		output: object(map[string]any{"matches": "array", "truncated": "boolean", "error": "string"}),
		hints:  hints{readOnly: true, idempotent: true},
		run:    s.search,
	}
}

// match is one line that was found. Its since_seq is for read.
type match struct {
	ProcessID string      `json:"process_id"`
	Stream    events.Kind `json:"stream,omitempty"`
	Line      int64       `json:"line,omitempty"`
	SinceSeq  int64       `json:"since_seq,omitempty"`
	Text      string      `json:"text"`
}

func (s *Server) search(ctx context.Context, c *call) (reply, error) {
	q := replay.Query{
		Pattern: c.args.text("pattern"), IgnoreCase: c.args.flag("ignore_case", false),
		Owner: c.args.owner(), Execution: c.args.text("process_id"), NewestFirst: true,
	}
	switch {
	case q.Execution != "":
		p, ok, err := s.process(ctx, q.Owner, q.Execution, 0)
		if err != nil {
			return reply{}, fmt.Errorf("searching: %w", err)
		}
		if !ok {
			return unknown(q.Execution), nil
		}
		q.Session = p.Session
	case !c.args.flag("earlier", false):
		q.Session = s.opts.Session.ID()
	}
	ctx, cancel := context.WithTimeout(ctx, maxSearch)
	defer cancel()
	out := struct {
		Matches   []match `json:"matches"`
		Truncated bool    `json:"truncated"`
	}{Matches: []match{}}
	limit, size := clampInt(c.args.integer("limit", defaultMatches)), 0
	for m, err := range s.opts.Search(ctx, q) {
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded): // whatever the read calls it
			return reply{}, tooLong()
		case ctx.Err() != nil:
			return reply{}, fmt.Errorf("searching: %w", ctx.Err())
		case err != nil:
			return reply{}, refuse("%v", err)
		}
		if out.Truncated = len(out.Matches) == limit || size > inlineBudget/3; out.Truncated {
			break
		}
		found := match{ProcessID: m.Execution, Stream: m.Stream, Line: m.Line, Text: shorten(m.Text, maxMatchText)}
		if m.Stream != "" {
			found.SinceSeq = seq(m.Offset)
		}
		out.Matches = append(out.Matches, found)
		size += len(encode(found))
	}
	if !out.Truncated && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return reply{}, tooLong()
	}
	return answer(out), nil
}

func tooLong() error {
	return refuse("the search took more than %v: name a process_id, or a simpler pattern", maxSearch)
}
