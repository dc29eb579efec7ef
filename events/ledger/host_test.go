package ledger

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

func TestTwoOpensShareOneLedger(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	if a.store.dial.hosting() == nil || b.store.dial.hosting() != nil {
		t.Fatal("the first open does not host, or the second does")
	}
	for i, l := range []*Ledger{a, b} {
		e, err := l.Append(t.Context(), event("S", "E", events.Queued{Ahead: i}))
		if err != nil {
			t.Fatal(err)
		}
		if e.Seq != uint64(i+1) {
			t.Errorf("appended sequence %d, want %d", e.Seq, i+1)
		}
	}
}

func TestClaimIsExclusive(t *testing.T) {
	l := open(t, t.TempDir())
	c, err := l.ClaimSession("S")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.ClaimSession("S"); !errors.Is(err, ErrLive) {
		t.Errorf("second claim: %v, want ErrLive", err)
	}
	c.Release()
	c, err = l.ClaimSession("S")
	if err != nil {
		t.Fatal(err)
	}
	c.Release()
}

func TestFilesAreForTheUserOnly(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	for _, name := range []string{"endpoint.json", "credentials.json", "streams.json"} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode()&fs.ModePerm != 0o600 {
			t.Errorf("%s has mode %v", name, st.Mode())
		}
	}
}
