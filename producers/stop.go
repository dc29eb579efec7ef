package producers

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// A stopOrder ends an execution.
type stopOrder struct {
	cause  events.Termination
	signal syscall.Signal
	// force is the time until SIGKILL; a negative one is never.
	force time.Duration
}

// end signals the execution's tree and turns to SIGKILL later. The first order
// is latched as the cause of the end; end reports whether this one is. An
// output over its limit overrides the shell's own end, for then bytes are missing.
func (e *execution) end(o stopOrder) bool {
	e.mu.Lock()
	if e.settling {
		e.mu.Unlock()
		return false
	}
	first := e.cause == "" || e.cause == events.TermExited && o.cause == events.TermOutputLimit
	if !first && o.cause != events.TermStopped {
		e.mu.Unlock()
		return false
	}
	if first {
		e.cause = o.cause
	}
	if o.force >= 0 {
		e.killAt = sooner(e.killAt, time.Now().Add(o.force))
	}
	offset := e.out.offset()
	e.facts.Add(1)
	e.mu.Unlock()
	defer e.facts.Done()

	e.strike(o.signal, o.force)
	e.unwant()
	if first {
		e.lining.Wait()
		e.post(events.Stopping{Cause: o.cause, Signal: signalName(o.signal), ForceAfterMS: max(o.force, 0).Milliseconds(), Offset: offset})
	}
	return first
}

// strike signals the tree, if there is one, and kills it after the grace.
func (e *execution) strike(sig syscall.Signal, force time.Duration) {
	e.mu.Lock()
	p := e.proc
	e.mu.Unlock()
	if p == nil {
		return
	}
	p.signalTree(sig)
	if force >= 0 && sig != syscall.SIGKILL {
		e.after(force, func() { p.signalTree(syscall.SIGKILL) })
	}
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Stop ends an execution and returns once it is settled.
func (s *Session) Stop(ctx context.Context, owner, id string, o StopOptions) (StopResult, error) {
	e, err := s.find(owner, id)
	if err != nil {
		return StopResult{}, err
	}
	watch := s.mail.observe(id)
	defer watch.leave()
	r, err := e.stop(ctx, o, events.TermStopped)
	if r.Seq > 0 { // it is settled, and the answer says so
		r.Claim = watch.claim("stop")
	}
	return r, err
}

func (e *execution) stop(ctx context.Context, o StopOptions, cause events.Termination) (StopResult, error) {
	order, err := o.order(cause)
	if err != nil {
		return StopResult{}, err
	}
	if e.isOver() {
		return StopResult{Status: e.settlement().Status}, ErrEnded
	}
	// The signal goes out at once; its record waits for a ledger that stalls.
	go e.end(order)
	if err := e.awaitEnd(ctx, order.force); err != nil {
		return StopResult{Signal: signalName(order.signal)}, fmt.Errorf("stopping %s: %w", e.id, err)
	}
	r, err := e.result()
	status := e.settlement().Status
	if err == nil && status != events.StatusStopped {
		err = ErrEnded // it ended by itself, or by another cause, first
	}
	return StopResult{Stopped: status == events.StatusStopped, Signal: signalName(order.signal), Status: status, Seq: r.Seq}, err
}

// awaitEnd waits until an execution that was ordered to end is settled, and no
// longer than that takes where the ledger takes it down at once.
func (e *execution) awaitEnd(ctx context.Context, force time.Duration) error {
	var late <-chan time.Time
	if force >= 0 {
		t := time.NewTimer(force + killedGrace + strangerGrace + endMost)
		defer t.Stop()
		late = t.C
	}
	for {
		select {
		case <-e.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			if err := e.session.Writable(); err != nil {
				return fmt.Errorf("its end is not recorded yet: %w", err)
			}
			late = nil
		}
	}
}

// Check refuses options that stop nothing, wherever they are sent.
func (o StopOptions) Check() error {
	_, err := o.order("")
	return err
}

// order is the options as an order.
func (o StopOptions) order(cause events.Termination) (stopOrder, error) {
	sig := syscall.SIGTERM
	if o.Signal != "" {
		var ok bool
		if sig, ok = signalNamed(fullSignalName(o.Signal)); !ok {
			return stopOrder{}, fmt.Errorf("%w: %s (a name such as SIGTERM, SIGINT or SIGKILL)", ErrSignal, o.Signal)
		}
	}
	force := o.ForceAfter
	if force == 0 {
		force = stopGrace
	}
	return stopOrder{cause: cause, signal: sig, force: force}, nil
}

// fullSignalName is the name in capitals and with its SIG, which callers leave out.
func fullSignalName(name string) string {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return name
}

// StopOwner ends the owner's executions, and no others, and returns their ids
// once they are settled. What is unread in the owner's mailbox stays there.
func (s *Session) StopOwner(ctx context.Context, owner string) ([]string, error) {
	owner = ownerOf(owner)
	order := stopOrder{cause: events.TermOwnerStopped, signal: syscall.SIGTERM, force: closeGrace}
	s.mu.Lock()
	s.forestall(owner, order)
	s.mu.Unlock()
	s.mail.loans.recall(owner)
	ending := s.running(func(e *execution) bool { return e.owner == owner })
	for _, e := range ending {
		go e.end(order)
	}
	ids := make([]string, 0, len(ending))
	for _, e := range ending {
		if err := e.awaitEnd(ctx, order.force); err != nil {
			return ids, fmt.Errorf("waiting for %s to end: %w", e.id, err)
		}
		ids = append(ids, e.id)
	}
	return ids, nil
}

// Write queues input for the standard input of an execution that runs or waits
// for its turn. It is delivered in order, and Write does not wait for the command
// to read it. What does not arrive is recorded too, also behind the end, unless it
// is piped.
func (s *Session) Write(owner, id string, in Input) error {
	e, err := s.find(owner, id)
	if err != nil {
		return err
	}
	e.mu.Lock()
	target, offset, over := e.in, e.settled.Offset, e.settling || e.cause == events.TermExited
	if e.out != nil {
		offset = e.out.offset()
	}
	late := e.settling
	if !late {
		e.facts.Add(1)
		defer e.facts.Done()
	}
	e.mu.Unlock()
	if late {
		if in.Piped || !s.stay() {
			return ErrEnded // nothing at all follows the end of a session
		}
		defer s.over.Done()
	}

	fact := events.Input{Bytes: len(in.Data), Close: in.Close, Resize: in.Resize, Offset: offset}
	switch {
	case over:
		err = ErrEnded
	default:
		err = target.put(in)
	}
	if err != nil {
		fact.Error = err.Error()
	}
	if err == nil || !in.Piped {
		e.post(fact)
	}
	return err
}
