package ledger

import (
	"sync"
	"time"
)

// LatencyBounds are the upper bounds of the buckets of [Stats], in seconds. A
// last bucket takes what is above.
var LatencyBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Stats says how the appends of one process go.
type Stats struct {
	// Queued counts the events in the outbox, and QueuedBytes their data.
	Queued      int `json:"queued"`
	QueuedBytes int `json:"queued_bytes"`
	// Appended counts what was stored since the ledger was opened, and Refused
	// what was not taken.
	Appended uint64 `json:"appended"`
	Refused  uint64 `json:"refused"`
	// StalledSeconds is how long appends have not gone through, or 0.
	StalledSeconds float64 `json:"stalled_seconds"`
	// Stalls counts the times that they did not.
	Stalls uint64 `json:"stalls"`
	// Unreadable counts the messages that were read and are no events.
	Unreadable int `json:"unreadable"`
	// Latency counts appends by the time from their sending to their
	// acknowledgement, one count for each of [LatencyBounds] and one above, and
	// LatencySum is the sum of those times in seconds.
	Latency    []uint64 `json:"latency"`
	LatencySum float64  `json:"latency_sum"`
}

// Stats tells how this process's appends go.
func (l *Ledger) Stats() Stats {
	s := l.tally.read()
	for _, o := range []*outbox{l.lifecycle, l.output} {
		o.mu.Lock()
		s.Queued += len(o.queue)
		for _, e := range o.queue {
			s.QueuedBytes += e.size
		}
		o.mu.Unlock()
	}
	if since := l.StalledSince(); !since.IsZero() {
		s.StalledSeconds = time.Since(since).Seconds()
	}
	s.Unreadable = l.unreadable.count()
	return s
}

// A tally counts appends that ended.
type tally struct {
	mu      sync.Mutex
	stats   Stats
	stalled time.Time // when the last stall ended
}

// stored counts an append that took so long.
func (t *tally) stored(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stats.Latency == nil {
		t.stats.Latency = make([]uint64, len(LatencyBounds)+1)
	}
	i := 0
	for i < len(LatencyBounds) && took.Seconds() > LatencyBounds[i] {
		i++
	}
	t.stats.Latency[i]++
	t.stats.LatencySum += took.Seconds()
	t.stats.Appended++
	if took >= stallAfter {
		t.stall(time.Now().Add(-took))
	}
}

// stall counts a stall that began then, and ended now. What waited behind the
// first append of a stall began before that one ended: it is the same stall.
func (t *tally) stall(began time.Time) {
	if began.After(t.stalled) {
		t.stats.Stalls++
	}
	t.stalled = time.Now()
}

func (t *tally) refused() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Refused++
}

func (t *tally) read() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Latency = append(make([]uint64, 0, len(LatencyBounds)+1), s.Latency...)
	for len(s.Latency) <= len(LatencyBounds) {
		s.Latency = append(s.Latency, 0)
	}
	return s
}
