package projections

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/yieldlog/yieldlog/events"
)

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
	// ends counts what is listed and has ended, by word.
	ends map[string]int
}

// NewProcesses returns an empty fold.
func NewProcesses() *Processes {
	return &Processes{index: map[string]int32{}, live: map[int]*process{}, early: map[string]*process{}, ends: map[string]int{}}
}

// Get returns an execution, also one that is not listed any more.
func (p *Processes) Get(execution string) (Process, bool) {
	i, ok := p.index[execution]
	if !ok {
		return Process{}, false
	}
	return p.view(int(i)), true
}

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

// Ends counts the listed executions that have ended, by [Word]; the lost ones
// are apart, under "lost".
func (p *Processes) Ends() map[string]int { return maps.Clone(p.ends) }

// tally adds n to the count that an execution belongs to, if it does to any.
func (p *Processes) tally(v *process, n int) {
	switch {
	case v.Settled == nil || !v.Listed():
	case v.Settled.Status == events.StatusLost:
		p.ends[string(events.StatusLost)] += n
	default:
		p.ends[Word(*v.Settled)] += n
	}
}

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
		p.tally(v, -1)
		v.apply(e)
		p.tally(v, 1)
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
			p.tally(v, -1)
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
