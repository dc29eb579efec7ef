package producers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

const (
	// lendMost bounds how long one session may take to lend, and busyPause the
	// wait before a session is asked again that could not be asked, or whose mail
	// another process tells of.
	lendMost  = 2 * time.Second
	busyPause = 500 * time.Millisecond
)

// sinks serves external programs that take an owner's mail, in one process. It
// asks the processes of living sessions for their mail, since only those may
// write to them, and lends that of ended sessions itself.
type sinks struct {
	ledger *ledger.Ledger
	// own is the loans of this process's session, if it has one.
	own *loans
	// dead is the mailbox of all sessions that have ended. Its session is none.
	dead *mailbox
	mail *unreadMail
}

// ServeSinks serves the sinks of the ledger until stop is called. s is the
// session of this process, nil if it has none.
func ServeSinks(l *ledger.Ledger, s *Session) (stop func()) {
	k := newSinks(l, s)
	silent := l.ServeSinks(k.pull, k.hear)
	return func() {
		silent()
		k.close()
	}
}

func newSinks(l *ledger.Ledger, s *Session) *sinks {
	none := &Session{ledger: l, life: context.Background(), log: slog.Default()}
	none.mail = newMailbox(none)
	k := &sinks{ledger: l, dead: none.mail, mail: newUnreadMail(l)}
	if s != nil {
		k.own = s.mail.loans
	}
	return k
}

func (k *sinks) close() {
	k.mail.close()
	k.dead.close(context.Background())
}

// hear takes what a sink answers. The loan is here, or in another process.
func (k *sinks) hear(a ledger.SinkAck) {
	k.dead.loans.hear(a)
	if k.own != nil {
		k.own.hear(a)
	}
}

