package ledger

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
)

// files is the names of all files below a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func openUntilClosed(t *testing.T, dir string, use func(*Ledger)) {
	t.Helper()
	l, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	use(l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestM71_ReadingPackedOutputLeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	var want string
	openUntilClosed(t, dir, func(l *Ledger) {
		c := newChatter(l, "A")
		c.lines(t, 100)
		c.settle(t)
		want = bytesOf(said(t, l.Output(t.Context(), "S", "A", 0, -1)))
		if r := pack(t, l); len(r.Segments) != 1 {
			t.Errorf("packed %+v", r)
		}
	})
	openUntilClosed(t, dir, func(*Ledger) {})
	before := files(t, dir)
	openUntilClosed(t, dir, func(l *Ledger) {
		for range 3 {
			if got := bytesOf(said(t, l.Output(t.Context(), "S", "A", 0, -1))); got != want {
				t.Errorf("read %d bytes of %d", len(got), len(want))
			}
		}
	})
	if diff := cmp.Diff(before, files(t, dir)); diff != "" {
		t.Errorf("reading changed the files (-before +after):\n%s", diff)
	}
}

func TestM141_ALedgerCanBeMoved(t *testing.T) {
	here, there := filepath.Join(t.TempDir(), "here"), filepath.Join(t.TempDir(), "there")
	openUntilClosed(t, here, func(l *Ledger) {
		e := event("S", "E", events.Requested{Command: "make"})
		e.Owner = "/root/a"
		if _, err := l.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	})
	if err := os.Rename(here, there); err != nil {
		t.Fatal(err)
	}
	openUntilClosed(t, there, func(l *Ledger) {
		n := 0
		for e, err := range l.Read(t.Context(), events.Filter{}, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; e.Owner != "/root/a" || e.Subject != "E" {
				t.Errorf("read %+v", e)
			}
		}
		if n != 1 {
			t.Errorf("read %d events", n)
		}
	})
}
