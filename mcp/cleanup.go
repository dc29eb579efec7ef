package mcp

import (
	"context"
	"fmt"
	"time"
)

const defaultCleanupAge = time.Hour

func (s *Server) cleanupTool() *tool {
	return &tool{
		name: "cleanup", title: "Forget finished commands",
		description: "Forget commands that ended long ago: their process_id becomes unknown. Their record stays in the ledger.",
		params: []param{
			{name: "completed_older_than_ms", kind: kindInteger, min: minInteger, def: defaultCleanupAge.Milliseconds()},
			{name: "stopped_older_than_ms", kind: kindInteger, min: minInteger, def: defaultCleanupAge.Milliseconds(), text: "For stopped, timed out and failed ones"},
			ownerParam,
		},
		output: object(map[string]any{"removed": "integer"}),
		hints:  hints{destructive: true, idempotent: true},
		run:    s.cleanup,
	}
}

func (s *Server) cleanup(ctx context.Context, c *call) (reply, error) {
	removed, err := s.opts.Session.Cleanup(ctx, c.args.owner(),
		c.args.millis("completed_older_than_ms", defaultCleanupAge),
		c.args.millis("stopped_older_than_ms", defaultCleanupAge))
	if err != nil {
		return reply{}, fmt.Errorf("cleaning up: %w", err)
	}
	lost, err := s.legacy.forget(ctx, c.args.owner(), c.args.millis("stopped_older_than_ms", defaultCleanupAge))
	if err != nil && ctx.Err() != nil {
		return reply{}, fmt.Errorf("cleaning up: %w", err)
	} // otherwise they cannot be looked for now, and stay
	return answer(struct {
		Removed int `json:"removed"`
	}{removed + lost}), nil
}
