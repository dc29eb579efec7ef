package projections

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// The states of an execution. Its status is the shell-server contract's word,
// its state says where in its life it is.
const (
	StateQueued    = "queued"
	StateRunning   = "running"
	StateStopping  = "stopping"
	StateCompleted = "completed"
)

// Process is one execution as `ps` shows it.
type Process struct {
	Execution, Session, Owner string

	// Requested is what was asked for; RequestedSeq and RequestedAt say when.
	Requested    events.Requested
	RequestedSeq uint64
	RequestedAt  time.Time

	// State is where in its life the execution is, and Status the contract's
	// word: running until it settled.
	State  string
	Status events.Status

	// PID, PGID, Start and Boot name the process; 0 before it is spawned. See [events.Spawned].
	PID, PGID int
	Start     uint64
	Boot      string
	SpawnedAt time.Time

	// Offset is the length of the output as far as it is known, in bytes.
	Offset int64
	// StdoutBytes, StderrBytes and TTYBytes count what the ledger holds while
	// the command runs, and what the command wrote once it settled. A viewer
	// that began late counts from there until then.
	StdoutBytes, StderrBytes, TTYBytes int64
	LastOutputAt                       time.Time

	Yielded   bool
	YieldedAt time.Time

	// Settled is the end, or nil. Refused is set when it never started.
	Settled *events.Settled
	Refused *events.Refused
	EndedAt time.Time

	// Forgotten says that cleanup dropped the handle, and Rewound that its
	// session was rewound to before it. Neither is listed.
	Forgotten, Rewound bool
	// Pruned lists the output that was deleted on purpose, ascending.
	Pruned []Span

	// Anomalies says what should not have happened.
	Anomalies []string
	// Seq is the sequence of its last lifecycle event.
	Seq uint64
}

// Span is the output offsets [From, To).
type Span struct{ From, To int64 }

// Live reports whether the execution has not ended.
func (p Process) Live() bool { return p.State != StateCompleted }

// Listed reports whether process lists show the execution.
func (p Process) Listed() bool { return !p.Forgotten && !p.Rewound && p.Refused == nil }

// Duration is how long the execution took, and 0 while it runs.
func (p Process) Duration() time.Duration {
	if p.Settled == nil {
		return 0
	}
	return time.Duration(p.Settled.DurationMS) * time.Millisecond
}

// Processes is the fold of executions. It keeps those that ended in packed
// form: a million take about 250 MB.
type Processes struct {
	mark  watermark
	index map[string]int32
	// rows holds what ended, packed, in the order of the first lifecycle event;
	// the row of an execution in live is empty.
	rows []string
	live map[int]*process
	// early holds executions of which only output is known as yet.
	early map[string]*process
	terms dictionary
}

// process is a Process and what its fold alone needs.
type process struct {
	Process
	// outEnd is the end of the output that was counted.
	outEnd int64
}

// NewProcesses returns an empty fold.
func NewProcesses() *Processes {
	return &Processes{index: map[string]int32{}, live: map[int]*process{}, early: map[string]*process{}}
}

// Get returns an execution, also one that is not listed any more.
func (p *Processes) Get(execution string) (Process, bool) {
	i, ok := p.index[execution]
	if !ok {
		return Process{}, false
	}
	return p.view(int(i)), true
}

// Len counts the executions.
func (p *Processes) Len() int { return len(p.rows) }

// All yields every listed execution, the newest first.
func (p *Processes) All() iter.Seq[Process] {
	return func(yield func(Process) bool) {
		for i := len(p.rows) - 1; i >= 0; i-- {
			if v := p.view(i); v.Listed() && !yield(v) {
				return
			}
		}
	}
}

// Everything yields also those that are not listed, the oldest first.
func (p *Processes) Everything() iter.Seq[Process] {
	return func(yield func(Process) bool) {
		for i := range p.rows {
			if !yield(p.view(i)) {
				return
			}
		}
	}
}

// List is All as a slice.
func (p *Processes) List() []Process { return slices.Collect(p.All()) }

// Live lists the executions that have not ended, the newest first.
func (p *Processes) Live() []Process {
	var list []Process
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(p.live))) {
		if v := p.live[i]; v.Live() && v.Listed() {
			list = append(list, p.view(i))
		}
	}
	return list
}

