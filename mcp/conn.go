package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/yieldlog/yieldlog/producers"
)

const (
	// maxCalls bounds the calls in flight. Waiting calls are cheap, so the bound
	// only stops a client that has lost its mind.
	maxCalls = 4096
	// drainTime is how long calls in flight may go on after the end of input.
	drainTime = 1500 * time.Millisecond
	// stopTime is how long cancelled calls may take to wind up.
	stopTime = 5 * time.Second
)

// conn is one client, however its messages come and go: what is known of it, and
// its calls in flight.
type conn struct {
	server *Server
	peer   *peer
	out    *outbox // what the client is told unasked

	mu      sync.Mutex
	calls   map[string]*inflight
	ordered chan struct{} // closed once the last of the ordered calls has run; nil before the first
	leaving bool
	live    sync.WaitGroup // calls in flight; it grows under mu, until leaving
}

// connect makes a client known, until leave is called. What it is told goes to
// its outbox, which has to be closed before.
func (s *Server) connect(ctx context.Context, name string) (c *conn, leave func(), err error) {
	out := newOutbox()
	c = &conn{server: s, peer: newPeer(name, out), out: out, calls: map[string]*inflight{}}
	part, err := s.join(ctx, c.peer)
	if err != nil {
		return nil, nil, fmt.Errorf("joining the client: %w", err)
	}
	unwatch := s.opts.Feed.watch(c.peer)
	s.wakes.join(c.peer)
	return c, func() {
		s.wakes.leave(c.peer)
		unwatch()
		part()
	}, nil
}

// inflight is a call between its registration and its response.
type inflight struct {
	cancel    context.CancelFunc
	cancelled bool // guarded by conn.mu
}

// drain lets calls finish, cancels the ones that do not, and waits for them. No
// call begins any more.
func (c *conn) drain(ctx context.Context, cancel context.CancelFunc) {
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	idle := make(chan struct{})
	go func() { c.live.Wait(); close(idle) }()
	select {
	case <-idle:
		return
	case <-ctx.Done():
	case <-time.After(drainTime):
	}
	cancel()
	select {
	case <-idle:
	case <-time.After(stopTime):
		c.server.log.Warn("calls did not end in time", "calls", c.inFlight())
	}
}

func (c *conn) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// parse decodes a message, of which text is the bytes.
func parse(text []byte) (message, *rpcError) {
	m, bad := parseMessage(text)
	if !utf8.Valid(text) {
		bad = protocolError(codeParse, "the message is not valid UTF-8")
		if !utf8.Valid(m.ID) {
			m.ID = nil // nobody could read the answer
		}
	}
	return m, bad
}

// take handles a message, of which text is the bytes, and returns what is left
// to do where that may wait. The answer, and what is told before it, goes to out.
func (c *conn) take(ctx context.Context, m message, text []byte, out *outbox) (answer func()) {
	switch {
	case m.Method == "": // A response; the server asks nothing.
	case m.ID == nil && m.Method == "notifications/cancelled":
		c.cancel(m.Params)
	case m.ID == nil:
		c.server.handle(ctx, c.peer, text)
	case m.Method == "ping":
		out.put(responseLine(m.ID, "result", json.RawMessage("{}")))
	default:
		return c.begin(ctx, m, text, out)
	}
	return nil
}

// begin registers a call, so that a cancel right behind it finds it, and
// returns what runs it.
func (c *conn) begin(ctx context.Context, m message, text []byte, out *outbox) (answer func()) {
	id := idKey(m.ID)
	ctx, cancel := context.WithCancel(ctx)
	call := &inflight{cancel: cancel}
	if bad := c.register(id, call); bad != nil {
		cancel()
		out.put(errorLine(m.ID, bad))
		return nil
	}
	run := func() outLine { return outLine{data: c.server.handle(ctx, c.peer, text)} }
	if m.Method == "tools/call" {
		run = c.place(ctx, m, out)
	}
	return func() {
		defer c.live.Done()
		response := run()
		done := outLine{done: response.done}.finish
		response.done = func(written bool) { // before that nobody could tell it from a cancelled call
			done(written)
			cancel()
		}
		if c.unregister(id, call) && response.data != nil {
			out.putLine(response)
		} else {
			response.finish(false)
		}
	}
}

// place gives a tools/call its place, while calls are still in the order in which
// the client sent them, and returns what runs it.
func (c *conn) place(ctx context.Context, m message, out *outbox) func() outLine {
	var params callParams
	bad := json.Unmarshal(m.Params, &params)
	t := c.server.tools[params.Name]
	var turn *producers.Turn
	if t != nil && t.starts && c.server.opts.Session != nil {
		turn = c.server.opts.Session.Turn()
	}
	run := func() outLine { return c.server.callLine(ctx, out, m.ID, params, bad, turn) }
	if t == nil || !t.ordered {
		return run
	}
	done := make(chan struct{})
	c.mu.Lock()
	before := c.ordered
	c.ordered = done
	c.mu.Unlock()
	return func() outLine {
		defer close(done)
		if before != nil {
			<-before
		}
		return run()
	}
}

func (c *conn) register(id string, call *inflight) *rpcError {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving { // a line that was read meanwhile
		return protocolError(codeInternal, "the server is ending")
	}
	if len(c.calls) >= maxCalls {
		return protocolError(codeBusy, "%d calls are in flight: wait for some of them", maxCalls)
	}
	if _, taken := c.calls[id]; taken {
		return protocolError(codeInvalidRequest, "a request with id %s is in flight", id)
	}
	c.calls[id] = call
	c.live.Add(1)
	return nil
}

// unregister reports whether the call is to be answered.
func (c *conn) unregister(id string, call *inflight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
	return !call.cancelled
}

// cancel ends a call that is in flight. A late cancel finds nothing and does nothing.
func (c *conn) cancel(params json.RawMessage) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if call, ok := c.calls[idKey(p.RequestID)]; ok {
		call.cancelled = true
		call.cancel()
	}
}
