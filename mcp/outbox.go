package mcp

import (
	"bufio"
	"io"
	"sync"
	"sync/atomic"
)

// outboxHigh is how many messages may wait before the reader stops taking new
// lines: a client that does not read its answers is not served more.
const outboxHigh = 1024

// outbox is the queue in front of the only writer. Messages leave in the order
// in which they were put.
type outbox struct {
	mu      sync.Mutex
	changed *sync.Cond
	lines   []outLine
	closed  bool
	// passed counts the bytes that the client took.
	passed atomic.Int64
}

// outLine is a queued message.
type outLine struct {
	data []byte
	note bool // it is an offered notification
	// done, if set, is told whether the message was written. It is called once.
	done func(written bool)
}

// finish tells whether it was written.
func (l outLine) finish(written bool) {
	if l.done != nil {
		l.done(written)
	}
}

func newOutbox() *outbox {
	o := &outbox{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// put queues a line, without its newline. It never blocks; after close the line
// is dropped.
func (o *outbox) put(line []byte) { o.putLine(outLine{data: line}) }

func (o *outbox) putLine(line outLine) {
	if !o.add(line) {
		line.finish(false)
	}
}

func (o *outbox) add(line outLine) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.lines = append(o.lines, line)
		o.changed.Broadcast()
	}
	return !o.closed
}

// offer queues a line that may be dropped while others wait.
func (o *outbox) offer(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed && len(o.lines) < outboxHigh/16 {
		o.lines = append(o.lines, outLine{data: line, note: true})
		o.changed.Broadcast()
	}
}

// full reports whether so much waits that await would block.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lines) >= outboxHigh && !o.closed
}

// await blocks while the queue is full.
func (o *outbox) await() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.lines) >= outboxHigh && !o.closed {
		o.changed.Wait()
	}
}

// close lets run return once it has written what is queued.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Broadcast()
}

// run writes until the outbox is closed and empty, or w fails.
func (o *outbox) run(w io.Writer) error {
	buffered := bufio.NewWriterSize(&counted{w, &o.passed}, 64<<10)
	for {
		lines := o.take()
		if lines == nil {
			return nil
		}
		for _, line := range lines {
			_, _ = buffered.Write(line.data) // Flush reports the first error.
			_ = buffered.WriteByte('\n')
		}
		err := buffered.Flush()
		if err != nil {
			o.close()
			lines = append(lines, o.take()...) // what is left will not be written
		}
		for _, line := range lines {
			line.finish(err == nil)
		}
		if err != nil {
			return err
		}
	}
}

// hand passes the messages on one by one until the outbox is closed and empty;
// once gone is closed it drops them.
func (o *outbox) hand(to chan<- outLine, gone <-chan struct{}) {
	defer close(to)
	for lines := o.take(); lines != nil; lines = o.take() {
		for _, line := range lines {
			select {
			case to <- line:
			case <-gone:
				line.finish(false)
			}
		}
	}
}

// counted counts what is written.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// take waits for lines and takes them all; nil means closed.
func (o *outbox) take() []outLine {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.lines) == 0 {
		if o.closed {
			return nil
		}
		o.changed.Wait()
	}
	lines := o.lines
	o.lines = nil
	o.changed.Broadcast()
	return lines
}
