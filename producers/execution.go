package producers

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// An execution is one managed command, from requested to settled.
type execution struct {
	session *Session
	id      string
	owner   string
	request Request
	// judged says that it is to start, or to end at once. Session.mu guards it.
	judged bool

	// wanted ends when somebody wants the execution to end.
	wanted context.Context
	unwant context.CancelFunc
	// placed is closed when the execution has its process, waits in its lane,
	// or will not run.
	placed chan struct{}
	place  func()
	// spawned is closed once the ledger holds spawned; until then no output is posted.
	spawned chan struct{}
	// done is closed when the execution is over and the ledger says so.
	done   chan struct{}
	ticket *ticket
	// stage is what was made ready while requested was appended, or nil.
	stage *stage
	out   *outlet
	// monitor delivers the lines, if it is one, and last hands it the record of
	// the end, or nil.
	monitor *monitor
	last    chan *letter
	// facts counts lifecycle events that were begun before the settlement and
	// must precede it.
	facts sync.WaitGroup
	// lining counts a queued event that was begun before anything ended the
	// execution and must precede what says so.
	lining sync.WaitGroup

	mu       sync.Mutex
	proc     *process
	in       *stdin
	began    time.Time
	cause    events.Termination // the first cause of the end, latched
	killAt   time.Time          // when a stop turns into SIGKILL; zero without one
	timers   []*time.Timer
	left     []events.Descendant
	yielded  bool
	shown    int64 // the owner has been shown the output up to here
	settling bool
	seq      uint64 // the last lifecycle sequence that is durable
	refused  *refusal
	settled  events.Settled
	overAt   time.Time
	err      error // why the settlement is not in the ledger
}

func newExecution(s *Session, r Request, t *ticket) *execution {
	e := &execution{
		session: s, id: events.NewID(), owner: r.Owner, request: r, ticket: t,
		in:     newStdin(r.TTY != nil, Input{Data: []byte(r.Stdin), Close: r.CloseStdin}),
		placed: make(chan struct{}), spawned: make(chan struct{}), done: make(chan struct{}),
	}
	e.wanted, e.unwant = context.WithCancel(s.life)
	e.place = sync.OnceFunc(func() { close(e.placed) })
	e.out = newOutlet(e, s.cfg.OutputLimit)
	if r.Monitor {
		e.monitor, e.last = newMonitor(e, s.requested(r)), make(chan *letter, 1)
		e.yielded = true
	}
	return e
}

// run takes the execution from its lane to its settlement.
func (e *execution) run() {
	defer e.unwant()
	if e.monitor != nil {
		go e.monitor.run(e.session.mail, e.last)
	}
	if e.enterLane() && e.start() {
		e.supervise()
	}
	e.settle()
}

// enterLane waits for the turn. It reports false when the execution was ended first.
func (e *execution) enterLane() bool {
	if e.session.cfg.NoLanes || e.wanted.Err() != nil {
		e.leaveLane()
		return e.wanted.Err() == nil
	}
	asked := time.Now()
	if e.ticket.admitted() {
		return true
	}
	e.lineUp()
	e.place()
	if err := e.ticket.wait(e.wanted); err != nil {
		return false
	}
	e.post(events.Admitted{WaitedMS: time.Since(asked).Milliseconds()})
	return e.wanted.Err() == nil
}

// lineUp records that the execution waits for its turn, unless it is ending.
func (e *execution) lineUp() {
	e.mu.Lock()
	ending := e.cause != ""
	if !ending {
		e.lining.Add(1)
		defer e.lining.Done()
	}
	e.mu.Unlock()
	if !ending {
		e.post(events.Queued{Ahead: e.ticket.ahead})
	}
}

// leaveLane lets the next one in. It may be called more than once.
func (e *execution) leaveLane() { e.ticket.leave() }

// prepare makes ready what the shell needs.
func (e *execution) prepare() (err error) {
	s := e.session
	e.stage, err = prepare(launch{
		argv: s.cfg.ShellCommand(e.request.Command), dir: e.request.Cwd, token: e.id,
		env: s.env.of(e.id, e.request.Cwd, e.request.Env), tty: e.request.TTY,
	})
	return err
}

// prepareNext prepares it if it is its turn now: who waits for that holds no
// pipes. An error is found again at the start.
func (e *execution) prepareNext() {
	if e.session.cfg.NoLanes || e.ticket.admitted() {
		_ = e.prepare()
	}
}

// fork starts the shell.
func (e *execution) fork() (*process, error) {
	if e.stage == nil {
		if err := e.prepare(); err != nil {
			return nil, err
		}
	}
	s := e.stage
	e.stage = nil
	return s.start()
}

// start forks the shell and records it. It reports false when that failed.
func (e *execution) start() bool {
	p, err := e.fork()
	if err != nil {
		e.mu.Lock()
		e.refused = refuse("spawn", "cannot start the command: %v", err)
		if errors.Is(err, syscall.E2BIG) {
			e.refused = refuse("spawn", "cannot start the command: its text (%d bytes) and its environment together are more than the system takes. "+
				"Set fewer or shorter variables, or put the data into a file", len(e.request.Command))
		}
		e.mu.Unlock()
		return false
	}
	e.postThen(events.Spawned{PID: p.pid, PGID: p.pid, Start: p.start, Boot: bootID()}, func(err error) {
		e.out.fail(err)
		close(e.spawned)
	})
	e.in.attach(p.stdin)
	e.mu.Lock()
	e.proc, e.began = p, time.Now()
	cause, killAt, yielded := e.cause, e.killAt, e.yielded
	e.mu.Unlock()
	if cause != "" { // it was ended while it was forked
		e.strike(syscall.SIGTERM, time.Until(killAt))
	}
	if yielded { // nobody waits for it any more
		e.leaveLane()
	}
	e.place()
	return true
}

