package producers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

const (
	// strangerGrace is how long a pipe may stay open once the execution has no
	// process left: somebody else holds it.
	strangerGrace = time.Second
	// lastWords is how long who reads what the shell left in a pipe may take to
	// pass it on, before it is asked to end like every other descendant.
	lastWords = 500 * time.Millisecond
	// killedGrace is how long killed descendants may take to go.
	killedGrace = 500 * time.Millisecond
)

// drain ends what outlived the shell, in a bounded time, and cuts the output
// off when somebody still holds its pipes after that. ended is closed when the
// pumps have ended.
func (e *execution) drain(ended <-chan struct{}) []events.Descendant {
	a := newAftermath(e)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		alive := e.proc.descendants()
		closed := isClosed(ended)
		if closed && (len(alive) == 0 || a.leave) {
			return a.report(alive)
		}
		if a.over(alive) {
			for _, s := range e.proc.streams {
				s.cutOff()
			}
			return a.report(alive)
		}
		a.hasten(alive)
		if len(alive) == 0 {
			pause = strangerGrace // nothing to look after: only the end of file is missing
		}
		if closed {
			time.Sleep(pause)
			continue
		}
		select {
		case <-ended:
		case <-time.After(pause):
		}
	}
}

// An aftermath looks after the descendants that outlived a shell.
type aftermath struct {
	proc   *process
	leave  bool
	began  time.Time
	killAt time.Time
	quiet  time.Time // since when there are none
	killed time.Time // when they were first killed
	met    []events.Descendant
	// readers says which read a pipe; at their end they close it.
	readers map[int]bool
}

func newAftermath(e *execution) *aftermath {
	now := time.Now()
	a := &aftermath{proc: e.proc, leave: e.session.cfg.LeaveDescendants, began: now, killAt: now.Add(closeGrace), readers: map[int]bool{}}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.killAt.IsZero() { // a stop set its own grace, for the whole tree
		a.killAt, a.leave = e.killAt, false
	}
	return a
}

// over reports whether the patience is at its end.
func (a *aftermath) over(alive []kinsman) bool {
	switch {
	case len(alive) == 0:
		if a.quiet.IsZero() {
			a.quiet = time.Now()
		}
		return time.Since(a.quiet) >= strangerGrace
	case a.leave:
		return time.Since(a.began) >= closeGrace
	}
	a.quiet = time.Time{}
	return !a.killed.IsZero() && time.Since(a.killed) >= killedGrace
}

// hasten asks the living to end, once each, and kills them when it is time. A
// reader, such as bash's >(tee log), has the end of its input before it and ends
// by itself: asked at once, it would lose what it has not read.
func (a *aftermath) hasten(alive []kinsman) {
	force := !time.Now().Before(a.killAt)
	if !a.leave && !force && time.Since(a.began) < lastWords {
		alive = slices.DeleteFunc(slices.Clone(alive), a.reads)
	}
	for _, k := range alive {
		if d := a.meet(k); force && !a.leave {
			d.Killed = true
		}
	}
	switch {
	case a.leave || len(alive) == 0:
	case force:
		a.proc.signalEach(alive, syscall.SIGKILL, true)
		if a.killed.IsZero() {
			a.killed = time.Now()
		}
	default:
		a.proc.signalEach(alive, syscall.SIGTERM, false)
	}
}

// reads judges each of them once. It looks twice: who becomes a reader moves its
// descriptors meanwhile.
func (a *aftermath) reads(k kinsman) bool {
	reads, known := a.readers[k.pid]
	if !known {
		for range 2 {
			reads = reads || a.proc.isReader(k)
		}
		a.readers[k.pid] = reads
	}
	return reads
}

// meet is what is noted of a descendant, until the next one is met.
func (a *aftermath) meet(k kinsman) *events.Descendant {
	i := slices.IndexFunc(a.met, func(d events.Descendant) bool { return d.PID == k.pid })
	if i < 0 {
		i = len(a.met)
		a.met = append(a.met, events.Descendant{PID: k.pid, Name: k.name})
	}
	return &a.met[i]
}

