package ledger

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestWriteCacheIsShortened fails when the server changed inside: then the
// reach into it must follow, or go.
func TestWriteCacheIsShortened(t *testing.T) {
	l := open(t, t.TempDir())
	acc, err := l.store.dial.hosting().ns.LookupAccount(ledgerAccount)
	if err != nil {
		t.Fatal(err)
	}
	if err := shortenWriteCache(acc, segmentName(1)); err != nil {
		t.Error(err)
	}
	if err := shortenWriteCache(acc, "NONE"); err == nil || !strings.Contains(err.Error(), "NONE") {
		t.Errorf("a stream that is not there: %v", err)
	}
	if err := shortenWriteCache(&server.Account{}, segmentName(1)); err == nil {
		t.Error("an account without streams was taken")
	}
}
