package producers

import (
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
	w := newWake(e)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		alive := e.proc.descendants()
		closed := isClosed(ended)
		if closed && (len(alive) == 0 || w.leave) {
			return w.report(alive)
		}
		if w.over(alive) {
			for _, s := range e.proc.streams {
				s.cutOff()
			}
			return w.report(alive)
		}
		w.hasten(alive)
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

// A wake looks after the descendants that outlived a shell.
type wake struct {
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

func newWake(e *execution) *wake {
	now := time.Now()
	w := &wake{proc: e.proc, leave: e.session.cfg.LeaveDescendants, began: now, killAt: now.Add(closeGrace), readers: map[int]bool{}}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.killAt.IsZero() { // a stop set its own grace, for the whole tree
		w.killAt, w.leave = e.killAt, false
	}
	return w
}

// over reports whether the patience is at its end.
func (w *wake) over(alive []kinsman) bool {
	switch {
	case len(alive) == 0:
		if w.quiet.IsZero() {
			w.quiet = time.Now()
		}
		return time.Since(w.quiet) >= strangerGrace
	case w.leave:
		return time.Since(w.began) >= closeGrace
	}
	w.quiet = time.Time{}
	return !w.killed.IsZero() && time.Since(w.killed) >= killedGrace
}

// hasten asks the living to end, once each, and kills them when it is time. A
// reader, such as bash's >(tee log), has the end of its input before it and ends
// by itself: asked at once, it would lose what it has not read.
func (w *wake) hasten(alive []kinsman) {
	force := !time.Now().Before(w.killAt)
	if !w.leave && !force && time.Since(w.began) < lastWords {
		alive = slices.DeleteFunc(slices.Clone(alive), w.reads)
	}
	for _, k := range alive {
		w.meet(k, force && !w.leave)
	}
	switch {
	case w.leave || len(alive) == 0:
	case force:
		w.proc.signalEach(alive, syscall.SIGKILL, true)
		if w.killed.IsZero() {
			w.killed = time.Now()
		}
	default:
		w.proc.signalEach(alive, syscall.SIGTERM, false)
	}
}

// reads judges each of them once. It looks twice: who becomes a reader moves its
// descriptors meanwhile.
func (w *wake) reads(k kinsman) bool {
	reads, known := w.readers[k.pid]
	if !known {
		for range 2 {
			reads = reads || w.proc.isReader(k)
		}
		w.readers[k.pid] = reads
	}
	return reads
}

func (w *wake) meet(k kinsman, killed bool) {
	i := slices.IndexFunc(w.met, func(d events.Descendant) bool { return d.PID == k.pid })
	if i < 0 {
		w.met = append(w.met, events.Descendant{PID: k.pid, Name: k.name})
		i = len(w.met) - 1
	}
	w.met[i].Killed = w.met[i].Killed || killed
}

// report names whom it met, and who is left.
func (w *wake) report(alive []kinsman) []events.Descendant {
	for _, k := range alive {
		w.meet(k, false)
		i := slices.IndexFunc(w.met, func(d events.Descendant) bool { return d.PID == k.pid })
		w.met[i].Left = true
	}
	return w.met
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
	e.mu.Unlock()
	e.facts.Wait()
	e.out.flush()

	var end events.Body
	if no != nil {
		end = events.Refused{Reason: no.Reason, Message: e.session.hide(e.request)(no.Message)}
	} else {
		end = e.sumUp(p)
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
	e.session.retire(e, no != nil, t)
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
	e.place()
	close(e.done)
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

// sumUp is the settlement. p is nil when the command never started.
func (e *execution) sumUp(p *process) events.Settled {
	e.mu.Lock()
	s := events.Settled{Termination: e.cause, Descendants: e.left}
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
	case events.TermOutputLimit, events.TermStalled:
		return events.StatusFailed
	case events.TermLost:
		return events.StatusLost
	}
	return events.StatusStopped
}
