// Package projections holds the folds: pure functions from a history to what
// people and agents see. Process lists, transcripts, breadcrumbs, mailboxes and
// recovery are all made here, so what the agent saw is what a replay shows.
//
// It does no I/O, reads no clock and starts no goroutine. A fold's readers are
// safe together, but not beside Apply: replay.Engine keeps them apart.
// What a reader returns is a copy, and changing it changes no fold.
package projections

import (
	"fmt"

	"github.com/yieldlog/yieldlog/events"
)

// Fold is state that is made of events alone. Its implementations obey these
// laws, and the property tests hold them to it:
//
//   - Deterministic: the same events in the same order give the same views,
//     byte for byte. No clock, no randomness, no map order.
//   - Total: Apply takes any event in any order and never panics. A history
//     that the rules of package events forbid becomes an anomaly that its
//     reader sees; a kind that the fold does not know changes nothing.
//   - Idempotent: lifecycle events count once, by sequence: one that is not
//     after the last applied changes nothing. Output counts once, by offset.
//   - Lifecycle and output commute: the two streams have no common order, so
//     interleaving them differently gives the same views.
//   - Rewound hides: what a session did after the point is no longer listed.
//     It is still in the ledger, and in a replay to an earlier sequence.
//
// An event without a sequence has not been appended: no fold counts it, output
// excepted. Apply keeps no reference to the event's bytes.
type Fold interface {
	Apply(e events.Event)
}

// watermark lets each lifecycle event through once.
type watermark struct{ seq uint64 }

// pass reports whether e is a lifecycle event that has not been counted, and
// counts it.
func (w *watermark) pass(e events.Event) bool {
	if e.Body == nil || e.Seq <= w.seq || e.Class() == events.ClassOutput {
		return false
	}
	w.seq = e.Seq
	return true
}

// maxAnomalies bounds what one broken row may say about itself.
const maxAnomalies = 16

// anomalies collects what should not have happened.
type anomalies []string

func (a *anomalies) add(seq uint64, format string, args ...any) {
	switch {
	case len(*a) < maxAnomalies:
		*a = append(*a, fmt.Sprintf("seq %d: %s", seq, fmt.Sprintf(format, args...)))
	case len(*a) == maxAnomalies:
		*a = append(*a, "and more")
	}
}
