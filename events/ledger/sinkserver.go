package ledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// A sinkServer serves one sink in one process, over a connection of its own
// into the sink's account.
type sinkServer struct {
	l     *Ledger
	owner string
	nc    *nats.Conn
	pull  func(context.Context, *Pull)
	ack   func(SinkAck)
	ctx   context.Context // ends with close

	mu     sync.Mutex
	flying map[uint64]*Pull // by the leases of what they delivered
	pulls  int
	closed bool
	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// ServeSinks serves the sinks of the ledger, those that are added later too,
// until stop is called or the ledger closed. It hands what they ask for to pull,
// on a goroutine of its own each, and what they answer to ack, which must not
// wait. Of the processes that serve, one gets each pull, and all get each
// acknowledgement.
func (l *Ledger) ServeSinks(pull func(context.Context, *Pull), ack func(SinkAck)) (stop func()) {
	ctx, cancel := context.WithCancel(l.run)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			l.serveSinksOnce(ctx, pull, ack)
			pause(ctx, passPause)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// serveSinksOnce serves until the connection to the host is lost. The sinks do
// not change before that: the server restarts with new ones.
func (l *Ledger) serveSinksOnce(ctx context.Context, pull func(context.Context, *Pull), ack func(SinkAck)) {
	lost, forget := l.store.onLost()
	defer forget()
	if !l.store.nc.IsConnected() {
		return
	}
	c, err := l.store.dir.readCredentials()
	if err != nil {
		l.opts.Logger.Warn("serving sinks", "error", err)
		return
	}
	broken := make(chan struct{}, len(c.Sinks))
	for _, s := range c.Sinks {
		k, err := l.serveSink(ctx, c, s, pull, ack, nats.ClosedHandler(func(*nats.Conn) { broken <- struct{}{} }))
		if err != nil { // the server of these credentials ends or begins
			l.opts.Logger.Debug("serving a sink", "owner", s.Owner, "error", err)
			return
		}
		defer k.close()
	}
	select {
	case <-lost:
	case <-broken:
	case <-ctx.Done():
	}
}

func (l *Ledger) serveSink(ctx context.Context, c credentials, s sinkCredentials, pull func(context.Context, *Pull), ack func(SinkAck), closed nats.Option) (*sinkServer, error) {
	nc, err := nats.Connect("nats://127.0.0.1", nats.Name("yieldlog mailbox"), nats.UserInfo(s.server(), s.serverPassword(c)),
		nats.SetCustomDialer(toHost{l.store.dial}), nats.SkipHostLookup(), nats.NoReconnect(), closed,
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			l.opts.Logger.Debug("connection of a sink", "error", err)
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to the account of a sink: %w", err)
	}
	k := &sinkServer{l: l, owner: s.Owner, nc: nc, pull: pull, ack: ack, flying: map[uint64]*Pull{}}
	k.ctx, k.cancel = context.WithCancel(ctx)
	_, errNext := nc.QueueSubscribe(sinkNext, "mailbox", k.onPull)
	_, errInfo := nc.QueueSubscribe(sinkInfo, "mailbox", k.onInfo)
	_, errAck := nc.Subscribe(sinkAck+"*.*", k.onAck)
	if err := errors.Join(errNext, errInfo, errAck); err != nil {
		k.close()
		return nil, fmt.Errorf("serving a sink: %w", err)
	}
	return k, nil
}

// close ends the pulls, tells their sinks, and ends the connection.
func (k *sinkServer) close() {
	k.mu.Lock()
	k.closed = true // no pull begins any more
	k.mu.Unlock()
	k.cancel()
	k.wg.Wait()
	k.nc.Close() // what was published is sent before
}

// toHost dials the host of the ledger, and never becomes it. It takes the port
// also where the host is this process: both ends of a pipe inside the process wait
// for each other where the server refuses the login, and its end waits for them.
type toHost struct{ *dialer }

func (t toHost) Dial(_, _ string) (net.Conn, error) { return t.join() }

// toInbox reports whether an answer can only reach who asked: a sink listens to
// nothing but inboxes.
func toInbox(m *nats.Msg) bool { return strings.HasPrefix(m.Reply, inbox) }
