package projections

import (
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

	// Size is that of its terminal, as it was resized last.
	Size events.Size

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

// PrunedIn counts the bytes of [from, to) that were deleted on purpose; to < 0
// means the end.
func (p Process) PrunedIn(from, to int64) (n int64) {
	for _, s := range p.Pruned {
		if to >= 0 {
			s.To = min(s.To, to)
		}
		n += max(s.To-max(s.From, from), 0)
	}
	return n
}

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

// process is a Process and what its fold alone needs.
type process struct {
	Process
	// outEnd is the end of the output that was counted.
	outEnd int64
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
	if b.TTY != nil {
		v.Size = *b.TTY
	}
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
	if v.SpawnedAt.IsZero() && b.ExitCode != nil {
		v.note(e.Seq, "settled with exit code %d, never spawned", *b.ExitCode)
	}
	b.ExitCode = clonePointer(b.ExitCode)
	b.Descendants = slices.Clone(b.Descendants)
	v.Settled, v.State, v.Status, v.EndedAt = &b, StateCompleted, b.Status, e.Time
	if b.Status == events.StatusLost {
		v.Offset = v.outEnd // a yield may have told of output that died with its server
	}
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
		if b.Error == "" && !v.ended(e) && b.Resize != nil && v.Requested.TTY != nil {
			v.Size = *b.Resize
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
