package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
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

// stdioConn is one client on a pair of streams.
type stdioConn struct {
	server *Server
	peer   *peer
	out    *outbox

	in    io.Reader
	leave func()        // ends the connection
	lines *lineReader   // belongs to whoever has the turn
	turn  chan struct{} // holds the turn to read, unless somebody has it; closed at the end of input
	ended chan error    // takes how the input ended

	mu      sync.Mutex
	calls   map[string]*inflight
	idle    int // readers that wait for their turn
	leaving bool
	live    sync.WaitGroup // calls in flight; it grows under mu, until leaving
}

// idleReaders is how many goroutines may wait for their turn to read.
const idleReaders = 4

// inflight is a call between its registration and its response.
type inflight struct {
	cancel    context.CancelFunc
	cancelled bool // guarded by stdioConn.mu
}

// ServeStdio serves one client until in ends, out fails or ctx is done. After
// the end of input the calls in flight are answered, within a bound; then they
// are cancelled. It returns nil when the client simply left.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// Notify, not Ignore: an ignored signal would be inherited by every command.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &stdioConn{
		server: s, out: newOutbox(), calls: map[string]*inflight{},
		in: in, leave: cancel, lines: newLineReader(in), turn: make(chan struct{}, 1), ended: make(chan error, 1),
	}
	c.peer = newPeer("stdio", c.out)
	leave, err := s.join(ctx, c.peer)
	if err != nil {
		return fmt.Errorf("joining the client: %w", err)
	}
	defer leave()
	defer s.opts.Feed.watch(c.peer)()
	s.wakes.join(c.peer)
	defer s.wakes.leave(c.peer)

	c.turn <- struct{}{}
	go c.serve(ctx)
	written := make(chan error, 1)
	go func() {
		err := c.out.run(out)
		cancel() // Nobody is left to answer.
		written <- err
	}()
	select {
	case err = <-c.ended:
	case <-ctx.Done():
	}
	s.wakes.leave(c.peer)
	c.drain(ctx, cancel)
	c.out.close()
	select {
	case werr := <-written:
		if werr != nil && !errors.Is(werr, syscall.EPIPE) && !errors.Is(werr, io.ErrClosedPipe) {
			err = errors.Join(err, fmt.Errorf("writing to the client: %w", werr))
		}
	case <-time.After(time.Second): // The client does not read: leave the writer behind.
	}
	return err
}

// drain lets calls finish, cancels the ones that do not, and waits for them. No
// call begins any more.
func (c *stdioConn) drain(ctx context.Context, cancel context.CancelFunc) {
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

func (c *stdioConn) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// serve reads in turn with others of its kind, and answers the call that it
// read while the next one reads on: a call is not handed to another thread,
// which would have to be woken first.
func (c *stdioConn) serve(ctx context.Context) {
	for range c.turn {
		answer, err := c.nextCall(ctx)
		if answer == nil {
			close(c.turn)
			c.ended <- err
			return
		}
		if !c.relieved(-1) {
			go c.serve(ctx)
		}
		c.turn <- struct{}{}
		answer()
		if !c.relieved(+1) {
			return
		}
	}
}

// relieved counts the goroutines that wait for their turn. It reports false,
// and counts nothing, when there is none to take away or no room for another.
func (c *stdioConn) relieved(by int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.idle + by; n < 0 || n > idleReaders {
		return false
	}
	c.idle += by
	return true
}

// nextCall takes lines up to the next call, and returns what answers it; nil at
// the end of input.
func (c *stdioConn) nextCall(ctx context.Context) (answer func(), err error) {
	for ctx.Err() == nil {
		if c.out.full() {
			c.await()
			continue
		}
		line, err := c.lines.next()
		switch {
		case errors.Is(err, errLineTooLong):
			c.out.put(errorLine(nil, protocolError(codeInvalidRequest, "%v", err)))
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe), errors.Is(err, os.ErrClosed):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading from the client: %w", err)
		default:
			if answer := c.take(ctx, line); answer != nil {
				return answer, nil
			}
		}
	}
	return nil, nil
}

// await blocks while the client leaves its answers unread. Nothing is read then,
// so that a client that has closed its end is looked for: it is given drainTime
// to take something, and then it has left.
func (c *stdioConn) await() {
	read := make(chan struct{})
	go func() {
		tick := time.NewTicker(drainTime)
		defer tick.Stop()
		for passed := int64(-1); ; {
			select {
			case <-read:
				return
			case <-tick.C:
			}
			now := c.out.passed.Load()
			if now == passed && hungUp(c.in) {
				c.leave()
				return
			}
			passed = now
		}
	}()
	c.out.await()
	close(read)
}

// take handles one line, and returns what is left to do where that may wait.
func (c *stdioConn) take(ctx context.Context, line []byte) (answer func()) {
	m, bad := parseMessage(line)
	if !utf8.Valid(line) {
		bad = protocolError(codeParse, "the line is not valid UTF-8")
		if !utf8.Valid(m.ID) {
			m.ID = nil // nobody could read the answer
		}
	}
	switch {
	case bad != nil:
		c.out.put(errorLine(m.ID, bad))
	case m.Method == "": // A response; the server asks nothing.
	case m.ID == nil && m.Method == "notifications/cancelled":
		c.cancel(m.Params)
	case m.ID == nil:
		c.server.handle(ctx, c.peer, line)
	case m.Method == "ping":
		c.out.put(responseLine(m.ID, "result", json.RawMessage("{}")))
	default:
		return c.begin(ctx, m, line)
	}
	return nil
}

// begin registers a call, so that a cancel right behind it finds it, and
// returns what runs it.
func (c *stdioConn) begin(ctx context.Context, m message, line []byte) (answer func()) {
	id := idKey(m.ID)
	ctx, cancel := context.WithCancel(ctx)
	call := &inflight{cancel: cancel}
	if bad := c.register(id, call); bad != nil {
		cancel()
		c.out.put(errorLine(m.ID, bad))
		return nil
	}
	// Drawn here, where calls are still in the order in which the client sent them.
	var turn *producers.Turn
	if m.Method == "tools/call" && c.server.opts.Session != nil {
		turn = c.server.opts.Session.Turn()
	}
	return func() {
		defer c.live.Done()
		defer cancel()
		var response outLine
		if m.Method == "tools/call" {
			response = c.server.callLine(ctx, c.peer, m, turn)
		} else {
			response.data = c.server.handle(ctx, c.peer, line)
		}
		switch wanted := c.unregister(id, call); {
		case wanted && response.data != nil:
			c.out.putLine(response)
		case response.done != nil:
			response.done(false)
		}
	}
}

func (c *stdioConn) register(id string, call *inflight) *rpcError {
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
func (c *stdioConn) unregister(id string, call *inflight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
	return !call.cancelled
}

// cancel ends a call that is in flight. A late cancel finds nothing and does nothing.
func (c *stdioConn) cancel(params json.RawMessage) {
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
