package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/yieldlog/yieldlog/events"
)

// NotePruned records, as an event of the session, that output of an execution is
// deleted. A session has one writer: whoever implements it asks the session's
// process, or claims a dead session.
type NotePruned func(ctx context.Context, session, owner, execution string, p events.Pruned) error

// PruneReport says what a prune deleted.
type PruneReport struct {
	Segments   []string `json:"segments"`
	Executions int      `json:"executions"`
	Bytes      int64    `json:"bytes"`
}

// pruneInterval is how often a host compares the size of the ledger with its limit.
const pruneInterval = 500 * time.Millisecond

// AutoPrune keeps the ledger below its size limit while this process hosts it:
// the oldest output is deleted, a whole sealed segment at a time, after note has
// recorded it. Output whose deletion cannot be recorded is kept. Call it at most
// once, after Open; it ends with Close.
func (l *Ledger) AutoPrune(note NotePruned) {
	l.wg.Go(func() {
		t := time.NewTicker(pruneInterval)
		defer t.Stop()
		for {
			select {
			case <-l.run.Done():
				return
			case <-t.C:
			}
			if l.store.dial.hosting() == nil {
				continue
			}
			// Room for what the active segment may still take.
			limit := l.opts.MaxBytes - min(2*l.opts.SegmentBytes, l.opts.MaxBytes/4)
			r, err := l.Prune(l.run, limit, "size", note)
			if err != nil && l.run.Err() == nil {
				l.opts.Logger.Warn("pruning the ledger", "error", err)
			}
			if len(r.Segments) > 0 {
				l.opts.Logger.Info("pruned the oldest output", "segments", r.Segments, "bytes", r.Bytes)
			}
		}
	})
}

// Prune deletes the oldest sealed segments until all streams together have at
// most so many bytes, or no sealed segment is left. The lifecycle events stay.
// Each execution whose output goes is told to note first, with the reason.
func (l *Ledger) Prune(ctx context.Context, bytes int64, reason string, note NotePruned) (PruneReport, error) {
	return l.prune(ctx, reason, note, func(i Info, _ StreamInfo) bool { return i.Bytes > bytes })
}

// PruneBefore deletes the sealed segments whose last output is older than a time.
func (l *Ledger) PruneBefore(ctx context.Context, t time.Time, reason string, note NotePruned) (PruneReport, error) {
	if err := l.order(ctx, orderRoll, ""); err != nil {
		return PruneReport{}, fmt.Errorf("pruning: %w", err)
	}
	return l.prune(ctx, reason, note, func(_ Info, s StreamInfo) bool { return s.Last.Before(t) })
}

func (l *Ledger) prune(ctx context.Context, reason string, note NotePruned, goes func(Info, StreamInfo) bool) (PruneReport, error) {
	r := PruneReport{Segments: []string{}}
	i, err := l.Info(ctx)
	if err != nil {
		return r, fmt.Errorf("pruning: %w", err)
	}
	live := l.dir().segments() // not the twin that a pack is writing
	for _, s := range i.Streams {
		if !slices.Contains(live, s.Name) || !s.Sealed || !goes(i, s) {
			continue
		}
		n, err := l.pruneSegment(ctx, s.Name, reason, note)
		if errors.Is(err, errMoved) { // packed meanwhile
			n, err = l.pruneSegment(ctx, twinName(s.Name), reason, note)
		}
		if errors.Is(err, errMoved) { // pruned meanwhile
			continue
		}
		if err != nil {
			return r, fmt.Errorf("pruning segment %s: %w", s.Name, err)
		}
		r.Segments = append(r.Segments, s.Name)
		r.Executions += n
		r.Bytes += s.Bytes
		i.Bytes -= s.Bytes
	}
	return r, nil
}

// pruneSegment records what goes and deletes the segment. It returns how many
// executions lost output.
func (l *Ledger) pruneSegment(ctx context.Context, name, reason string, note NotePruned) (int, error) {
	going, err := l.spans(ctx, name)
	if err != nil {
		return 0, err
	}
	for _, s := range going {
		if err := note(ctx, s.session, s.owner, s.execution, events.Pruned{From: s.from, To: s.to, Reason: reason}); err != nil {
			return 0, fmt.Errorf("recording that output of %s is pruned: %w", s.execution, err)
		}
	}
	return len(going), l.order(ctx, orderDelete, name)
}

// A span is the output of one execution in one segment: offsets [from, to).
type span struct {
	session, owner, execution string
	from, to                  int64
}

// spans lists the executions that have output in a segment.
func (l *Ledger) spans(ctx context.Context, name string) ([]span, error) {
	list, err := l.executions(ctx, name)
	if err != nil {
		return nil, err
	}
	var all []span
	for _, f := range list {
		sp, err := l.span(ctx, name, f)
		if err != nil {
			return nil, err
		}
		all = append(all, sp)
	}
	return all, nil
}

// executions selects the executions that have output in a segment, each once.
func (l *Ledger) executions(ctx context.Context, segment string) ([]events.Filter, error) {
	info, err := patiently(ctx, l, func(ctx context.Context) (*jetstream.StreamInfo, error) {
		s, err := l.store.js.Stream(ctx, segment)
		if err != nil {
			return nil, l.unlessMoved(segment, err)
		}
		i, err := s.Info(ctx, jetstream.WithSubjectFilter(events.Filter{Class: events.ClassOutput}.Subject()))
		return i, l.unlessMoved(segment, err)
	})
	if err != nil {
		return nil, fmt.Errorf("listing the executions in %s: %w", segment, err)
	}
	seen := map[events.Filter]bool{}
	var all []events.Filter
	for subject := range info.State.Subjects {
		t := strings.Split(subject, ".")
		if len(t) != 5 {
			continue // no event's: nothing to tell about it
		}
		f := events.Filter{Session: t[1], Class: events.ClassOutput, ID: t[3]}
		if !seen[f] { // not another kind of the same execution
			seen[f] = true
			all = append(all, f)
		}
	}
	return all, nil
}

func (l *Ledger) span(ctx context.Context, segment string, f events.Filter) (span, error) {
	sp := span{session: f.Session, execution: f.ID}
	first, err := l.next(ctx, segment, f.Subject(), 1)
	if err != nil {
		return sp, err
	}
	last, err := l.last(ctx, segment, f.Subject())
	if err != nil {
		return sp, err
	}
	if e, ok := l.readable(first); ok {
		sp.owner = e.Owner
	}
	sp.from, _, _ = events.OutputSpan(first.Message)
	_, sp.to, _ = events.OutputSpan(last.Message)
	return sp, nil
}