func (p *Processes) view(i int) Process {
	c := p.load(i).Process
	if c.Settled != nil && c.Offset > c.Settled.Offset {
		c.Anomalies = append(slices.Clone(c.Anomalies), fmt.Sprintf("output up to %d, beyond the settled length %d", c.Offset, c.Settled.Offset))
	}
	if p.live[i] == nil {
		return c // unpacked: a copy already
	}
	c.Requested = cloneRequested(c.Requested)
	c.Settled = clonePointer(c.Settled)
	if c.Settled != nil {
		c.Settled.ExitCode = clonePointer(c.Settled.ExitCode)
		c.Settled.Descendants = slices.Clone(c.Settled.Descendants)
	}
	c.Refused = clonePointer(c.Refused)
	c.Pruned = slices.Clone(c.Pruned)
	c.Anomalies = slices.Clone(c.Anomalies)
	return c
}

// load returns the execution for changing; store takes it back.
func (p *Processes) load(i int) *process {
	if v := p.live[i]; v != nil {
		return v
	}
	v := p.terms.unpack(p.rows[i])
	return &v
}

func (p *Processes) store(i int, v *process) {
	if v.Settled == nil || v.Refused != nil || len(v.Anomalies) > 0 {
		p.live[i], p.rows[i] = v, ""
		return
	}
	packed := p.terms.pack(v)
	p.rows[i] = packed
	delete(p.live, i)
	// The key moves into the packed row, so that the id is kept once.
	delete(p.index, v.Execution)
	p.index[packedID(packed)] = int32(i)
}

// Apply implements [Fold].
func (p *Processes) Apply(e events.Event) {
	if out, ok := e.Body.(events.Output); ok {
		p.output(e, out)
		return
	}
	if !p.mark.pass(e) {
		return
	}
	if b, ok := e.Body.(events.Rewound); ok {
		p.rewind(e.Session, b.To)
		return
	}
	if e.Class() == events.ClassExecution {
		i := p.find(e)
		v := p.load(i)
		v.apply(e)
		p.store(i, v)
	}
}

// find returns the row of the event's execution, and makes one if there is none.
func (p *Processes) find(e events.Event) int {
	if i, ok := p.index[e.Subject]; ok {
		return int(i)
	}
	id := p.terms.own(e.Subject)
	v := p.early[id]
	if v == nil {
		v = &process{Process: Process{Execution: id}}
	}
	delete(p.early, id)
	v.Session, v.Owner = p.terms.share(e.Session), p.terms.share(e.Owner)
	v.State, v.Status = StateQueued, events.StatusRunning
	i := len(p.rows)
	p.rows, p.live[i] = append(p.rows, ""), v
	p.index[id] = int32(i)
	return i
}

// rewind hides the executions that a session asked for after a sequence.
func (p *Processes) rewind(session string, to uint64) {
	for i := len(p.rows) - 1; i >= 0; i-- {
		v := p.load(i)
		if v.RequestedSeq <= to {
			return // and so are all before it
		}
		if v.Session == session && !v.Rewound {
			v.Rewound = true
			p.store(i, v)
		}
	}
}

// output counts a chunk, or the part of it that was not counted yet.
func (p *Processes) output(e events.Event, out events.Output) {
	i, known := p.index[e.Subject]
	if !known {
		v := p.early[e.Subject]
		if v == nil {
			v = &process{Process: Process{Execution: p.terms.own(e.Subject)}}
			p.early[v.Execution] = v
		}
		v.count(e.Time, out)
		return
	}
	v := p.load(int(i))
	if v.count(e.Time, out) {
		p.store(int(i), v)
	}
}

// count adds output and reports whether there was any new.
func (v *process) count(at time.Time, out events.Output) bool {
	n := min(out.End()-v.outEnd, int64(len(out.Data)))
	if n <= 0 {
		return false
	}
	v.outEnd, v.LastOutputAt = out.End(), at
	v.Offset = max(v.Offset, v.outEnd)
	if v.Settled != nil {
		return true // the settlement's counts hold
	}
	switch out.Stream {
	case events.KindStdout:
		v.StdoutBytes += n
	case events.KindStderr:
		v.StderrBytes += n
	case events.KindTTY:
		v.TTYBytes += n
	}
	return true
}

func (v *process) note(seq uint64, format string, args ...any) {
	(*anomalies)(&v.Anomalies).add(seq, format, args...)
}

