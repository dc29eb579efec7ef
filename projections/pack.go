package projections

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// dictionary numbers the strings that many executions have in common, so that
// each is kept once.
type dictionary struct {
	terms []string
	index map[string]uint64
}

// share returns the dictionary's copy of s.
func (d *dictionary) share(s string) string { return d.terms[d.number(s)] }

// own is a copy of s that keeps no larger string alive.
func (*dictionary) own(s string) string { return strings.Clone(s) }

func (d *dictionary) number(s string) uint64 {
	if n, ok := d.index[s]; ok {
		return n
	}
	if d.index == nil {
		d.index = map[string]uint64{}
	}
	s = strings.Clone(s)
	n := uint64(len(d.terms))
	d.terms, d.index[s] = append(d.terms, s), n
	return n
}

// The flags of a packed execution.
const (
	flagYielded = 1 << iota
	flagForgotten
	flagRewound
	flagMonitor
	flagTTY
	flagExitCode
	flagCutOff
	flagSums
	// flagTime and the four bits after it say which times are set.
	flagTime
)

// pack is a settled execution without anomalies in about 150 bytes. unpack is
// its inverse; both walk the fields in one order.
func (d *dictionary) pack(v *process) string {
	w := packer{buf: make([]byte, 0, 256), terms: d}
	r, s := &v.Requested, v.Settled
	w.uint(packFlags(v))
	w.text(v.Execution)
	w.term(v.Session)
	w.term(v.Owner)
	w.text(r.Command)
	w.text(r.Name)
	w.term(r.Cwd)
	w.term(r.Shell)
	w.list(r.SideEffects)
	w.list(r.Env)
	w.int(int64(r.StdinBytes))
	w.int(r.YieldMS)
	w.int(r.TimeoutMS)
	w.int(r.OutputLimit)
	if r.TTY != nil {
		w.int(int64(r.TTY.Rows))
		w.int(int64(r.TTY.Cols))
		w.int(int64(v.Size.Rows - r.TTY.Rows))
		w.int(int64(v.Size.Cols - r.TTY.Cols))
	}
	w.uint(uint64(len(r.Client)))
	for _, k := range slices.Sorted(maps.Keys(r.Client)) {
		w.term(k)
		w.text(r.Client[k])
	}
	w.text(r.Trace)
	for _, t := range v.times() {
		w.time(*t)
	}
	w.uint(v.RequestedSeq)
	w.uint(v.Seq - v.RequestedSeq)
	w.int(int64(v.PID))
	w.int(int64(v.PGID - v.PID))
	w.uint(v.Start)
	w.term(v.Boot)
	w.int(v.Offset - s.Offset)
	w.int(v.outEnd - s.Offset)
	w.uint(uint64(len(v.Pruned)))
	for _, span := range v.Pruned {
		w.int(span.From)
		w.int(span.To)
	}
	w.settled(s)
	return string(w.buf)
}

func (d *dictionary) unpack(packed string) process {
	r := unpacker{rest: packed, terms: d.terms}
	flags := r.uint()
	v := process{Process: Process{State: StateCompleted}}
	v.Yielded, v.Forgotten, v.Rewound = flags&flagYielded != 0, flags&flagForgotten != 0, flags&flagRewound != 0
	v.Execution, v.Session, v.Owner = r.text(), r.term(), r.term()
	v.Requested, v.Size = r.requested(flags)
	for i, t := range v.times() {
		if flags&(flagTime<<i) != 0 {
			*t = r.time()
		}
	}
	v.RequestedSeq = r.uint()
	v.Seq = v.RequestedSeq + r.uint()
	v.PID = int(r.int())
	v.PGID = v.PID + int(r.int())
	v.Start, v.Boot = r.uint(), r.term()
	v.Offset, v.outEnd = r.int(), r.int()
	for range r.uint() {
		v.Pruned = append(v.Pruned, Span{From: r.int(), To: r.int()})
	}
	s := r.settled(flags)
	v.Settled, v.Status = s, s.Status
	v.Offset += s.Offset
	v.outEnd += s.Offset
	v.StdoutBytes, v.StderrBytes, v.TTYBytes = s.Stdout.Raw, s.Stderr.Raw, s.TTY.Raw
	return v
}

// packedID is the execution of a packed row; it shares the row's memory.
func packedID(packed string) string {
	r := unpacker{rest: packed}
	r.uint()
	return r.text()
}

func packFlags(v *process) uint64 {
	var flags uint64
	for i, set := range []bool{
		v.Yielded, v.Forgotten, v.Rewound, v.Requested.Monitor, v.Requested.TTY != nil,
		v.Settled.ExitCode != nil, v.Settled.CutOff, plainSums(v.Settled),
	} {
		if set {
			flags |= 1 << i
		}
	}
	for i, t := range v.times() {
		if !t.IsZero() {
			flags |= flagTime << i
		}
	}
	return flags
}

// plainSums reports whether only standard output was written and no byte was
// redacted, which needs one number where there are six.
func plainSums(s *events.Settled) bool {
	return s.Stdout.Bytes == s.Stdout.Raw && s.Stdout.Bytes == s.Offset &&
		s.Stderr == events.StreamSum{SHA256: s.Stderr.SHA256} && s.TTY == events.StreamSum{SHA256: s.TTY.SHA256}
}

func (v *process) times() []*time.Time {
	return []*time.Time{&v.RequestedAt, &v.SpawnedAt, &v.LastOutputAt, &v.YieldedAt, &v.EndedAt}
}

