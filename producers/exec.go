package producers

import (
	"context"
	"fmt"
	"maps"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

const (
	// recordMost bounds the wait for a request's append: a ledger that stalls
	// refuses new work.
	recordMost = 5 * time.Second
	// yieldMost bounds the wait for a yield's append: the call then answers
	// without it, and the event stays queued.
	yieldMost = 2 * time.Second
	// endMost bounds the wait for an end that came before the yield and takes
	// long to record: a ledger that stalls holds no call.
	endMost = 5 * time.Second
)

// Exec runs a command. It returns when the command is settled, when its yield
// delay is over (the command then runs on), or when it was refused. A ctx that
// ends before that ends the command, and is the error; after that it has no effect.
func (s *Session) Exec(ctx context.Context, r Request) (Result, error) {
	r.Owner, r.SideEffects = ownerOf(r.Owner), distinct(r.SideEffects)
	yield, timeout := s.cfg.delays(r)
	r.Yield, r.Timeout = yield, timeout
	e, no, err := s.request(ctx, r)
	if err != nil {
		return Result{}, err
	}
	if no != nil {
		return s.refuse(ctx, r, no)
	}
	watch := s.mail.observe(e.id)
	defer watch.leave()
	res, err := e.attend(ctx, yield)
	switch {
	case err != nil || res.Outcome != Settled:
	case e.monitor != nil:
		res.Outcome = Yielded
	default:
		res.Claim = watch.claim("exec")
	}
	return res, err
}

// request judges the request, reserves its place among the running ones,
// records it, and sets it going.
func (s *Session) request(ctx context.Context, r Request) (*execution, *refusal, error) {
	ticket := r.Turn.take()
	if ticket == nil {
		ticket = s.lanes.draw()
	}
	ticket.decide(r.reads())
	place, err := s.reserve(r.Owner)
	if err != nil {
		ticket.leave()
		return nil, nil, err
	}
	e, no := s.judge(ctx, r, ticket, place.before)
	if no != nil {
		ticket.leave()
	}
	if !s.settleIn(place, e) {
		return nil, no, nil
	}
	if no != nil {
		go e.forgo()
		return nil, no, nil
	}
	e.launch(r, place.ended)
	return e, nil, nil
}

// launch sets a recorded execution going, unless an order ended it before.
func (e *execution) launch(r Request, ended *stopOrder) {
	if r.Started != nil {
		r.Started(e.id)
	}
	if e.monitor != nil { // nobody waits for it: all that it says comes by mail
		e.post(events.Yielded{})
	}
	if ended != nil { // its session or owner ended meanwhile: it must not start
		e.end(*ended)
	}
	go e.run()
}

// A berth is the place of a request that is being judged.
type berth struct {
	owner string
	// before counts the running executions before it.
	before int
	// ended is the order that ends the execution before it starts, or nil. It is
	// guarded by Session.mu until the request is judged.
	ended *stopOrder
}

// reserve takes a place among the running executions. It comes before the
// judgement, so that concurrent calls cannot pass the limit together.
func (s *Session) reserve(owner string) (*berth, error) {
	s.gate.RLock()
	defer s.gate.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil, ErrClosed
	}
	p := &berth{owner: owner, before: s.live}
	s.judging[p] = true
	s.live++
	s.over.Add(1)
	return p, nil
}

// settleIn puts the execution into its place, or gives that up when there is
// none, which it reports.
func (s *Session) settleIn(p *berth, e *execution) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.judging, p)
	if e == nil {
		s.live--
		s.over.Done()
		return false
	}
	e.judged = true
	s.mail.began(e.owner)
	return true
}

// know lets the execution be found. It comes before its request is appended: who
// reads of it there may ask for it at once.
func (s *Session) know(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executions[e.id] = e
}

// forestall ends what is being judged for the owner, or with "" for all, before
// it starts. The caller holds the lock.
func (s *Session) forestall(owner string, o stopOrder) {
	for p := range s.judging {
		if (owner == "" || p.owner == owner) && p.ended == nil {
			p.ended = &o
		}
	}
}

// judge applies policy and appends requested: nothing starts that is not on record.
// It returns both an execution and a refusal where that append is in doubt.
func (s *Session) judge(ctx context.Context, r Request, t *ticket, running int) (*execution, *refusal) {
	dir, no := s.cfg.check(r, running)
	if no != nil {
		return nil, no
	}
	if err := s.ledger.Writable(); err != nil {
		return nil, &refusal{Reason: "ledger", Message: err.Error()}
	}
	r.Cwd = dir
	e := newExecution(s, r, t)
	s.know(e)
	wait, done := context.WithTimeout(ctx, recordMost)
	defer done()
	ev, err := s.ledger.AppendBeside(wait, e.event(s.requested(r)), e.prepareNext)
	if err != nil {
		return e, e.unrecorded(ctx, err)
	}
	e.reached(ev.Seq)
	return e, nil
}