// report names whom it met, and who is left.
func (a *aftermath) report(alive []kinsman) []events.Descendant {
	for _, k := range alive {
		a.meet(k).Left = true
	}
	return a.met
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// settle appends the one end of the execution and lets its waiters go.
func (e *execution) settle() {
	e.mu.Lock()
	e.settling = true
	for _, t := range e.timers {
		t.Stop()
	}
	p, no := e.proc, e.refused
	if no != nil && e.handed() { // whoever has a handle is told how it ended
		e.refused, e.cause = nil, cmp.Or(e.cause, events.TermSpawnFailed)
	}
	refused := e.refused != nil
	e.mu.Unlock()
	e.facts.Wait()
	e.stage.drop() // it was ended before its shell started
	e.out.flush()

	var why string
	if no != nil {
		why = e.session.hide(e.request)(no.Message)
	}
	var end events.Body
	if refused {
		said := events.Refused{Reason: no.Reason, Message: why}
		if no.doubt { // it stands alone, perhaps
			said.Request = e.session.refusedFact(e.request, no).Request
		}
		end = said
	} else {
		end = e.sumUp(p, why)
	}
	ev, err := e.session.ledger.Append(e.session.life, e.event(end))
	if errors.Is(err, ledger.ErrExists) { // somebody found us dead: that stands
		err = nil
	}
	e.mu.Lock()
	if err != nil {
		e.err = fmt.Errorf("recording the end of %s: %w", e.id, err)
	}
	var t *letter
	if s, ok := end.(events.Settled); ok {
		e.settled = s
		if e.yielded && err == nil {
			t = e.session.mail.completion(e, e.session.requested(e.request), s)
		}
	}
	e.seq = max(e.seq, ev.Seq)
	e.overAt = time.Now()
	e.request, e.proc, e.in, e.out, e.timers = Request{}, nil, nil, nil, nil // a handle is kept, and it is small
	e.mu.Unlock()
	e.session.retire(e, refused, t)
}

// handed reports whether the call has returned, and so its caller has a handle.
// That of a monitor returns once it is placed. The caller holds the lock.
func (e *execution) handed() bool {
	return e.yielded && (e.monitor == nil || isClosed(e.placed))
}

// retire gives the execution's place back, lets its waiters go, and posts the
// record of its end, if there is one. One that was refused leaves no handle.
func (s *Session) retire(e *execution, forget bool, t *letter) {
	s.mu.Lock()
	s.live--
	if forget {
		delete(s.executions, e.id)
	}
	s.mu.Unlock()
	e.leaveLane()
	close(e.done)
	e.place()
	switch {
	case e.monitor != nil:
		e.monitor.leave(t != nil)
		e.last <- t
	case t != nil:
		s.mail.post(t)
	}
	s.mail.ended(e.owner)
	s.over.Done()
}

// sumUp is the settlement. p is nil when the command never started, and why says
// why it could not.
func (e *execution) sumUp(p *process, why string) events.Settled {
	e.mu.Lock()
	s := events.Settled{Termination: e.cause, Descendants: e.left, Error: why}
	command, began := e.request.Command, e.began
	e.mu.Unlock()
	e.out.summary(&s)
	if s.Termination == events.TermExited && e.out.passedLimit() { // it ended by itself before it could be ended
		s.Termination = events.TermOutputLimit
	}
	if p != nil {
		s.DurationMS = time.Since(began).Milliseconds()
		exit, sig := exitOf(p.release())
		s.ExitCode, s.Signal = &exit, sig
		if sig != "" && s.Termination == events.TermExited {
			s.Termination = events.TermSignal
		}
	}
	s.Status = statusOf(s.Termination)
	s.Outcome = settledOutcome(command, s.ExitCode, s.Termination)
	return s
}

// exitOf is the shell's exit code, or -N and the name after signal N.
func exitOf(ws syscall.WaitStatus) (int, string) {
	if ws.Signaled() {
		return -int(ws.Signal()), signalName(ws.Signal())
	}
	return ws.ExitStatus(), ""
}

// statusOf is the status that a termination amounts to.
func statusOf(t events.Termination) events.Status {
	switch t {
	case events.TermExited, events.TermSignal:
		return events.StatusCompleted
	case events.TermTimedOut:
		return events.StatusTimedOut
	case events.TermOutputLimit, events.TermStalled, events.TermSpawnFailed:
		return events.StatusFailed
	case events.TermLost:
		return events.StatusLost
	}
	return events.StatusStopped
}
