package producers

import (
	"bytes"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// The bounds of a batch of a monitor's lines.
const (
	batchLines = 100
	batchBytes = 4 << 10
	batchDelay = 500 * time.Millisecond
	// unreadMost bounds a monitor's unread batches, and those that wait behind
	// them: what comes beyond joins the last of these.
	unreadMost = 1000
)

// A monitor delivers an execution's lines through the mailbox, in batches that
// are ranges of its output. Only what the ledger holds is in a batch, and the
// next is posted when it holds the one before. While the owner leaves too many
// unread, the next ones wait, and the lines of the last of them become more than
// a batch has otherwise: none is lost, and none is mailed twice.
type monitor struct {
	execution, owner string
	request          events.Requested
	poke             chan struct{} // holds one token when there is something to do

	mu sync.Mutex
	// full are the batches that may hold no more, and open is the one that
	// lines are added to: its end is that of the last whole line.
	full []batch
	open batch
	// seen is the end of the output that was seen, edge that of its last whole
	// character within a line, and since when the open batch has lines.
	seen, edge int64
	since      time.Time
	total      int
	// unread counts the batches that were posted and not read.
	unread int
	ended  bool
	// counted says that the session waits for the last batches.
	counted bool
}

// A batch is the output [from, to) and its lines.
type batch struct {
	from, to int64
	lines    int
}

func newMonitor(e *execution, r events.Requested) *monitor {
	return &monitor{execution: e.id, owner: e.owner, request: r, poke: make(chan struct{}, 1)}
}

// add takes a chunk of output that is durable, in order. It runs on the
// ledger's goroutine.
func (m *monitor) add(offset int64, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(data) > 0 {
		room := min(int(m.open.from+batchBytes-offset), len(data))
		n := bytes.IndexByte(data[:room], '\n') + 1
		switch {
		case n > 0:
			m.line(offset + int64(n))
		case room == len(data): // the rest of the line is to come
			m.rest(offset, data)
			return
		case m.open.lines > 0: // the line begins the next batch
			m.shut()
			continue
		default: // longer than a batch
			end := m.cut(offset, data)
			m.line(end)
			m.shut()
			n = max(0, int(end-offset))
		}
		offset, data = offset+int64(n), data[n:]
	}
}

// rest notes the beginning of a line. The caller holds the lock.
func (m *monitor) rest(offset int64, data []byte) {
	m.seen = offset + int64(len(data))
	for i := len(data) - 1; i >= max(0, len(data)-utf8.UTFMax); i-- {
		if utf8.RuneStart(data[i]) {
			m.edge = m.seen
			if !utf8.FullRune(data[i:]) {
				m.edge = offset + int64(i)
			}
			return
		}
	}
}

// cut is where the open batch, which one line fills, ends: between characters,
// if there is such a place near its bound. The data begins in it, and goes on
// behind it. The caller holds the lock.
func (m *monitor) cut(offset int64, data []byte) int64 {
	bound := m.open.from + batchBytes
	for at := bound; at > bound-utf8.UTFMax && at >= offset && at > m.open.from; at-- {
		if utf8.RuneStart(data[at-offset]) {
			return at
		}
	}
	if m.edge > bound-utf8.UTFMax && m.edge <= offset {
		return m.edge
	}
	return bound
}

// line counts a line that ends there. The caller holds the lock.
func (m *monitor) line(end int64) {
	if m.open.lines == 0 {
		m.since = time.Now()
		m.wake()
	}
	m.open.to, m.seen = end, end
	m.total++
	if m.open.lines++; m.open.lines >= batchLines {
		m.shut()
	}
}

// shut ends the open batch. The caller holds the lock.
func (m *monitor) shut() {
	if n := len(m.full); n < unreadMost {
		m.full = append(m.full, m.open)
	} else {
		m.full[n-1].join(m.open)
	}
	m.open = batch{from: m.open.to, to: m.open.to}
	m.wake()
}

// join adds the batch that follows.
func (b *batch) join(next batch) { b.to, b.lines = next.to, b.lines+next.lines }

func (m *monitor) wake() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// finish ends the last batch, with a line that never ended, and returns how many
// lines there were in all.
func (m *monitor) finish() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen > m.open.to {
		m.line(m.seen)
	}
	if m.open.lines > 0 {
		m.shut()
	}
	m.counted = true
	return m.total
}

// leave lets run end: after the rest is delivered, or at once.
func (m *monitor) leave(deliver bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	if !deliver {
		m.full, m.open = nil, batch{}
	}
	m.wake()
}

// next is the batch to post now, or how long until there may be one. It
// reports over when there will be none. A closing session has no time for many
// batches, and an owner with too many unread is to have no more of them: both get
// what is left in one.
func (m *monitor) next(now time.Time, closing bool) (b batch, wait time.Duration, over bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open.lines > 0 && len(m.full) == 0 {
		if wait = m.since.Add(batchDelay).Sub(now); wait > 0 {
			return batch{}, wait, false
		}
		m.shut()
	}
	switch {
	case len(m.full) == 0:
		return batch{}, time.Hour, m.ended
	case m.unread >= unreadMost && !m.counted: // the end of the command is not held back
		return batch{}, time.Hour, false
	}
	b, m.full = m.full[0], m.full[1:]
	for (closing || m.unread >= unreadMost) && len(m.full) > 0 {
		b.join(m.full[0])
		m.full = m.full[1:]
	}
	m.unread++
	return b, 0, false
}

// read notes that a batch reached the owner.
func (m *monitor) read() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unread--
	m.wake()
}

// run posts the batches one by one, and the record of the end, if there is one,
// after them. It ends with the execution, or the session.
func (m *monitor) run(box *mailbox, end <-chan *letter) {
	defer m.over(box)
	for {
		b, wait, over := m.next(time.Now(), box.isClosing())
		switch {
		case over:
			if t := <-end; t != nil {
				box.post(t)
			}
			return
		case b.lines > 0:
			if !m.deliver(box, b) {
				return
			}
			continue
		}
		pause := time.NewTimer(wait)
		select {
		case <-m.poke:
		case <-pause.C:
		case <-box.shut:
			pause.Stop()
			return
		}
		pause.Stop()
	}
}

// over lets a session that waits for the last batches go on.
func (m *monitor) over(box *mailbox) {
	m.mu.Lock()
	counted := m.counted
	m.mu.Unlock()
	if counted {
		box.mu.Lock()
		defer box.mu.Unlock()
		box.land()
	}
}

// deliver posts a batch and waits until it is durable. It reports false when
// the session ends first. The record is named for its range, so that none is
// posted twice.
func (m *monitor) deliver(box *mailbox, b batch) bool {
	durable := make(chan struct{})
	box.post(box.add(&letter{landed: func() { close(durable) }, left: m.read, mail: Mail{
		ID: m.execution + "-" + strconv.FormatInt(b.from, 10), Session: box.session.id, Owner: m.owner, Unasked: true,
		Posted: events.Posted{
			Mail: events.MailMonitor, Execution: m.execution, From: b.from, To: b.to, Count: b.lines,
			Notice: projections.BatchNotice(m.request, b.lines),
		},
	}}))
	select {
	case <-durable:
		return true
	case <-box.shut:
		return false
	}
}