// unrecorded refuses a request whose append was not acknowledged in time. It may
// still reach the ledger, and so the execution must have an end there.
func (e *execution) unrecorded(ctx context.Context, err error) *refusal {
	no := refusal{Reason: "ledger", Message: fmt.Sprintf("the command was not started, because it could not be recorded: %v", err), doubt: true}
	if ctx.Err() != nil {
		no.Reason, no.Message = "cancelled", "the call was cancelled before the command started"
	}
	kept := no
	e.mu.Lock()
	e.refused = &kept
	e.mu.Unlock()
	return &no
}

// forgo ends an execution that was not to start.
func (e *execution) forgo() {
	defer e.unwant()
	e.settle()
}

// requested is what the ledger keeps of a request: no secret, in whatever text
// it stands.
func (s *Session) requested(r Request) events.Requested {
	hide := s.hide(r)
	client := maps.Clone(r.Client)
	for k, v := range client {
		client[k] = hide(v)
	}
	return events.Requested{
		Command: hide(r.Command), Name: hide(r.Name), Cwd: hide(r.Cwd), Shell: hide(r.Shell),
		SideEffects: r.SideEffects, Env: each(names(r.Env), hide), StdinBytes: len(r.Stdin),
		YieldMS: r.Yield.Milliseconds(), TimeoutMS: r.Timeout.Milliseconds(), OutputLimit: s.cfg.OutputLimit,
		TTY: r.TTY, Monitor: r.Monitor, Client: client, Trace: hide(r.Trace),
	}
}

// each is what becomes of each of the texts.
func each(texts []string, f func(string) string) []string {
	done := make([]string, len(texts))
	for i, t := range texts {
		done[i] = f(t)
	}
	return done
}

// hide replaces the secrets that the request's command is not to show.
func (s *Session) hide(r Request) func(text string) string {
	return newRedactor(s.env.secrets(r.Env)).whole
}

// refuse records a refusal and says what the caller is told.
func (s *Session) refuse(ctx context.Context, r Request, no *refusal) (Result, error) {
	no.Message = excerpt(s.hide(r)(no.Message), 4*refusedText)
	res := Result{Execution: events.NewID(), Outcome: Refused, Refusal: no.Message, Reason: no.Reason}
	if no.doubt || no.Reason == "ledger" { // it has its execution's end, or cannot be recorded
		return res, context.Cause(ctx)
	}
	ev, err := s.ledger.Append(ctx, s.event(r.Owner, res.Execution, s.refusedFact(r, no)))
	if err != nil {
		return res, fmt.Errorf("recording a refusal: %w", err)
	}
	res.Seq = ev.Seq
	return res, nil
}

// attend waits for the settlement, at most for the yield delay.
func (e *execution) attend(ctx context.Context, yield time.Duration) (Result, error) {
	delay := time.NewTimer(yield)
	defer delay.Stop()
	select {
	case <-e.done:
		return e.result()
	case <-ctx.Done():
		return e.cancelled(ctx)
	case <-delay.C:
	}
	if e.monitor != nil {
		<-e.placed
		return e.result()
	}
	select {
	case <-e.placed: // within a moment: the answer names a process, or a place in the queue
	case <-e.done:
	}
	if err := e.yield(ctx, false); err == nil {
		return e.result()
	}
	// It is ending right now: the caller gets the completion, not a stale handle.
	patience := time.NewTimer(endMost)
	defer patience.Stop()
	select {
	case <-e.done:
		return e.result()
	case <-ctx.Done():
		return e.cancelled(ctx)
	case <-patience.C:
	}
	if err := e.yield(ctx, true); err != nil {
		return Result{}, err
	}
	return e.result()
}

// Abandon ends the owner's execution, whose call had yielded and was given up
// before its caller was told. It waits for nothing.
func (s *Session) Abandon(owner, id string) {
	if e, err := s.find(owner, id); err == nil {
		go e.abandon()
	}
}

func (e *execution) abandon() {
	e.end(stopOrder{cause: events.TermCancelled, signal: syscall.SIGTERM, force: closeGrace})
}

// cancelled ends the command of a call that was given up.
func (e *execution) cancelled(ctx context.Context) (Result, error) {
	go e.abandon()
	return Result{Execution: e.id}, fmt.Errorf("executing %s: %w", e.id, context.Cause(ctx))
}

// Wait waits for the settlement, at most for d, and never ends anything. A ctx
// that ends first is the error.
func (s *Session) Wait(ctx context.Context, owner, id string, d time.Duration) (Result, error) {
	e, err := s.find(owner, id)
	if err != nil {
		return Result{Execution: id}, err
	}
	watch := s.mail.observe(id)
	defer watch.leave()
	delay := time.NewTimer(d)
	defer delay.Stop()
	select {
	case <-e.done:
	case <-delay.C:
	case <-ctx.Done():
		return Result{Execution: id}, fmt.Errorf("waiting for %s: %w", id, context.Cause(ctx))
	}
	res, err := e.result()
	if err == nil && res.Outcome == Settled {
		res.Claim = watch.claim("wait")
	}
	return res, err
}
