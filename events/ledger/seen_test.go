package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// TestAMissingEndIsSeen takes away what was at the end of a ledger whose host
// was killed: nothing in the blocks tells of it.
func TestAMissingEndIsSeen(t *testing.T) {
	l := open(t, t.TempDir())
	appendQueued(t, l, 20)
	for i := range 3 {
		o := event("S", "E", events.Output{Stream: events.KindStdout, Offset: int64(i), Data: []byte("x")})
		if err := l.Post(t.Context(), o, nil); err != nil {
			t.Fatal(err)
		}
	}
	segment := l.dir().segments()[0]
	await(t, func() bool {
		seen := readSeen(l.dir())
		return seen[lifecycleStream] == 20 && seen[segment] >= 3
	})
	for _, stream := range []string{lifecycleStream, segment} {
		for name, harm := range map[string]func(path string) error{
			"cut off": func(path string) error { return os.Truncate(path, 300) },
			"zeroed":  func(path string) error { return os.WriteFile(path, make([]byte, 2000), 0o600) },
			"missing": os.Remove,
		} {
			t.Run(stream+" "+name, func(t *testing.T) {
				dead := stateDir(t.TempDir())
				if err := os.CopyFS(string(dead), os.DirFS(string(l.dir()))); err != nil {
					t.Fatal(err)
				}
				if err := harm(filepath.Join(dead.stream(stream), "msgs", "1.blk")); err != nil {
					t.Fatal(err)
				}
				refusedTwice(t, dead, stream)
				if _, err := Open(t.Context(), Options{Dir: string(dead), ReadOnly: true}); !errors.Is(err, ErrDamaged) {
					t.Errorf("opened for reading: %v", err)
				}
				if lines, err := Repair(string(dead)); err != nil || len(lines) == 0 {
					t.Fatalf("repair: %v, %q", err, lines)
				}
				appendQueued(t, open(t, string(dead)), 1)
			})
		}
	}
}

// TestTheHostStaysFound spoils, one by one, the files by which others find the host.
func TestTheHostStaysFound(t *testing.T) {
	dir := t.TempDir()
	host := open(t, dir)
	appendQueued(t, host, 1)
	key, err := host.dir().readCredentials()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"no endpoint":      func() error { return os.Remove(host.dir().endpoint()) },
		"a bad endpoint":   func() error { return os.WriteFile(host.dir().endpoint(), []byte("{"), 0o600) },
		"another's":        func() error { return writeJSON(host.dir().endpoint(), endpoint{Version: 1, Port: 1, PID: 1}, false) },
		"no credentials":   func() error { return os.Remove(host.dir().credentials()) },
		"bad credentials":  func() error { return os.WriteFile(host.dir().credentials(), nil, 0o600) },
		"no lock":          func() error { return os.Remove(host.dir().hostLock()) },
		"nothing at all":   func() error { return errors.Join(os.Remove(host.dir().endpoint()), os.Remove(host.dir().hostLock())) },
		"a new lock, free": func() error { return os.WriteFile(host.dir().hostLock(), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if reader(t, dir).resting() != nil {
				t.Error("who only reads takes it for a ledger at rest")
			}
			l := open(t, dir)
			info, err := l.Info(t.Context())
			if err != nil || info.Role != "joined" {
				t.Fatalf("%+v, %v", info, err)
			}
			appendQueued(t, l, 1)
			if again, err := host.dir().readCredentials(); err != nil || again.Seed != key.Seed {
				t.Errorf("other credentials: %v", err)
			}
		})
	}
}

// TestADirectoryThatTookAnothersPlace removes the state directory under a host,
// and makes a new ledger there: the old host leaves that alone.
func TestADirectoryThatTookAnothersPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	old, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	joined, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	h := old.store.dial.hosting()
	before, err := os.ReadFile(l.dir().marker())
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{orderRoll, orderRotate, orderRestart} {
		if err := old.store.order(t.Context(), order, ""); err == nil {
			t.Errorf("the old host obeyed: %s", order)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(l.dir().marker()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the list of streams was %s and is %s, %v", before, after, err)
	}
	var ep endpoint
	if err := readJSON(l.dir().endpoint(), &ep); err != nil || ep.Port == h.creds.Port {
		t.Errorf("%+v, %v", ep, err)
	}
	if _, err := os.Stat(l.dir().running()); err != nil {
		t.Error(err)
	}
	if c, err := joined.store.dial.Dial("", ""); err == nil {
		t.Error("connected to another ledger: ", c.Close())
	}
	if err := joined.Close(); err != nil {
		t.Error(err)
	}
}

// TestAMovedHostWritesToItsOwnDirectory moves the state directory of a host away,
// and makes a new ledger there. When the host stops, its indexes go where its
// ledger is, and both open.
func TestAMovedHostWritesToItsOwnDirectory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no name follows a directory here")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	moved, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	appendQueued(t, moved, 5)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	appendQueued(t, l, 1)
	if err := errors.Join(l.Close(), moved.Close()); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]int{dir: 1, dir + ".old": 5} {
		if n := count(t, open(t, dir)); n != want {
			t.Errorf("%s has %d events, want %d", dir, n, want)
		}
	}
}

// await waits for a fact.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come")
		}
	}
}
