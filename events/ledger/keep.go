package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// The times of the keeper.
const (
	// keepInterval is how often the host looks at its streams, and hurryInterval
	// how often while output comes fast.
	keepInterval  = 250 * time.Millisecond
	hurryInterval = 20 * time.Millisecond
	// deadAfter is how long an append may wait before the server is suspected:
	// a disk that was full leaves a stream dead until the server restarts.
	deadAfter = 8 * time.Second
	// restartPause is the least time between two restarts, and reportPause
	// between two reports that appends wait.
	restartPause = 10 * time.Second
	reportPause  = 2 * time.Second
	// orderTimeout is how long an order may take before it is given again.
	orderTimeout = 10 * time.Second
	// restartSpace is the free space, in bytes, without which a restart would
	// not help.
	restartSpace = 8 << 20
)

// hostRoot begins the subjects of orders to the host. Readers cannot reach them.
const hostRoot = "host."

// The orders that any process of the ledger may give the host.
const (
	orderRoll    = "roll"    // seal the active segment now
	orderDelete  = "delete"  // delete the sealed segment that the data names
	orderTwin    = "twin"    // make an empty packed twin of the sealed segment
	orderSwap    = "swap"    // let the twin take the segment's place
	orderDrop    = "drop"    // delete the segment's twin, which does not count
	orderDense   = "dense"   // remember that packing does not help the segment
	orderRotate  = "rotate"  // make new credentials
	orderSink    = "sink"    // let the owner that the data names have a sink
	orderUnsink  = "unsink"  // let it have none
	orderRestart = "restart" // appends wait: restart the server if that may help
)

// keep cares for the streams while this process hosts, and obeys orders. It is
// the one goroutine that changes streams or restarts the server.
func (s *store) keep(ctx context.Context) {
	t := time.NewTicker(keepInterval)
	defer t.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case m := <-s.dial.orders:
			err = s.obey(ctx, m)
		case <-t.C:
			var wait time.Duration
			wait, err = s.lookAfter(ctx)
			t.Reset(wait)
			s.dropFull()
		case <-s.grown:
			s.dropFull()
		}
		if err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("caring for the ledger's streams", "error", err)
		}
	}
}

// lookAfter seals the active segment when it is full, notes how far the streams
// are, and sees that the host is found. It says when to look again.
func (s *store) lookAfter(ctx context.Context) (time.Duration, error) {
	h := s.dial.hosting()
	if h == nil || h.removed() { // what has its place is another ledger
		return keepInterval, nil
	}
	if !h.ns.JetStreamEnabled() || h.hasMended() { // it gave up after an error
		return keepInterval, s.restart(nil)
	}
	full := uint64(s.o.SegmentBytes)
	has, err := h.roll(ctx, full)
	if now := time.Now(); now.Sub(s.noted) >= keepInterval && err == nil {
		s.noted = now
		if err := errors.Join(h.note(ctx), h.signpost()); err != nil { // next time, perhaps
			s.o.Logger.Debug("looking after the ledger's files", "error", err)
		}
	}
	fast := has > s.seen+full/16
	s.seen = has
	if fast {
		return hurryInterval, err
	}
	return keepInterval, err
}

// wrote counts bytes of output that were stored, and has the keeper look when they
// may have filled a block.
func (s *store) wrote(bytes int) {
	if s.stored.Add(int64(bytes)) < segmentBlock {
		return
	}
	s.stored.Store(0)
	select {
	case s.grown <- struct{}{}:
	default: // the keeper is about to look
	}
}

// dropFull keeps the blocks that a flood has filled from filling memory.
func (s *store) dropFull() {
	if h := s.dial.hosting(); h != nil {
		h.dropFull()
	}
}

