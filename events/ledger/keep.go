package ledger

import (
	"context"
	"time"
)

// keepInterval is how often the host looks at its streams.
const keepInterval = 250 * time.Millisecond

// keep cares for the streams while this process hosts.
func (s *store) keep(ctx context.Context) {
	t := time.NewTicker(keepInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		h := s.dial.hosting()
		if h == nil || s.o.ReadOnly {
			continue
		}
		if err := h.keep(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("caring for the ledger's streams", "error", err)
		}
	}
}

// keep rolls the active segment when it is full.
func (h *host) keep(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ns == nil {
		return nil
	}
	return h.roll(ctx)
}
