package producers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/yieldlog/yieldlog/events"
)

const (
	// inFlightMost bounds the output events of an execution that are not
	// acknowledged: beyond it the pipe is not read, and the command waits.
	inFlightMost = 8
	// firstBuffer is the size at which a pump's buffer starts; it grows up to
	// a chunk's while the command keeps filling it.
	firstBuffer = 16 << 10
	// busyBuffer is the size of the buffer from which a command is busy: its
	// pipe may then hold more, which makes for fewer and larger chunks.
	busyBuffer = 64 << 10
	// lastGulp bounds what is read from a pipe that is cut off: more than a
	// pipe holds.
	lastGulp = 1 << 20
)

// An outlet puts the streams of an execution into one output order.
type outlet struct {
	e        *execution
	limit    int64
	inFlight chan struct{}
	end      atomic.Int64 // the offset of the next byte

	order sync.Mutex // held from taking an offset until the event is queued
	full  bool       // the limit is passed

	mu   sync.Mutex
	sums map[events.Kind]*streamSum
	cut  bool
	err  error // why output was not recorded
}

type streamSum struct {
	bytes, raw int64
	hash       hash.Hash
}

func (s *streamSum) add(data []byte) {
	s.bytes += int64(len(data))
	s.hash.Write(data)
}

// fillSums puts the sums into a settlement.
func fillSums(s *events.Settled, sums map[events.Kind]*streamSum) {
	for kind, field := range map[events.Kind]*events.StreamSum{
		events.KindStdout: &s.Stdout, events.KindStderr: &s.Stderr, events.KindTTY: &s.TTY,
	} {
		if sum, ok := sums[kind]; ok {
			*field = events.StreamSum{Bytes: sum.bytes, Raw: sum.raw, SHA256: hex.EncodeToString(sum.hash.Sum(nil))}
		}
	}
}

func newOutlet(e *execution, limit int64) *outlet {
	return &outlet{e: e, limit: limit, inFlight: make(chan struct{}, inFlightMost), sums: map[events.Kind]*streamSum{}}
}

// offset is the length of the output so far, in bytes.
func (o *outlet) offset() int64 { return o.end.Load() }

// put posts the bytes, in chunks. It waits while too much is in flight.
func (o *outlet) put(kind events.Kind, p []byte) {
	for len(p) > 0 {
		n := min(len(p), events.MaxChunk)
		o.inFlight <- struct{}{}
		if !o.post(kind, p[:n]) {
			<-o.inFlight
			return
		}
		p = p[n:]
	}
}

// post posts one chunk. It reports false when the output is over its limit or
// cannot be recorded; the command is then being ended.
func (o *outlet) post(kind events.Kind, p []byte) bool {
	o.order.Lock()
	defer o.order.Unlock()
	at := o.end.Load()
	if o.limit > 0 && at+int64(len(p)) > o.limit && !o.full {
		o.full = true
		go o.e.end(stopOrder{cause: events.TermOutputLimit, signal: syscall.SIGTERM, force: stopGrace})
	}
	if o.full {
		p = p[:min(int64(len(p)), o.limit-at)]
	}
	if len(p) == 0 || o.failed() {
		return false
	}
	data := append([]byte(nil), p...) // the ledger keeps it until it is acknowledged
	o.count(kind, data)
	o.end.Add(int64(len(data)))
	done := func(_ events.Event, err error) {
		o.fail(err)
		if m := o.e.monitor; m != nil && err == nil {
			m.add(at, data)
		}
		<-o.inFlight
	}
	if err := o.e.session.ledger.Post(o.e.session.life, o.e.event(events.Output{Stream: kind, Offset: at, Data: data}), done); err != nil {
		o.fail(err)
		return false
	}
	return true
}

func (o *outlet) count(kind events.Kind, data []byte) {
	s := o.sum(kind)
	o.mu.Lock()
	defer o.mu.Unlock()
	s.add(data)
}

func (o *outlet) sum(kind events.Kind) *streamSum {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, ok := o.sums[kind]
	if !ok {
		s = &streamSum{hash: sha256.New()}
		o.sums[kind] = s
	}
	return s
}

// wrote counts bytes as the command wrote them, and says whether it was cut off.
func (o *outlet) wrote(kind events.Kind, n int64, cut bool) {
	s := o.sum(kind)
	o.mu.Lock()
	defer o.mu.Unlock()
	s.raw += n
	o.cut = o.cut || cut
}

// fail keeps the first reason why output could not be recorded, and ends the
// command: what it writes would be lost.
func (o *outlet) fail(err error) {
	if err == nil {
		return
	}
	o.mu.Lock()
	first := o.err == nil
	if first {
		o.err = err
	}
	o.mu.Unlock()
	if first {
		go o.e.end(stopOrder{cause: events.TermStalled, signal: syscall.SIGKILL, force: 0})
	}
}

func (o *outlet) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err != nil
}

// passedLimit reports whether the command wrote more than it may.
func (o *outlet) passedLimit() bool {
	o.order.Lock()
	defer o.order.Unlock()
	return o.full
}

// flush waits until everything posted is acknowledged.
func (o *outlet) flush() {
	for range inFlightMost {
		o.inFlight <- struct{}{}
	}
}

// summary fills in what the settlement says of the output.
func (o *outlet) summary(s *events.Settled) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Offset, s.CutOff = o.end.Load(), o.cut
	fillSums(s, o.sums)
	if o.err != nil {
		s.Error = "recording the output: " + o.err.Error()
	}
}

// A stream is the reading end of one of the command's outputs.
type stream struct {
	kind events.Kind
	file *os.File
}

// A pump moves one stream into the outlet.
type pump struct {
	stream
	out    *outlet
	redact *redactor
}

func newPump(out *outlet, s stream, secrets []string) *pump {
	return &pump{stream: s, out: out, redact: newRedactor(secrets)}
}

// run reads to the end of file, or until the stream is cut off. It reads at
// once and posts once spawned is in the ledger.
func (p *pump) run() {
	buf := make([]byte, firstBuffer)
	for {
		n, err := p.file.Read(buf)
		p.take(buf[:n])
		if err != nil {
			p.finish(err)
			return
		}
		if n == len(buf) && n < events.MaxChunk {
			buf = make([]byte, 2*n)
			if len(buf) == busyBuffer {
				widen(p.file)
			}
		}
	}
}

func (p *pump) take(b []byte) {
	if len(b) == 0 {
		return
	}
	<-p.out.e.spawned
	p.out.wrote(p.kind, int64(len(b)), false)
	p.out.put(p.kind, p.redact.Write(b))
}

// finish takes what a stream that was cut off still holds, and what redaction held back.
func (p *pump) finish(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.out.wrote(p.kind, 0, !p.gulp())
	}
	if held := p.redact.Flush(); len(held) > 0 {
		<-p.out.e.spawned
		p.out.put(p.kind, held)
	}
}

// gulp reads what is in the pipe now, and reports whether that was all there
// will ever be.
func (p *pump) gulp() (ended bool) {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return false
	}
	buf := make([]byte, 64<<10)
	for total := 0; total < lastGulp; {
		n, err := 0, error(nil)
		if ctl := raw.Control(func(fd uintptr) { n, err = readNow(fd, buf) }); ctl != nil || err != nil {
			return false
		}
		if n == 0 {
			return true
		}
		p.take(buf[:n])
		total += n
	}
	return false
}

// cutOff ends the reading of a stream whose writer does not end.
func (s stream) cutOff() { _ = s.file.SetReadDeadline(aLongTimeAgo) }