// pull gives a sink what its owner has, as it comes.
func (k *sinks) pull(ctx context.Context, p *ledger.Pull) {
	if err := k.mail.open(ctx); err != nil {
		if ctx.Err() == nil {
			slog.Warn("looking for the mail of a sink", "owner", p.Owner, "error", err)
		}
		return
	}
	w := &waits{k: k, owner: p.Owner, asked: map[string]bool{}, ready: make(chan struct{}, 1)}
	for p.Left() > 0 {
		news, deadNews := k.mail.changed(), k.dead.changes()
		busy, ok := k.give(ctx, p)
		if p.NoWait || p.Left() == 0 || !ok {
			return
		}
		w.begin(ctx)
		var again <-chan time.Time
		if busy {
			again = time.After(busyPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-deadNews:
		case <-w.ready:
		case <-again:
		}
	}
}

// give delivers what can be had now. busy says that there is something which
// cannot be waited for. It is not ok when something could not be delivered.
func (k *sinks) give(ctx context.Context, p *ledger.Pull) (busy, ok bool) {
	ok = true
	for _, session := range k.mail.sessions(p.Owner) {
		if p.Left() == 0 || ctx.Err() != nil || !ok {
			break
		}
		lent, loans, err := k.lend(ctx, session, p.Owner, p.Left())
		if err != nil && ctx.Err() == nil {
			slog.Debug("asking for the mail of a sink", "session", session, "error", err)
		}
		busy = busy || err != nil
		for _, t := range lent {
			if ok = ok && p.Deliver(ctx, t.Seq, t.Lease, t.Redelivered); !ok {
				k.giveBack(ctx, session, p.Owner, t, loans)
			}
		}
	}
	return busy, ok
}

// errTold says that another process tells of a session's mail.
var errTold = errors.New("another process tells of it")

// lend claims mail of a session: here, if it has ended, and otherwise in its own
// process.
func (k *sinks) lend(ctx context.Context, session, owner string, most int) ([]Lent, *loans, error) {
	ctx, cancel := context.WithTimeout(ctx, lendMost)
	defer cancel()
	take := rand.Uint64() >> 1
	if letters, ended := k.mail.left(session, owner); ended {
		k.dead.inherit(letters)
		list := k.dead.lend(ctx, owner, most, take)
		if len(list) == 0 && k.dead.told(letters) {
			return nil, nil, errTold
		}
		return list, k.dead.loans, nil
	}
	a, err := ask(ctx, k.ledger, session, controlRequest{Op: "lend", Owner: owner, Most: most, Take: take})
	if errors.Is(err, ledger.ErrNoSession) {
		err = k.bury(ctx, session)
	}
	return a.Lent, nil, err
}

// bury declares a session lost whose process died. Its mail is then that of an
// ended session.
func (k *sinks) bury(ctx context.Context, session string) error {
	release, err := claimDead(ctx, k.ledger, session)
	if err == nil {
		release()
	}
	return err
}

// giveBack returns what could not be delivered.
func (k *sinks) giveBack(ctx context.Context, session, owner string, t Lent, here *loans) {
	nobody := ledger.SinkAck{Owner: owner, Seq: t.Seq, Lease: t.Lease, Verb: ledger.AckNobody, Answer: func() {}}
	if here != nil {
		here.hear(nobody)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lendMost)
	defer cancel()
	if _, err := ask(ctx, k.ledger, session, controlRequest{Op: "unlend", Owner: owner, Seq: t.Seq, Take: t.Lease}); err != nil {
		slog.Debug("returning the mail of a sink", "session", session, "error", err) // its term ends
	}
}

// A waits asks sessions, for one pull, to say when they have something to lend.
type waits struct {
	k     *sinks
	owner string
	ready chan struct{} // holds a token after one did

	mu    sync.Mutex
	asked map[string]bool
}

// begin asks the sessions that were not asked yet. A session claims nothing by
// its answer, so one that comes too late does no harm.
func (w *waits) begin(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	for _, session := range w.k.mail.sessions(w.owner) {
		w.mu.Lock()
		skip := w.asked[session] || w.k.mail.ended(session)
		w.asked[session] = w.asked[session] || !skip
		w.mu.Unlock()
		if skip {
			continue
		}
		go func() { // ends with the pull
			_, err := ask(ctx, w.k.ledger, session, controlRequest{Op: "lendable", Owner: w.owner, Wait: time.Until(deadline)})
			if err != nil {
				select {
				case <-time.After(busyPause):
				case <-ctx.Done():
				}
			}
			w.mu.Lock()
			delete(w.asked, session)
			w.mu.Unlock()
			select {
			case w.ready <- struct{}{}:
			default:
			}
		}()
	}
}

// unreadMail follows which sessions have mail that was not acknowledged. It
// begins with the first pull.
type unreadMail struct {
	ledger *ledger.Ledger
	// events follows the ledger; its Follow, but for tests in which that fails.
	events func(context.Context, events.Filter, uint64) iter.Seq2[events.Event, error]
	life   context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	opening sync.Mutex
	opened  bool

	mu      sync.Mutex
	records map[string]Mail
	over    map[string]bool
	lost    losses
	news    chan struct{}
}

func newUnreadMail(l *ledger.Ledger) *unreadMail {
	life, cancel := context.WithCancel(context.Background())
	return &unreadMail{
		ledger: l, events: l.Follow, life: life, cancel: cancel, records: map[string]Mail{}, over: map[string]bool{},
		lost: losses{}, news: make(chan struct{}),
	}
}

// open reads the ledger once, and follows it from then on.
func (u *unreadMail) open(ctx context.Context) error {
	u.opening.Lock()
	defer u.opening.Unlock()
	if u.opened {
		return nil
	}
	classes := []events.Class{events.ClassSession, events.ClassMailbox}
	next := make([]uint64, len(classes))
	for i, c := range classes {
		for e, err := range u.ledger.Read(ctx, events.Filter{Class: c}, 1, 0) {
			if err != nil {
				return fmt.Errorf("reading the mailboxes: %w", err)
			}
			u.apply(e)
			next[i] = e.Seq
		}
	}
	for i, c := range classes {
		u.done.Go(func() { u.follow(c, next[i]+1) })
	}
	u.opened = true
	return nil
}

// follow goes on after an error, with longer and longer pauses: sinks would
// otherwise wait for mail that nobody sees.
func (u *unreadMail) follow(c events.Class, from uint64) {
	for wait := firstRetry; u.life.Err() == nil; wait = min(2*wait, lastRetry) {
		for e, err := range u.events(u.life, events.Filter{Class: c}, from) {
			if err != nil {
				if u.life.Err() == nil {
					slog.Warn("following the mailboxes for sinks", "error", err)
				}
				break
			}
			u.apply(e)
			from, wait = e.Seq+1, firstRetry
		}
		select {
		case <-u.life.Done():
		case <-time.After(wait):
		}
	}
}

func (u *unreadMail) close() {
	u.cancel()
	u.done.Wait()
}

func (u *unreadMail) apply(e events.Event) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch b := e.Body.(type) {
	case events.Closed:
		u.over[e.Session] = true
	case events.Lost:
		u.over[e.Session], u.lost[e.Session] = true, e.Seq
	case events.Posted:
		u.records[e.Subject] = mailOf(e, b)
	case events.Acknowledged:
		delete(u.records, e.Subject)
		return
	default:
		return
	}
	close(u.news)
	u.news = make(chan struct{})
}

func (u *unreadMail) changed() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.news
}

func (u *unreadMail) ended(session string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.over[session]
}

// sessions lists those with unread mail of the owner, the oldest mail first.
func (u *unreadMail) sessions(owner string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	first := map[string]uint64{}
	for _, m := range u.records {
		if m.Owner == owner && (first[m.Session] == 0 || m.Seq < first[m.Session]) {
			first[m.Session] = m.Seq
		}
	}
	list := make([]string, 0, len(first))
	for s := range first {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b string) int { return int(int64(first[a]) - int64(first[b])) })
	return list
}

// left is the unread mail of the owner that an ended session left.
func (u *unreadMail) left(session, owner string) (letters map[string]*letter, ended bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over[session] {
		return nil, false
	}
	letters = map[string]*letter{}
	for id, m := range u.records {
		if m.Session == session && m.Owner == owner {
			m = m.clone()
			m.Redelivered = u.lost.mayHaveTold(m)
			letters[id] = &letter{durable: true, announced: true, mail: m}
		}
	}
	return letters, true
}
