package producers

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// stdinMost bounds the input that is queued for a command that does not read
// it, in bytes. The first input may be larger.
const stdinMost = 8 << 20

// stdin delivers input to a command in order, without making its writers wait.
type stdin struct {
	file *os.File

	mu      sync.Mutex
	queue   [][]byte
	queued  int // bytes
	closing bool
	busy    bool // deliver runs
	broken  error
}

func newStdin(f *os.File) *stdin { return &stdin{file: f} }

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
	case s.queued > 0 && s.queued+len(in.Data) > stdinMost:
		return fmt.Errorf("%w: the command has left %d bytes unread", ErrInput, s.queued)
	}
	if len(in.Data) > 0 {
		s.queue = append(s.queue, in.Data)
		s.queued += len(in.Data)
	}
	s.closing = in.Close
	if !s.busy {
		s.busy = true
		go s.deliver()
	}
	return nil
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
		if s.closing || s.broken != nil {
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
