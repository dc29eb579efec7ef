package producers

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// The grace between the first signal and SIGKILL.
const (
	stopGrace    = 3 * time.Second // stop and timeout
	closeGrace   = 2 * time.Second // shutdown and descendants
	orphanGrace  = 300 * time.Millisecond
	laneHeldMost = 30 * time.Second
)

const (
	// openMost bounds the wait for a session's first append: the ledger may be without
	// a host for good.
	openMost = 30 * time.Second
	// openGrace is how much of that is left once nobody wants the session any more:
	// an append that is given up may have happened, and its session is lost then.
	openGrace = 500 * time.Millisecond
)

// Session owns executions and is their only writer. It is safe for concurrent use.
type Session struct {
	ledger *ledger.Ledger
	life   context.Context // never ends: what was begun is recorded, whoever gave up on it
	cfg    Config
	id     string
	log    *slog.Logger
	claim  *ledger.Claim
	opened events.Opened
	lanes  *lanes
	env    *environment
	silent func() // stops answering control requests
	// unwatch ends looking for other sessions that die.
	unwatch func()
	mail    *mailbox

	gate       sync.RWMutex // held for reading while a request takes its place, and by a rewind
	mu         sync.Mutex
	executions map[string]*execution
	judging    map[*berth]bool
	live       int // executions that are not over, and requests being judged
	closing    bool
	over       sync.WaitGroup // running executions, and what else must precede the end
}

// OpenSession declares sessions lost whose process died, and opens a new one.
// Facts about this process that opened leaves out are filled in.
func OpenSession(ctx context.Context, l *ledger.Ledger, cfg Config, opened events.Opened) (*Session, error) {
	s := &Session{
		ledger: l, life: context.WithoutCancel(ctx), cfg: cfg, id: events.NewID(), log: slog.Default(),
		lanes: newLanes(), env: newEnvironment(&cfg, os.Environ()), executions: map[string]*execution{}, judging: map[*berth]bool{},
	}
	s.mail = newMailbox(s)
	opened = identify(opened)
	s.opened = opened
	dead := newLookout(l, s.id)
	if err := dead.first(ctx); err != nil {
		return nil, fmt.Errorf("recovering dead sessions: %w", err)
	}
	claim, err := l.ClaimSession(s.id)
	if err != nil {
		return nil, fmt.Errorf("claiming session %s: %w", s.id, err)
	}
	s.claim = claim
	// From here on a failure leaves the claim as it is: by it the next opener
	// finds a session that was perhaps opened, and declares it lost.
	wait, done := context.WithTimeout(context.WithoutCancel(ctx), openMost)
	defer done()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(openGrace, done) })()
	if _, err := l.Append(wait, s.event("", s.id, opened)); err != nil {
		return nil, fmt.Errorf("opening session %s: %w", s.id, cmp.Or(l.Writable(), err))
	}
	if s.silent, err = l.Serve(s.id, s.control); err != nil { //nolint:contextcheck,nolintlint // it serves until Close; the linter sees that only at times
		return nil, fmt.Errorf("serving session %s: %w", s.id, err)
	}
	family.join()
	s.unwatch = dead.start() //nolint:contextcheck // it looks until Close
	return s, nil
}

// identify fills in what opened leaves out about this process.
func identify(o events.Opened) events.Opened {
	if o.PID == 0 {
		o.PID = os.Getpid()
		o.Start, _ = startTime(o.PID)
		o.Boot = bootID()
	}
	if o.Cwd == "" {
		o.Cwd, _ = os.Getwd()
	}
	if o.Host == "" {
		o.Host, _ = os.Hostname()
	}
	return o
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// Writable says why any command would be refused now; it is nil while the ledger
// takes new work.
func (s *Session) Writable() error { return s.ledger.Writable() }

// event makes an event of the session.
func (s *Session) event(owner, subject string, b events.Body) events.Event {
	return events.Event{Session: s.id, Owner: owner, Subject: subject, Body: b}
}

// find is the owner's execution.
func (s *Session) find(owner, id string) (*execution, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.executions[id]
	if !ok || e.owner != ownerOf(owner) {
		return nil, &UnknownError{Execution: id}
	}
	return e, nil
}

// running is the executions that are not over and that pick takes. Those that are
// still judged are forestalled instead.
func (s *Session) running(pick func(*execution) bool) []*execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*execution
	for _, e := range s.executions {
		if e.judged && !e.isOver() && pick(e) {
			out = append(out, e)
		}
	}
	return out
}

