package ledger

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

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

// TestNewClaimsAreNeverTakenForDead opens claims of new sessions while another
// looks for those of dead ones, as each session does that begins.
func TestNewClaimsAreNeverTakenForDead(t *testing.T) {
	l := open(t, t.TempDir())
	over := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for !done(over) {
			ids, err := l.Claimed()
			if err != nil {
				t.Error(err)
			}
			for _, id := range ids {
				if c, err := l.ClaimSession(id); err == nil {
					c.Release()
				}
			}
		}
	})
	for range 300 {
		c, err := l.ClaimSession(events.NewID())
		if err != nil {
			t.Error(err)
			continue
		}
		c.Release()
	}
	close(over)
	looking.Wait()
}

func done(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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

// TestJoinedTakesOver closes the host in good order: the other goes on, on the
// same port.
func TestJoinedTakesOver(t *testing.T) {
	dir := t.TempDir()
	host, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	before, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	appendQueued(t, host, 3)
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	appendQueued(t, l, 3)
	after, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.Role != "joined" || after.Role != "host" || after.URL != before.URL || after.LastSeq != 6 {
		t.Errorf("took over: %+v, before %+v", after, before)
	}
}

// TestPortTaken opens a ledger whose port somebody else has now, with the
// endpoint file of a host that died.
func TestPortTaken(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	appendQueued(t, l, 1)
	stale, err := os.ReadFile(stateDir(dir).endpoint())
	if err != nil {
		t.Fatal(err)
	}
	c := l.store.dial.hosting().creds
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	squatter, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		t.Skip("the port is taken already:", err)
	}
	defer func() { _ = squatter.Close() }()
	if err := os.WriteFile(stateDir(dir).endpoint(), stale, 0o600); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, dir), open(t, dir)
	appendQueued(t, a, 1)
	appendQueued(t, b, 1)
	info, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ReadSubscriber(dir)
	if err != nil || s.URL != info.URL || info.LastSeq != 3 {
		t.Errorf("subscribers are sent to %s, the host listens on %s (%v), last %d", s.URL, info.URL, err, info.LastSeq)
	}
}

func TestReadOnlyLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	if _, err := Open(t.Context(), Options{Dir: dir, ReadOnly: true}); !errors.Is(err, ErrNoLedger) {
		t.Errorf("opened what is not there: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a read-only open made the directory")
	}
	l, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	appendQueued(t, l, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before := names(t, dir)
	if l, err = Open(t.Context(), Options{Dir: dir, ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, l); n != 3 {
		t.Errorf("read %d events, want 3", n)
	}
	if _, err := l.Append(t.Context(), event("S", "E", events.Queued{})); !errors.Is(err, ErrReadOnly) {
		t.Errorf("appended: %v", err)
	}
	_, pruned := l.PruneBefore(t.Context(), time.Now(), "", nil)
	for _, err := range []error{l.Rotate(t.Context()), l.AddSink(t.Context(), events.RootOwner), l.RemoveSink(t.Context(), events.RootOwner), pruned} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("changed: %v", err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("left %v, before %v", after, before)
	}
}

// names lists all files below dir.
func names(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		all = append(all, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// BenchmarkOpen opens and closes a ledger that exists.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		l, err := Open(b.Context(), Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAListOfStreamsThatCannotBeReadIsDamage(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", "[]"} {
		if err := os.WriteFile(stateDir(dir).marker(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := Open(t.Context(), Options{Dir: dir}); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v, %v", text, l, err)
		}
	}
}

func TestNothingStartsWithoutTheStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	l := open(t, dir)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := l.Writable(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("writable: %v", err)
	}
	open(t, dir) // another one takes its place
	if err := l.Writable(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("writable: %v", err)
	}
}

func TestNothingStartsWithoutTheStore(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	if err := os.Rename(stateDir(dir).store(), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := l.Writable(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("writable: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "away"), stateDir(dir).store()); err != nil {
		t.Fatal(err)
	}
	if err := l.Writable(); err != nil {
		t.Errorf("put back: %v", err)
	}
}

// TestAnAppendSaysWhyNobodyHosts damages a ledger while it is open. When its host
// goes, nobody else can take over, and who waits for it is told why, until it is
// repaired.
func TestAnAppendSaysWhyNobodyHosts(t *testing.T) {
	dir := t.TempDir()
	host, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	joined := open(t, dir)
	appendQueued(t, joined, 1)
	marker, err := os.ReadFile(stateDir(dir).marker())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stateDir(dir).marker(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = host.Close() // it stops, as far as it can
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = joined.Append(ctx, event("S", "", events.Closed{}))
	if !errors.Is(err, ErrDamaged) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("appended: %v", err)
	}
	await(t, func() bool { return errors.Is(joined.Writable(), ErrDamaged) })
	if err := os.WriteFile(stateDir(dir).marker(), marker, 0o600); err != nil {
		t.Fatal(err)
	}
	appendQueued(t, joined, 1) // it looks again after a while
	if err := joined.Writable(); err != nil || joined.store.dial.hosting() == nil {
		t.Errorf("with a host again: %v", err)
	}
}

// TestABlockThatCannotBeWrittenToIsToldOf opens a ledger whose newest block is for
// reading only: it fails at once, and reading goes on.
func TestABlockThatCannotBeWrittenToIsToldOf(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root writes to everything")
	}
	d := filled(t)
	paths, err := blocks(d.stream(lifecycleStream))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(paths[len(paths)-1], 0o400); err != nil {
		t.Fatal(err)
	}
	if l, err := Open(t.Context(), Options{Dir: string(d)}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("opened: %v, %v", l, err)
	}
	l, err := Open(t.Context(), Options{Dir: string(d), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if n := count(t, l); n != faultEvents {
		t.Errorf("%d events", n)
	}
}