func (v *process) apply(e events.Event) {
	if e.Session != v.Session {
		v.note(e.Seq, "%s in the session %s, not its own", e.Kind(), e.Session)
		return
	}
	if v.RequestedSeq == 0 && e.Kind() != events.KindRequested && e.Kind() != events.KindRefused {
		v.note(e.Seq, "%s before requested", e.Kind())
	}
	v.Seq = e.Seq
	if v.RequestedSeq == 0 {
		v.RequestedSeq, v.RequestedAt = e.Seq, e.Time
	}
	switch b := e.Body.(type) {
	case events.Requested:
		v.requested(e, b)
	case events.Refused:
		v.refused(e, b)
	case events.Settled:
		v.settled(e, b)
	case events.Pruned:
		v.pruned(b)
	default:
		v.progress(e)
	}
}

func (v *process) requested(e events.Event, b events.Requested) {
	if v.RequestedSeq != e.Seq {
		v.note(e.Seq, "requested again, or late")
		if v.Requested.Command != "" {
			return
		}
	}
	v.Requested = cloneRequested(b)
	v.Owner = e.Owner
}

func (v *process) refused(e events.Event, b events.Refused) {
	if v.ended(e) {
		return
	}
	v.Refused, v.State, v.Status, v.EndedAt = &b, StateCompleted, events.StatusFailed, e.Time
	if b.Request != nil && v.Requested.Command == "" {
		v.Requested = cloneRequested(*b.Request)
	}
	b.Request = nil
}

func (v *process) settled(e events.Event, b events.Settled) {
	if v.ended(e) {
		return
	}
	if v.PID == 0 && b.ExitCode != nil {
		v.note(e.Seq, "settled with exit code %d, never spawned", *b.ExitCode)
	}
	b.ExitCode = clonePointer(b.ExitCode)
	b.Descendants = slices.Clone(b.Descendants)
	v.Settled, v.State, v.Status, v.EndedAt = &b, StateCompleted, b.Status, e.Time
	v.Offset = max(v.Offset, b.Offset)
	v.StdoutBytes, v.StderrBytes, v.TTYBytes = b.Stdout.Raw, b.Stderr.Raw, b.TTY.Raw
}

// ended reports whether the execution has ended, which is an anomaly where it
// is asked.
func (v *process) ended(e events.Event) bool {
	if v.State == StateCompleted {
		v.note(e.Seq, "%s after the end", e.Kind())
		return true
	}
	return false
}

// progress applies an event between the request and the end.
func (v *process) progress(e events.Event) {
	switch b := e.Body.(type) {
	case events.Input:
		if b.Error == "" {
			v.ended(e)
		}
		return
	case events.Queued:
		if !v.ended(e) && v.State != StateQueued {
			v.note(e.Seq, "queued while %s", v.State)
		}
	case events.Admitted:
		v.ended(e)
	case events.Spawned:
		v.spawned(e, b)
	case events.Yielded:
		if !v.ended(e) {
			v.reach(b.Offset)
		}
		if v.Yielded {
			v.note(e.Seq, "yielded again")
			return
		}
		v.Yielded, v.YieldedAt = true, e.Time
	case events.Stopping:
		if !v.ended(e) {
			v.State = StateStopping
			v.reach(b.Offset)
		}
	}
}

func (v *process) spawned(e events.Event, b events.Spawned) {
	if v.ended(e) {
		return
	}
	if !v.SpawnedAt.IsZero() {
		v.note(e.Seq, "spawned again")
		return
	}
	v.PID, v.PGID, v.Start, v.Boot, v.SpawnedAt = b.PID, b.PGID, b.Start, b.Boot, e.Time
	if v.State == StateQueued {
		v.State = StateRunning
	}
}

// reach says that the output is known to be at least as long.
func (v *process) reach(offset int64) { v.Offset = max(v.Offset, offset) }

// pruned notes deleted output. Spans that touch become one.
func (v *process) pruned(b events.Pruned) {
	if b.Reason == "cleanup" {
		v.Forgotten = true
	}
	if b.To <= b.From {
		return
	}
	spans := append(slices.Clone(v.Pruned), Span{b.From, b.To})
	slices.SortFunc(spans, func(a, b Span) int { return int(min(max(a.From-b.From, -1), 1)) })
	merged := spans[:1]
	for _, s := range spans[1:] {
		if last := &merged[len(merged)-1]; s.From <= last.To {
			last.To = max(last.To, s.To)
		} else {
			merged = append(merged, s)
		}
	}
	v.Pruned = merged
}

func cloneRequested(r events.Requested) events.Requested {
	r.SideEffects = slices.Clone(r.SideEffects)
	r.Env = slices.Clone(r.Env)
	r.TTY = clonePointer(r.TTY)
	r.Client = maps.Clone(r.Client)
	return r
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
