package ledger

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/yieldlog/yieldlog/events"
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
	if n, err := dropFull(acc, segmentName(1)); err != nil || n != 0 {
		t.Errorf("of a segment of one block %d were dropped: %v", n, err)
	}
}

// TestFullBlocksAreGivenBack holds that a flood leaves no block that it has filled
// in memory, however long the server would keep it.
func TestFullBlocksAreGivenBack(t *testing.T) {
	l := open(t, t.TempDir())
	acc, err := l.store.dial.hosting().ns.LookupAccount(ledgerAccount)
	if err != nil {
		t.Fatal(err)
	}
	keepBlocks(t, acc, time.Hour)
	data := make([]byte, events.MaxChunk)
	rnd := rand.NewChaCha8([32]byte{})
	const chunks = 12
	done := make(chan error, chunks)
	for i := range chunks {
		_, _ = rnd.Read(data) // never fails, and cannot be compressed
		e := event("S", "E", events.Output{Stream: events.KindStdout, Offset: int64(i * len(data)), Data: append([]byte(nil), data...)})
		if err := l.Post(t.Context(), e, func(_ events.Event, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range chunks {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all, held := heldBlocks(t, acc)
		if all <= chunks/3 {
			t.Fatalf("%d chunks of %d bytes are in %d blocks", chunks, len(data), all)
		}
		if held == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("of %d blocks %d are in memory beside the last", all, held)
		}
	}
}

// keepBlocks has the server keep the blocks of the first segment for so long.
func keepBlocks(t *testing.T, acc *server.Account, d time.Duration) {
	fs, mu := firstStore(t, acc)
	expire, err := field[time.Duration](fs.FieldByName("fcfg"), "CacheExpire")
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	*expire = d
}

// heldBlocks counts the blocks of the first segment, and those that are in memory
// beside the last.
func heldBlocks(t *testing.T, acc *server.Account) (all, held int) {
	fs, mu := firstStore(t, acc)
	mu.RLock()
	defer mu.RUnlock()
	blocks := fs.FieldByName("blks")
	for i := range blocks.Len() - 1 {
		b := blocks.Index(i).Elem()
		mu, err := lockOf(b)
		if err != nil {
			t.Fatal(err)
		}
		mu.RLock()
		if !b.FieldByName("cache").IsNil() {
			held++
		}
		mu.RUnlock()
	}
	return blocks.Len(), held
}

// firstStore is the server's store of the first segment, and its lock.
func firstStore(t *testing.T, acc *server.Account) (reflect.Value, *sync.RWMutex) {
	fs, err := fileStore(acc, segmentName(1))
	if err != nil {
		t.Fatal(err)
	}
	mu, err := lockOf(fs)
	if err != nil {
		t.Fatal(err)
	}
	return fs, mu
}