// packer appends fields.
type packer struct {
	buf   []byte
	terms *dictionary
	// last is the time before, in seconds: times are kept as differences.
	last int64
}

func (w *packer) uint(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }
func (w *packer) int(n int64)   { w.buf = binary.AppendVarint(w.buf, n) }
func (w *packer) term(s string) { w.uint(w.terms.number(s)) }

func (w *packer) text(s string) {
	w.uint(uint64(len(s)))
	w.buf = append(w.buf, s...)
}

// list packs a list as one term: lists recur, and a NUL is in none of their words.
func (w *packer) list(l []string) {
	if l == nil {
		w.term("")
		return
	}
	w.term("\x00" + strings.Join(l, "\x00"))
}

func (w *packer) time(t time.Time) {
	if t.IsZero() {
		return
	}
	w.int(t.Unix() - w.last)
	w.uint(uint64(t.Nanosecond()))
	w.last = t.Unix()
}

func (w *packer) settled(s *events.Settled) {
	w.term(string(s.Status))
	w.term(string(s.Termination))
	w.term(string(s.Outcome))
	if s.ExitCode != nil {
		w.int(int64(*s.ExitCode))
	}
	w.term(s.Signal)
	w.int(s.DurationMS)
	w.int(s.Offset)
	for _, sum := range []events.StreamSum{s.Stdout, s.Stderr, s.TTY} {
		if !plainSums(s) {
			w.int(sum.Bytes)
			w.int(sum.Raw - sum.Bytes)
		}
		w.digest(sum.SHA256)
	}
	w.uint(uint64(len(s.Descendants)))
	for _, d := range s.Descendants {
		w.int(int64(d.PID))
		w.text(d.Name)
		w.term(map[bool]string{true: "k"}[d.Killed] + map[bool]string{true: "l"}[d.Left])
	}
	w.text(s.Error)
}

// emptySHA256 is the digest of no bytes: most executions have one.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// digest packs a hex digest as its 32 bytes, and anything else as text.
func (w *packer) digest(s string) {
	raw, err := hex.DecodeString(s)
	switch {
	case s == "":
		w.uint(0)
	case s == emptySHA256:
		w.uint(1)
	case err == nil && len(raw) == 32 && hex.EncodeToString(raw) == s:
		w.uint(2)
		w.buf = append(w.buf, raw...)
	default:
		w.uint(3)
		w.text(s)
	}
}

// unpacker takes the fields off again. It reads only what pack wrote.
type unpacker struct {
	rest  string
	terms []string
	last  int64
}

func (r *unpacker) uint() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		b := r.rest[0]
		r.rest = r.rest[1:]
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (r *unpacker) int() int64 {
	n := r.uint()
	return int64(n>>1) ^ -int64(n&1)
}

func (r *unpacker) term() string { return r.terms[r.uint()] }

func (r *unpacker) text() string { return r.take(int(r.uint())) }

func (r *unpacker) take(n int) string {
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *unpacker) list() []string {
	s := r.term()
	switch s {
	case "":
		return nil
	case "\x00":
		return []string{}
	}
	return strings.Split(s[1:], "\x00")
}

func (r *unpacker) time() time.Time {
	r.last += r.int()
	return time.Unix(r.last, int64(r.uint())).UTC()
}

func (r *unpacker) requested(flags uint64) (q events.Requested, now events.Size) {
	q = events.Requested{
		Command: r.text(), Name: r.text(), Cwd: r.term(), Shell: r.term(), SideEffects: r.list(), Env: r.list(),
		StdinBytes: int(r.int()), YieldMS: r.int(), TimeoutMS: r.int(), OutputLimit: r.int(),
		Monitor: flags&flagMonitor != 0,
	}
	if flags&flagTTY != 0 {
		q.TTY = &events.Size{Rows: int(r.int()), Cols: int(r.int())}
		now = events.Size{Rows: q.TTY.Rows + int(r.int()), Cols: q.TTY.Cols + int(r.int())}
	}
	for range r.uint() {
		if q.Client == nil {
			q.Client = map[string]string{}
		}
		k := r.term()
		q.Client[k] = r.text()
	}
	q.Trace = r.text()
	return q, now
}

func (r *unpacker) settled(flags uint64) *events.Settled {
	s := &events.Settled{
		Status: events.Status(r.term()), Termination: events.Termination(r.term()), Outcome: events.Outcome(r.term()),
		CutOff: flags&flagCutOff != 0,
	}
	if flags&flagExitCode != 0 {
		code := int(r.int())
		s.ExitCode = &code
	}
	s.Signal, s.DurationMS, s.Offset = r.term(), r.int(), r.int()
	for _, sum := range []*events.StreamSum{&s.Stdout, &s.Stderr, &s.TTY} {
		if flags&flagSums == 0 {
			sum.Bytes = r.int()
			sum.Raw = sum.Bytes + r.int()
		}
		sum.SHA256 = r.digest()
	}
	if flags&flagSums != 0 {
		s.Stdout.Bytes, s.Stdout.Raw = s.Offset, s.Offset
	}
	for range r.uint() {
		d := events.Descendant{PID: int(r.int()), Name: r.text()}
		how := r.term()
		d.Killed, d.Left = strings.Contains(how, "k"), strings.Contains(how, "l")
		s.Descendants = append(s.Descendants, d)
	}
	s.Error = r.text()
	return s
}

func (r *unpacker) digest() string {
	switch r.uint() {
	case 0:
		return ""
	case 1:
		return emptySHA256
	case 2:
		return hex.EncodeToString([]byte(r.take(32)))
	}
	return r.text()
}
