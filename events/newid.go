package events

import (
	"crypto/rand"
	"sync"

	"github.com/oklog/ulid/v2"
)

// NewID returns a new ULID, greater than every one that the process made before,
// also when its clock steps back. It is safe for concurrent use.
func NewID() string { return ids.next(ulid.Now()) }

var ids = idSource{entropy: ulid.Monotonic(rand.Reader, 0)}

// An idSource makes ids that grow.
type idSource struct {
	mu      sync.Mutex
	last    uint64 // the greatest time so far, in milliseconds
	entropy *ulid.MonotonicEntropy
}

// next is the next id at the clock's time, in milliseconds. Within a millisecond,
// and while the clock is behind, the random part grows.
func (s *idSource) next(now uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, now)
	id, err := ulid.New(s.last, s.entropy)
	if err != nil { // the random part is at its end, after some 2^48 ids: a new one, of the next millisecond
		s.last++
		id = ulid.MustNew(s.last, s.entropy)
	}
	return id.String()
}
