package ledger

import (
	"context"
	"strings"

	"github.com/yieldlog/yieldlog/events"
)

// The server reads a message by loading its block, which it then keeps for ten
// seconds, and for a filter it also makes a tree of the block's subjects, which it
// keeps for two minutes. A search through a long lifecycle so brings all of it
// into the host's memory. But only the newest block is written to: the server
// fills a block to its end before it makes the next. So the filled ones are read
// like those of a ledger at rest, whoever hosts, and the server is asked for the
// newest alone. What is not as expected the server is asked for too.

// scanFilled is [Ledger.scan] of the lifecycle's filled blocks, if that is
// worthwhile. With errStirred the server goes on, from the sequence that it returns.
func (l *Ledger) scanFilled(ctx context.Context, stream, subject string, from uint64, yield func(Raw, error) bool) (next uint64, err error) {
	if located(subject) {
		return from, errStirred
	}
	return l.readFilled(ctx, stream, subject, from, yield)
}

// manyLeft is how many more messages of a session or an execution make it worthwhile
// to read the filled blocks all the same. The server counts, for each batch, what
// is left, which takes longer than reading the batch where there are many.
const manyLeft = 10_000

// readFilled is scanFilled, whatever the subject.
func (l *Ledger) readFilled(ctx context.Context, stream, subject string, from uint64, yield func(Raw, error) bool) (next uint64, err error) {
	if stream != lifecycleStream {
		return from, errStirred
	}
	r := filledBlocks(l.dir(), from)
	if r == nil {
		return from, errStirred
	}
	if next, err = r.scan(ctx, stream, subject, from, yield); err != nil {
		return next, err
	}
	return next, errStirred
}

// located reports whether a subject names a session or what the event is about.
// Such events are in few blocks, and the server knows in which.
func located(subject string) bool {
	f, err := events.ParseSubject(strings.ReplaceAll(subject, "*", "any"))
	return err != nil || f.Session != "any" || f.ID != "any"
}

// filledBlocks is the lifecycle's filled blocks as a ledger at rest, or nil when none
// holds anything from a sequence on.
func filledBlocks(d stateDir, from uint64) *rest {
	list, err := stillBlocks(d.stream(lifecycleStream))
	if err != nil || len(list) < 2 {
		return nil
	}
	newest := list[len(list)-1]
	if first, err := firstSequence(newest); err != nil || first != 0 && first <= from {
		return nil
	}
	return newRest(d, map[string][]restBlock{lifecycleStream: list[:len(list)-1]})
}
