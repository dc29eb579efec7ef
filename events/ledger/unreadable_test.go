package ledger

import (
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

func TestWhatIsNoEventHidesNothing(t *testing.T) {
	l := open(t, t.TempDir())
	ctx := t.Context()
	if _, err := l.Append(ctx, event("S", "E1", events.Queued{})); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"yieldlog.S.execution.E2.settled", "yieldlog.S.execution.E2.from_the_future", "yieldlog.S.session.S.lost"} {
		if _, err := l.store.js.Publish(ctx, ingestPrefix(lifecycleStream)+subject, []byte("not json")); err != nil {
			t.Fatal(err)
		}
	}
	last, err := l.Append(ctx, event("S", "E3", events.Queued{}))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for e, err := range l.Read(ctx, events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e.Subject)
	}
	if len(seen) != 2 || seen[1] != "E3" {
		t.Errorf("read %v", seen)
	}
	for e, err := range l.Follow(ctx, events.Filter{}, 2) {
		if err != nil || e.Seq != last.Seq {
			t.Errorf("followed to %d, %v", e.Seq, err)
		}
		break
	}
	if n := l.Stats().Unreadable; n != 3 {
		t.Errorf("%d are counted", n)
	}
}
