package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// stdioConn is one client on a pair of streams.
type stdioConn struct {
	*conn

	in    io.Reader
	leave func()        // ends the connection
	lines *lineReader   // belongs to whoever has the turn
	turn  chan struct{} // holds the turn to read, unless somebody has it; closed at the end of input
	ended chan error    // takes how the input ended
	idle  int           // readers that wait for their turn; guarded by mu
}

// idleReaders is how many goroutines may wait for their turn to read.
const idleReaders = 4

// ServeStdio serves one client until in ends, out fails or ctx is done. After
// the end of input the calls in flight are answered, within a bound; then they
// are cancelled. It returns nil when the client simply left.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	// Notify, not Ignore: an ignored signal would be inherited by every command.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	known, leave, err := s.connect(ctx, "stdio")
	if err != nil {
		return err
	}
	defer leave()
	c := &stdioConn{
		conn: known,
		in:   in, leave: cancel, lines: newLineReader(in), turn: make(chan struct{}, 1), ended: make(chan error, 1),
	}

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
			m, bad := parse(line)
			if bad != nil {
				c.out.put(errorLine(m.ID, bad))
			} else if answer := c.take(ctx, m, line, c.out); answer != nil {
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
