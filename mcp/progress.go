package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// progressAfter is how long a call is silent at first.
	progressAfter = 2 * time.Second
	// progressEvery bounds the rate: four a second.
	progressEvery = 250 * time.Millisecond
	// progressAtLeast is the rate of a command that prints nothing: some clients
	// take progress as a sign of life.
	progressAtLeast = 5 * time.Second
)

// progress tells the client of a long call how its command is doing.
type progress struct {
	execution atomic.Pointer[string]
	stop      context.CancelFunc
	stopped   chan struct{}
}

// progressParams are those of notifications/progress.
type progressParams struct {
	Token    json.RawMessage `json:"progressToken"`
	Progress int64           `json:"progress"`
	Message  string          `json:"message"`
}

// startProgress notifies from now on, if the client wants to know. The caller
// must end it before it answers.
func (s *Server) startProgress(ctx context.Context, c *call) *progress {
	p := &progress{stop: func() {}, stopped: make(chan struct{})}
	if c.meta.progressToken == nil || c.notify == nil || s.opts.Feed == nil {
		close(p.stopped)
		return p
	}
	ctx, p.stop = context.WithCancel(ctx)
	go func() {
		defer close(p.stopped)
		s.report(ctx, c, p)
	}()
	return p
}

// of names the execution, once it is known.
func (p *progress) of(execution string) { p.execution.Store(&execution) }

// end returns once nothing more is sent.
func (p *progress) end() {
	p.stop()
	<-p.stopped
}

func (s *Server) report(ctx context.Context, c *call, p *progress) {
	began := time.Now()
	tick := time.NewTimer(progressAfter)
	defer tick.Stop()
	var shown int64
	var at time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tick.Reset(progressEvery)
		id := p.execution.Load()
		if id == nil {
			continue
		}
		offset, message := s.describeProgress(*id, time.Since(began))
		if offset == shown && !at.IsZero() && time.Since(at) < progressAtLeast {
			continue
		}
		shown, at = offset, time.Now()
		c.notify("notifications/progress", progressParams{
			Token: c.meta.progressToken, Progress: time.Since(began).Milliseconds(), Message: message,
		})
	}
}

// describeProgress is the output's length and the text of a notification.
func (s *Server) describeProgress(execution string, elapsed time.Duration) (offset int64, message string) {
	var lines int64
	var last string
	s.opts.Facts.View(func() {
		p, _ := s.opts.Processes.Get(execution)
		offset = p.Offset
		lines, last = s.opts.Feed.tails.of(execution)
	})
	unit := "lines"
	if lines == 1 {
		unit = "line"
	}
	message = fmt.Sprintf("%s: %d s, %d %s, %d bytes", execution, int(elapsed.Seconds()), lines, unit, offset)
	if last != "" {
		message += "\n" + last
	}
	return offset, message
}
