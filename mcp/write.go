package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/yieldlog/yieldlog/producers"
)

func (s *Server) writeTool() *tool {
	return &tool{
		name: "write", title: "Write to stdin",
		description: "Write text to the stdin of a running command.",
		params: []param{
			processIDParam,
			inputParam,
			{name: "newline", kind: kindBoolean, def: false},
			{name: "close_stdin", kind: kindBoolean, text: "Close stdin after that"},
			{name: "rows", kind: kindInteger, min: 1, text: "Resize the terminal, with cols"},
			{name: "cols", kind: kindInteger, min: 1},
			ownerParam,
		},
		output: object(map[string]any{"process_id": "string", "ok": "boolean", "bytes": "integer", "error": "string"}, "process_id"),
		hints:  hints{destructive: true, openWorld: true},

		ordered: true,
		run:     s.write,
	}
}

var inputParam = param{name: "input", kind: kindString, expected: true, text: "Text"}

// written is the answer of write.
type written struct {
	ProcessID string `json:"process_id"`
	OK        bool   `json:"ok"`
	Bytes     int    `json:"bytes"`
	Error     string `json:"error,omitempty"`
}

func (s *Server) write(ctx context.Context, c *call) (reply, error) {
	id, input := c.args.text("process_id"), c.args.text("input")
	resize := c.args.has("rows") || c.args.has("cols")
	if !c.args.has("input") && !c.args.has("close_stdin") && !resize {
		return reply{}, refuse("input is required: %s", inputParam.text)
	}
	if c.args.flag("newline", false) {
		input += "\n"
	}
	in := producers.Input{Data: []byte(input), Close: c.args.flag("close_stdin", false)}
	if resize {
		p, _, err := s.process(ctx, c.args.owner(), id, 0)
		if err != nil {
			return reply{}, err
		}
		in.Resize = c.args.size(p.Size) // what is not named stays
	}
	err := s.opts.Session.Write(c.args.owner(), id, in)
	switch {
	case err == nil:
		return answer(written{ProcessID: id, OK: true, Bytes: len(input)}), nil
	case errors.Is(err, producers.ErrUnknown):
		p, ok, err := s.process(ctx, c.args.owner(), id, 0)
		if err != nil {
			return reply{}, err
		}
		if !ok {
			return answer(struct {
				notKnown
				OK bool `json:"ok"`
			}{notKnown: unknownTo(id)}), nil
		}
		return answer(written{ProcessID: id, Error: *ended(p).Error}), nil
	case ctx.Err() != nil:
		return reply{}, fmt.Errorf("writing: %w", err)
	}
	return answer(written{ProcessID: id, Error: err.Error()}), nil
}
