package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCursorIsForOneAndIsKept(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	c, err := l.OpenCursor("hook")
	if err != nil {
		t.Fatal(err)
	}
	if c.Next() != 0 {
		t.Errorf("a new cursor is at %d", c.Next())
	}
	if err := c.Save(7); err != nil {
		t.Fatal(err)
	}
	if _, err := l.OpenCursor("hook"); !errors.Is(err, ErrCursorTaken) {
		t.Errorf("taken twice: %v", err)
	}
	list, err := l.Cursors()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]CursorInfo{{Name: "hook", Next: 7, Taken: true}}, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err = l.OpenCursor("hook"); err != nil || c.Next() != 7 {
		t.Fatalf("again: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "../x", ".x", "a/b"} {
		if _, err := l.OpenCursor(bad); err == nil {
			t.Errorf("%q is taken for a name", bad)
		}
	}
}

func TestKeptCopiesAreListed(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	path := filepath.Join(dir, "refused-20261201T000000", "LIFECYCLE")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "1.blk"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := l.Kept()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Kept{{Path: filepath.Dir(path), Bytes: 100}}, kept); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
