package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay"
)

const (
	defaultWait = 30 * time.Second
	// maxWait stays under the shortest timeout of the clients, a minute.
	maxWait = 55 * time.Second
)

func (s *Server) waitTool() *tool {
	return &tool{
		name: "wait", title: "Wait for the end",
		description: "Wait until a command ends, then answer with its status and output. After timeout_ms (at most 55000) it answers with what there is; the command goes on.",
		params: []param{
			processIDParam,
			{name: "timeout_ms", kind: kindInteger, min: minInteger, def: defaultWait.Milliseconds()},
			{name: "max_output_bytes", kind: kindInteger, min: minInteger},
			ownerParam,
		},
		output: briefSchema("process_id"),
		hints:  hints{readOnly: true, idempotent: true},
		eager:  true,
		run:    s.wait,
	}
}

func (s *Server) wait(ctx context.Context, c *call) (reply, error) {
	id, owner := c.args.text("process_id"), c.args.owner()
	progress := s.startProgress(ctx, c)
	progress.of(id)
	result, err := s.opts.Session.Wait(ctx, owner, id, min(c.args.millis("timeout_ms", defaultWait), maxWait))
	progress.end()
	c.claimed(result.Claim)
	if err != nil && !errors.Is(err, producers.ErrUnknown) {
		return reply{}, fmt.Errorf("waiting: %w", err)
	}
	if result.Outcome == producers.Refused { // when its turn came, or before
		return refused(id, result), nil
	}
	p, ok, err := s.process(ctx, owner, id, result.Seq)
	if err != nil {
		return reply{}, err
	}
	if !ok {
		return unknown(id), nil
	}
	o := observation{Command: shorten(p.Requested.Command, maxCommandEcho)}
	return s.observe(ctx, c, p, o, replay.PageRequest{HeadTail: true, Limit: c.args.limit()})
}