func (s *store) obey(ctx context.Context, m *nats.Msg) error {
	h := s.dial.hosting()
	if h == nil {
		return nil // the next host is asked
	}
	if !m.Sub.IsValid() {
		return nil // nobody hears the answer since the server restarted: it is given again
	}
	answer := func(err error) error {
		if ctx.Err() != nil {
			return err // it was cut off by our end: the next host is asked
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		return errors.Join(err, m.Respond([]byte(text)))
	}
	if h.removed() {
		return answer(errRemoved)
	}
	switch m.Subject {
	case hostRoot + orderRoll:
		_, err := h.roll(ctx, 1)
		return answer(err)
	case hostRoot + orderDelete:
		return answer(h.deleteSegment(ctx, string(m.Data)))
	case hostRoot + orderTwin:
		return answer(h.makeTwin(ctx, string(m.Data)))
	case hostRoot + orderSwap:
		return answer(h.swap(ctx, string(m.Data)))
	case hostRoot + orderDrop:
		return answer(h.deleteTwin(ctx, string(m.Data)))
	case hostRoot + orderDense:
		return answer(h.keepRaw(string(m.Data)))
	case hostRoot + orderRestart:
		return errors.Join(answer(nil), s.restart(nil))
	case hostRoot + orderRotate:
		c, err := newCredentials(h.creds.Port, h.creds.Sinks)
		return s.renew(h, c, err, answer)
	case hostRoot + orderSink:
		if c, err := h.creds.withSink(string(m.Data)); err != nil || len(c.Sinks) > len(h.creds.Sinks) {
			return s.renew(h, c, err, answer)
		}
		return answer(nil)
	case hostRoot + orderUnsink:
		if c := h.creds.withoutSink(string(m.Data)); len(c.Sinks) < len(h.creds.Sinks) {
			return s.renew(h, c, nil, answer)
		}
		return answer(nil)
	}
	return answer(fmt.Errorf("unknown order %s", m.Subject))
}

// renew puts new credentials into force, unless making them failed. It answers
// before the server restarts.
func (s *store) renew(h *host, c credentials, err error, answer func(error) error) error {
	if err == nil {
		err = h.dir.writeCredentials(c)
	}
	if err != nil {
		return answer(err)
	}
	if err := errors.Join(answer(nil), h.nc.Flush()); err != nil {
		return err
	}
	s.restarted = time.Time{}
	return s.restart(func(h *host) { h.creds = c })
}

// restart restarts the server on the same store and port. All connections find
// it again by themselves.
func (s *store) restart(change func(*host)) error {
	if time.Since(s.restarted) < restartPause {
		return nil
	}
	if free, err := freeBytes(s.o.Dir); err == nil && free < restartSpace {
		return nil
	}
	s.restarted = time.Now()
	say := s.o.Logger.Warn
	if change != nil { // somebody asked for it
		say = s.o.Logger.Info
	}
	say("restarting the ledger's server")
	return s.dial.restart(change)
}

// order asks the host to do something, and waits for its answer. It is given
// again when the host dies.
func (s *store) order(ctx context.Context, what, data string) error {
	for {
		m, err := once(ctx, s, func(ctx context.Context) (*nats.Msg, error) {
			ctx, cancel := context.WithTimeout(ctx, orderTimeout)
			defer cancel()
			return s.nc.RequestWithContext(ctx, hostRoot+what, []byte(data))
		})
		switch {
		case err == nil && len(m.Data) == 0:
			return nil
		case err == nil:
			return errors.New(string(m.Data))
		case ctx.Err() != nil || !passes(err):
			return fmt.Errorf("asking the host of the ledger: %w", err)
		}
		pause(ctx, passPause)
	}
}

// order is [store.order] of who may write.
func (l *Ledger) order(ctx context.Context, what, data string) error {
	if l.opts.ReadOnly {
		return ErrReadOnly
	}
	return l.store.order(ctx, what, data)
}

// waits tells the host, now and then, that appends have waited since a time.
// It does not wait itself.
func (s *store) waits(since, now time.Time) {
	if since.IsZero() || now.Sub(since) < deadAfter || now.Sub(s.reported) < reportPause {
		return
	}
	s.reported = now
	// An error means that there is no connection: then the server is not the trouble.
	_ = s.nc.PublishRequest(hostRoot+orderRestart, nats.NewInbox(), nil)
}

// Rotate makes new credentials, for writers, readers and sinks. Every process of
// the ledger reconnects with them by itself; subscribers and sinks need the new ones.
func (l *Ledger) Rotate(ctx context.Context) error {
	if err := l.order(ctx, orderRotate, ""); err != nil {
		return fmt.Errorf("rotating the credentials: %w", err)
	}
	return nil
}