// supervise runs the shell to its end and its output to the end of file.
func (e *execution) supervise() {
	ended := e.pump()
	if t := e.request.Timeout; t > 0 {
		e.after(t, func() { e.end(stopOrder{cause: events.TermTimedOut, signal: syscall.SIGTERM, force: stopGrace}) })
	}
	e.after(e.session.lanes.held, e.leaveLane)
	if limit := e.session.cfg.StallTimeout; limit > 0 {
		go e.watchStall(limit, ended)
	}

	e.proc.await()
	runtime.Gosched() // the pumps were woken beside us, and are at the end of their pipes
	e.exited()
	go e.in.close() // an answer need not wait for that
	left := e.drain(ended)
	<-ended
	e.mu.Lock()
	e.left = left
	e.mu.Unlock()
}

// pump moves the output into the ledger. ended is closed at the end of all of it.
func (e *execution) pump() (ended chan struct{}) {
	ended = make(chan struct{})
	secrets := e.session.env.secrets(e.request.Env)
	var running atomic.Int64
	running.Store(int64(len(e.proc.streams)))
	for _, s := range e.proc.streams {
		pump := newPump(e.out, s, secrets)
		go func() {
			pump.run()
			if running.Add(-1) == 0 {
				close(ended) // an answer waits for it
			}
			_ = s.file.Close()
		}()
	}
	return ended
}

// watchStall ends the command when its output could not be recorded for so long.
func (e *execution) watchStall(limit time.Duration, ended <-chan struct{}) {
	tick := time.NewTicker(max(limit/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		if since := e.session.ledger.StalledSince(); !since.IsZero() && time.Since(since) >= limit {
			e.end(stopOrder{cause: events.TermStalled, signal: syscall.SIGTERM, force: stopGrace})
			return
		}
	}
}

// exited latches the shell's own end as the cause, unless there is one already.
func (e *execution) exited() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause == "" {
		e.cause = events.TermExited
	}
}

// after runs f unless the execution settles first.
func (e *execution) after(d time.Duration, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.settling {
		e.timers = append(e.timers, time.AfterFunc(d, f))
	}
}

// yield records that the call returns while the execution goes on. It fails
// when the shell has exited already, unless the call returns in any case.
func (e *execution) yield(ctx context.Context, inAnyCase bool) error {
	e.mu.Lock()
	ending := e.settling || e.proc == nil && e.cause != "" || e.proc != nil && e.proc.exited()
	if ending && !inAnyCase {
		e.mu.Unlock()
		return ErrEnded
	}
	e.yielded = true
	if e.settling { // nothing may come between this and the end, which the owner is told of
		e.mu.Unlock()
		return nil
	}
	started, elapsed := e.proc != nil, time.Duration(0)
	if started {
		elapsed = time.Since(e.began)
	}
	offset := e.out.offset()
	e.facts.Add(1)
	e.mu.Unlock()
	defer e.facts.Done()
	if started {
		e.leaveLane()
	}
	wait, done := context.WithTimeout(context.WithoutCancel(ctx), yieldMost)
	defer done()
	ev, err := e.session.ledger.Append(wait, e.event(events.Yielded{Offset: offset, ElapsedMS: elapsed.Milliseconds()}))
	if err == nil {
		e.reached(ev.Seq)
		return nil
	}
	e.session.log.Warn("recording a yield", "execution", e.id, "error", err)
	return nil // it has yielded all the same
}

// result is how the execution stands.
func (e *execution) result() (Result, error) {
	over := e.isOver()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := Result{Execution: e.id, Outcome: Yielded, Seq: e.seq}
	switch {
	case over && e.err != nil:
		return r, e.err
	case over && e.refused != nil:
		r.Outcome, r.Refusal, r.Reason = Refused, e.refused.Message, e.refused.Reason
	case over:
		r.Outcome = Settled
	case e.proc == nil && !e.settling:
		r.Outcome = Queued
	}
	return r, nil
}

// isOver reports whether the execution is settled.
func (e *execution) isOver() bool { return isClosed(e.done) }

// settlement is how it ended. Only a settled execution has one.
func (e *execution) settlement() events.Settled {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.settled
}

func (e *execution) event(b events.Body) events.Event {
	return e.session.event(e.owner, e.id, b)
}

// reached notes a durable lifecycle sequence.
func (e *execution) reached(seq uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq = max(e.seq, seq)
}

// post queues a lifecycle event, in order.
func (e *execution) post(b events.Body) { e.postThen(b, nil) }

// postThen queues a lifecycle event. then, if not nil, is called once, with
// what became of it, and must not wait.
func (e *execution) postThen(b events.Body, then func(error)) {
	done := func(ev events.Event, err error) {
		if err == nil {
			e.reached(ev.Seq)
		} else if !errors.Is(err, ledger.ErrClosed) {
			e.session.log.Warn("recording", "kind", b.Kind(), "execution", e.id, "error", err)
		}
		if then != nil {
			then(err)
		}
	}
	if err := e.session.ledger.Post(e.session.life, e.event(b), done); err != nil {
		done(events.Event{}, err)
	}
}