// Cleanup forgets the owner's executions that ended longer ago than asked:
// completedOlder for completed ones, stoppedOlder for all others. Their output
// stays in the ledger.
func (s *Session) Cleanup(ctx context.Context, owner string, completedOlder, stoppedOlder time.Duration) (int, error) {
	forgotten := s.forget(ownerOf(owner), completedOlder, stoppedOlder)
	recorded := make(chan error, len(forgotten))
	for _, e := range forgotten {
		end := e.settlement().Offset
		pruned := s.event(e.owner, e.id, events.Pruned{From: end, To: end, Reason: "cleanup"})
		if err := s.ledger.Post(ctx, pruned, func(_ events.Event, err error) { recorded <- err }); err != nil {
			recorded <- err
		}
	}
	removed := 0
	for range forgotten {
		select {
		case err := <-recorded:
			if err != nil {
				return removed, fmt.Errorf("recording what was forgotten: %w", err)
			}
			removed++
		case <-ctx.Done():
			return removed, fmt.Errorf("recording what was forgotten: %w", context.Cause(ctx))
		}
	}
	return removed, nil
}

// forget takes the executions that a cleanup removes.
func (s *Session) forget(owner string, completedOlder, stoppedOlder time.Duration) []*execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*execution
	for id, e := range s.executions {
		if e.owner != owner || !e.isOver() || s.mail.pending(id) {
			continue
		}
		keep := stoppedOlder
		if e.settlement().Status == events.StatusCompleted {
			keep = completedOlder
		}
		if time.Since(e.overAt) >= keep {
			delete(s.executions, id)
			out = append(out, e)
		}
	}
	return out
}

// Close stops every execution, waits for the settlements, and appends closed.
// When ctx ends first the session stays open in the ledger, and the next
// opener declares it lost. Only the first call does anything.
func (s *Session) Close(ctx context.Context, reason string) error {
	return s.close(ctx, reason, stopOrder{cause: events.TermSessionEnded, force: closeGrace})
}

// CloseAtOnce is Close with hardly any grace for the commands, for a server
// whose guardian is gone: who killed that may kill on. To its client the server
// was killed, so the commands are lost.
func (s *Session) CloseAtOnce(ctx context.Context, reason string) error {
	return s.close(ctx, reason, stopOrder{cause: events.TermLost, force: orphanGrace})
}

func (s *Session) close(ctx context.Context, reason string, order stopOrder) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return nil
	}
	s.closing = true
	order.signal = syscall.SIGTERM
	s.forestall("", order)
	s.mu.Unlock()
	defer family.leave()
	s.mail.hush()

	// Requests are answered to the end: what they wait for ends here.
	err := s.endAll(ctx, order)
	s.unwatch()
	s.silent()
	if order.cause == events.TermLost {
		s.postLost()
	}
	s.mail.close(ctx)
	if err != nil {
		return fmt.Errorf("closing session %s: %w", s.id, err)
	}
	s.sweep(ctx, order.force)
	if _, err := s.ledger.Append(ctx, s.event("", s.id, events.Closed{Reason: reason})); err != nil {
		return fmt.Errorf("closing session %s: %w", s.id, err)
	}
	giveUp(s.claim, s.mail.offered()) // only now: a claim that is left is what the next opener finds
	return nil
}

// stay keeps a session that is not closing from its end until over.Done is called.
func (s *Session) stay() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.over.Add(1)
	}
	return !s.closing
}

// endAll ends every execution and waits until all are settled.
func (s *Session) endAll(ctx context.Context, order stopOrder) error {
	for _, e := range s.running(func(*execution) bool { return true }) {
		go e.end(order)
	}
	settled := make(chan struct{})
	go func() { s.over.Wait(); close(settled) }()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for executions to end: %w", ctx.Err())
	}
}

// postLost leaves a list of the lost executions to the next session.
func (s *Session) postLost() {
	owed := newUnposted()
	s.mu.Lock()
	for id, e := range s.executions {
		if e.isOver() && e.settlement().Termination == events.TermLost {
			owed.lose(e.owner, id)
		}
	}
	s.mu.Unlock()
	for owner, lost := range owed.lost {
		slices.Sort(lost)
		s.mail.post(&letter{mail: Mail{ID: resumedID(s.id, owner), Session: s.id, Owner: owner, Posted: resumed(lost)}})
	}
}

// sweep ends what the setting let live when its shell ended.
func (s *Session) sweep(ctx context.Context, grace time.Duration) {
	mine := func(token string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.executions[token] != nil
	}
	killAt, termed := time.Now().Add(grace), map[kinsman]bool{}
	for left := family.strays(mine); len(left) > 0 && ctx.Err() == nil; left = family.strays(mine) {
		for _, k := range left {
			switch {
			case time.Now().After(killAt):
				k.signal(syscall.SIGKILL)
			case !termed[k]:
				k.signal(syscall.SIGTERM)
				termed[k] = true
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func ownerOf(owner string) string {
	if owner == "" {
		return events.RootOwner
	}
	return owner
}
