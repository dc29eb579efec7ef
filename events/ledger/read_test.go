package ledger

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A host that does not answer is not the end of what there is to read.
func TestReadSilenceIsNotTheEnd(t *testing.T) {
	l := open(t, t.TempDir())
	const mute = "MUTE"
	if _, err := l.store.nc.Subscribe("$JS.API.DIRECT.GET."+mute, func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	failed := false
	for _, err := range l.scan(ctx, mute, everything, 1, batchBytes) {
		failed = err != nil
	}
	if !failed {
		t.Error("the scan ended as if it had read everything")
	}
	if _, err := l.next(ctx, mute, everything, 1); err == nil || errors.Is(err, errNoMessage) {
		t.Errorf("the next message: %v", err)
	}
}
