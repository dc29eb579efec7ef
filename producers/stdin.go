package producers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/yieldlog/yieldlog/events"
)

// stdinMost bounds the input that is queued for a command that does not read
// it, in bytes. The first input may be larger.
const stdinMost = 8 << 20

// stdin delivers input to a command in order, without making its writers wait.
// What comes before the command runs is kept for it.
type stdin struct {
	tty bool

	mu      sync.Mutex
	file    *os.File // nil until the command runs
	queue   [][]byte
	queued  int // bytes
	closing bool
	busy    bool // deliver runs
	midLine bool // the last byte that was queued ends no line
	broken  error
}

func newStdin(tty bool, first Input) *stdin {
	s := &stdin{tty: tty}
	if len(first.Data) > 0 || first.Close {
		_ = s.put(first) // a fresh queue takes the first input, whatever its size
	}
	return s
}

// attach gives the input to the command, which runs now.
func (s *stdin) attach(f *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = f
	s.hurry()
}

// hurry has what is queued delivered. The caller holds the lock.
func (s *stdin) hurry() {
	if s.file != nil && !s.busy && (len(s.queue) > 0 || s.closing) {
		s.busy = true
		go s.deliver()
	}
}

// endOfInput is what ends the input of a terminal at the start of a line: ^D.
// The terminal itself stays open, for its output.
var endOfInput = []byte{4}

// put queues input. It fails when standard input is closed, or when the
// command leaves too much unread.
func (s *stdin) put(in Input) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil:
		return fmt.Errorf("%w: %w", ErrInput, s.broken)
	case s.closing:
		return fmt.Errorf("%w: it is closed", ErrInput)
	case s.queued > 0 && len(in.Data) > 0 && s.queued+len(in.Data) > stdinMost:
		return fmt.Errorf("%w: the command has left %d bytes unread, and at most %d wait: write on once it has read", ErrInput, s.queued, stdinMost)
	}
	if in.Resize != nil {
		if err := s.resize(*in.Resize); err != nil {
			return err
		}
	}
	s.add(in.Data)
	if in.Close && s.tty {
		if s.midLine { // the first one only hands over the line so far
			s.add(endOfInput)
		}
		s.add(endOfInput)
	}
	s.closing = in.Close
	s.hurry()
	return nil
}

func (s *stdin) add(p []byte) {
	if len(p) > 0 {
		s.queue = append(s.queue, p)
		s.queued += len(p)
		s.midLine = !bytes.HasSuffix(p, []byte{'\n'}) && !bytes.HasSuffix(p, []byte{'\r'})
	}
}

// resize changes the size of the terminal.
func (s *stdin) resize(size events.Size) error {
	switch {
	case !s.tty:
		return fmt.Errorf("%w: it is no terminal, and has no size", ErrInput)
	case s.file == nil:
		return fmt.Errorf("%w: there is no terminal before the command runs", ErrInput)
	}
	return setSize(s.file, size)
}

// deliver writes until nothing is queued.
func (s *stdin) deliver() {
	for {
		p := s.next()
		if p == nil {
			return
		}
		_, err := s.file.Write(p)
		s.wrote(len(p), err)
	}
}

// next is what to write, or nil when deliver is to end.
func (s *stdin) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 || s.broken != nil {
		if s.closing && !s.tty || s.broken != nil {
			_ = s.file.Close() // there is nobody to tell
		}
		s.busy = false
		return nil
	}
	p := s.queue[0]
	s.queue = s.queue[1:]
	return p
}

func (s *stdin) wrote(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued -= n
	if errors.Is(err, syscall.EPIPE) {
		err = errors.New("the command has closed it")
	}
	if err != nil {
		s.broken = err
	}
}

// close gives up what is queued: the process is gone.
func (s *stdin) close() {
	s.mu.Lock()
	if s.broken == nil {
		s.broken = errors.New("the process has ended")
	}
	s.mu.Unlock()
	_ = s.file.Close() // unblocks deliver; closing twice is harmless
}
