package ledger

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
)

// shown is what the server shows of the lifecycle.
func shown(t *testing.T, l *Ledger, f events.Filter, from uint64) (list []Raw) {
	t.Helper()
	left := 0
	for more := true; more; {
		var err error
		more, err = l.batch(t.Context(), lifecycleStream, f.Subject(), &from, &left, batchBytes, func(r Raw, _ error) bool {
			r.Message = Portable(r.Message)
			list = append(list, r)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// readAll reads the lifecycle, and counts what the server had to send for it.
func readAll(t *testing.T, l *Ledger, f events.Filter, from uint64) (list []Raw, sent uint64) {
	t.Helper()
	before := l.store.nc.Stats().InMsgs
	for r, err := range l.ReadRaw(t.Context(), f, from, 0) {
		if err != nil {
			t.Fatal(err)
		}
		r.Message = Portable(r.Message)
		list = append(list, r)
	}
	return list, l.store.nc.Stats().InMsgs - before
}

// TestFilledBlocksAreReadWithoutTheServer reads a ledger of several blocks in the
// process that hosts it and in one that joined, before and after more was appended.
func TestFilledBlocksAreReadWithoutTheServer(t *testing.T) {
	dir := string(filled(t))
	host := open(t, dir)
	for range 3 {
		for _, l := range []*Ledger{host, open(t, dir)} {
			for _, f := range []events.Filter{{}, {Class: events.ClassMailbox}, {Class: events.ClassSession}, {Kind: events.KindPosted}, {Session: "S"}, {ID: "E"}} {
				for _, from := range []uint64{1, 2, faultEvents / 2, faultEvents, faultEvents + 9} {
					list, sent := readAll(t, l, f, from)
					if diff := cmp.Diff(shown(t, l, f, from), list); diff != "" {
						t.Errorf("%s from %d: something else is read (-server +read):\n%s", f.Subject(), from, diff)
					}
					if f.Session == "" && from == 1 && sent > faultEvents/2 {
						t.Errorf("%s: the server sent %d messages", f.Subject(), sent)
					}
				}
			}
		}
		appendQueued(t, host, 5)
	}
}

// TestALongSessionIsReadFromFilledBlocks: the server would count what is left for
// each batch.
func TestALongSessionIsReadFromFilledBlocks(t *testing.T) {
	l, err := Open(t.Context(), Options{Dir: t.TempDir(), Sync: SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	const many = manyLeft * 3 / 2
	notice := strings.Repeat("x", 1500)
	for i := range many {
		if err := l.Post(t.Context(), event([]string{"S", "T"}[i%10/9], events.NewID(), events.Posted{Notice: notice}), nil); err != nil {
			t.Fatal(err)
		}
	}
	appendQueued(t, l, 1)
	f := events.Filter{Session: "S"}
	list, sent := readAll(t, l, f, 1)
	if len(list) != many*9/10+1 || sent > many*3/4 {
		t.Errorf("%d events, and the server sent %d messages", len(list), sent)
	}
	same := func(a, b Raw) bool { return a.Seq == b.Seq && events.Hash(a.Message) == events.Hash(b.Message) }
	if !slices.EqualFunc(shown(t, l, f, 1), list, same) {
		t.Error("the server shows something else")
	}
}

// TestADamagedFilledBlockIsLeftToTheServer harms a block under a host.
func TestADamagedFilledBlockIsLeftToTheServer(t *testing.T) {
	d := filled(t)
	l := open(t, string(d))
	flip(t, filepath.Join(d.stream(lifecycleStream), "msgs", "2.blk"), 5000)
	list, sent := readAll(t, l, events.Filter{Class: events.ClassMailbox}, 1)
	if diff := cmp.Diff(shown(t, l, events.Filter{Class: events.ClassMailbox}, 1), list); diff != "" {
		t.Errorf("something else is read (-server +read):\n%s", diff)
	}
	if sent == 0 {
		t.Error("the server was not asked")
	}
}
