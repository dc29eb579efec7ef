package mcp

import (
	"context"
	"fmt"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

func (s *Server) readTool() *tool {
	return &tool{
		name: "read", title: "Read output",
		description: "Output of a command, running or finished, and its status. Without since_seq: the newest bytes. With since_seq: on from there, nothing skipped.",
		params: []param{
			processIDParam,
			{name: "since_seq", kind: kindInteger, min: minInteger, text: "Start here: a next_seq, or omitted.from_seq"},
			{name: "max_output_bytes", kind: kindInteger, min: minInteger, text: "Most bytes of each stream"},
			{name: "streams", kind: kindString, def: "both", enum: []string{"both", "stdout", "stderr"}},
			{name: "tail_lines", kind: kindInteger, min: 1, text: "Only the last lines"},
			{name: "rendered", kind: kindBoolean, text: "As seen: escapes dropped, overwritten lines once; of a tty its screen"},
			ownerParam,
		},
		output: briefSchema("process_id"),
		hints:  hints{readOnly: true, idempotent: true},
		eager:  true,
		run:    s.read,
	}
}

var processIDParam = param{name: "process_id", kind: kindString, required: true, text: "Handle from exec or ps"}

func (s *Server) read(ctx context.Context, c *call) (reply, error) {
	id := c.args.text("process_id")
	if c.args.has("since_seq") && c.args.has("tail_lines") {
		return reply{}, refuse("since_seq and tail_lines exclude each other: one reads on, the other shows the end")
	}
	p, ok, err := s.process(ctx, c.args.owner(), id, 0)
	if err != nil {
		return reply{}, fmt.Errorf("reading: %w", err)
	}
	if !ok {
		return unknown(id), nil
	}
	rendered := c.args.flag("rendered", false)
	if rendered && p.Requested.TTY != nil && p.Offset > 0 {
		return s.screen(ctx, c, p)
	}
	return s.observe(ctx, c, p, observation{rendered: rendered}, replay.PageRequest{
		From:      offset(c.args.integer("since_seq", 0)),
		Newest:    !c.args.has("since_seq"),
		Limit:     c.args.limit(),
		TailLines: clampInt(c.args.integer("tail_lines", 0)),
		Streams:   streams(c.args.text("streams")),
	})
}

// streams are the output kinds to show; none means all.
func streams(word string) []events.Kind {
	switch word {
	case "stdout":
		return []events.Kind{events.KindStdout}
	case "stderr":
		return []events.Kind{events.KindStderr}
	}
	return nil
}
