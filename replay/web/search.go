package web

import (
	"context"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

// The bounds of a search in output.
const (
	deepExecutions = 2_000
	deepBytes      = 64 << 20
	deepEach       = 1 << 20
	deepTime       = 2 * time.Second
)

// searchOutput keeps the executions that have the text in their command or in
// the first megabyte of their output, the newest first, until its time is up.
func (s *Server) searchOutput(ctx context.Context, q Query, v *list) error {
	ctx, cancel := context.WithTimeout(ctx, deepTime)
	defer cancel()
	v.Rows, v.Total, v.Pages, v.Page, v.Capped = nil, 0, 1, 1, false
	var candidates, found []projections.Process
	err := s.scene(ctx, q, func(sc *look.Scene, _ time.Time) {
		for p := range sc.Processes.All() {
			if len(candidates) >= deepExecutions {
				v.Capped = true
				break
			}
			if !p.Live() && q.selects(p) {
				candidates = append(candidates, p)
			}
		}
	})
	if err != nil {
		return err
	}
	left := int64(deepBytes)
	for _, p := range candidates {
		if ctx.Err() != nil || left <= 0 || len(found) >= pageRows {
			v.Capped = true
			break
		}
		if matches(p, q.Text) || s.outputHas(ctx, p, q.Text, &left) {
			found = append(found, p)
		}
	}
	v.Capped = v.Capped || ctx.Err() != nil // perhaps while the last was read
	v.Total = len(found)
	return s.scene(context.WithoutCancel(ctx), q, func(sc *look.Scene, now time.Time) {
		for _, p := range found {
			r := s.row(sc, p, q, now)
			r.ShowSession = true
			v.Rows = append(v.Rows, r)
		}
	})
}

func (s *Server) outputHas(ctx context.Context, p projections.Process, text string, left *int64) bool {
	text = strings.ToLower(text)
	var before string
	for e, err := range s.opts.Ledger.Output(ctx, p.Session, p.Execution, 0, deepEach) {
		if err != nil {
			return false
		}
		if o, ok := e.Body.(events.Output); ok {
			*left -= int64(len(o.Data))
			chunk := before + strings.ToLower(string(o.Data))
			if strings.Contains(chunk, text) {
				return true
			}
			before = chunk[max(0, len(chunk)-len(text)):] // it may lie across two chunks
		}
	}
	return false
}
