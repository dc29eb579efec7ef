package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
)

// reader opens a ledger for reading.
func reader(t *testing.T, dir string) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), Options{Dir: dir, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// A view is all that can be read of a ledger.
type view struct {
	Last      uint64
	Lifecycle []Raw
	Filtered  map[string][]Raw
	Subjects  []events.Filter
	Output    map[string][]Raw
	Ends      map[string]int64
}

// see reads everything that there is, in all the ways there are.
func see(t *testing.T, l *Ledger, filters []events.Filter) view {
	t.Helper()
	v := view{Filtered: map[string][]Raw{}, Output: map[string][]Raw{}, Ends: map[string]int64{}}
	read := func(f events.Filter, from, to uint64) (list []Raw) {
		for r, err := range l.ReadRaw(t.Context(), f, from, to) {
			if err != nil {
				t.Fatal(err)
			}
			r.Message = Portable(r.Message)
			list = append(list, r)
		}
		return list
	}
	var err error
	if v.Last, err = l.LastSeq(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.Lifecycle = read(events.Filter{}, 1, 0)
	for _, f := range filters {
		v.Filtered[f.Subject()] = read(f, v.Last/3, v.Last-v.Last/5)
	}
	for f, err := range l.Subjects(t.Context(), events.KindRequested, events.KindPosted) {
		if err != nil {
			t.Fatal(err)
		}
		v.Subjects = append(v.Subjects, f)
	}
	for _, r := range v.Lifecycle {
		e, err := events.Decode(r.Message)
		if err != nil {
			t.Fatal(err)
		}
		id := e.Subject
		if _, known := v.Ends[id]; known || e.Class() != events.ClassExecution {
			continue
		}
		if v.Ends[id], err = l.OutputEnd(t.Context(), e.Session, id); err != nil {
			t.Fatal(err)
		}
		for _, from := range []int64{0, v.Ends[id] / 2, v.Ends[id] - 1} {
			for r, err := range l.OutputRaw(t.Context(), e.Session, id, from) {
				if err != nil {
					t.Fatal(err)
				}
				r.Message = Portable(r.Message)
				delete(r.Header, "ce-id") // a packed one is made anew
				sum := sha256.Sum256(r.Data)
				r.Data = sum[:]
				v.Output[id] = append(v.Output[id], r)
			}
		}
	}
	return v
}

// history makes a ledger with lifecycle and output in several segments, and
// stops it in good order.
func history(t *testing.T, finish func(t *testing.T, l *Ledger)) stateDir {
	t.Helper()
	dir := t.TempDir()
	l, err := Open(t.Context(), Options{Dir: dir, Sync: SyncRelaxed, SegmentBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	c := newChatter(l, "A", "B")
	for _, id := range c.ids {
		if _, err := l.Append(t.Context(), event("S", id, events.Requested{Command: "talk " + id})); err != nil {
			t.Fatal(err)
		}
	}
	c.lines(t, 300)
	if err := l.store.order(t.Context(), orderRoll, ""); err != nil {
		t.Fatal(err)
	}
	c.lines(t, 100)
	c.settle(t)
	for i := range 40 {
		id := fmt.Sprintf("M%d", i)
		if _, err := l.Append(t.Context(), event("S", id, events.Posted{Execution: "A", Notice: "it ended"})); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return stateDir(dir)
}

// sameAtRest fails unless a reader at rest sees what the server shows. It leaves
// the ledger stopped in good order.
func sameAtRest(t *testing.T, dir string, filters ...events.Filter) {
	t.Helper()
	before := names(t, dir)
	r := reader(t, dir)
	quiet := see(t, r, filters)
	if r.resting() == nil {
		t.Error("the reader needed the server")
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("the reader left %v, before %v", after, before)
	}
	host, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	served := see(t, host, filters)
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(served, quiet); diff != "" {
		t.Errorf("at rest something else is read (-served +at rest):\n%s", diff)
	}
}

// crashed makes the stopped ledger look as if its host had been killed.
func crashed(t *testing.T, d stateDir) {
	t.Helper()
	if err := os.WriteFile(d.running(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReadAtRestSeesWhatTheServerShows(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *Ledger){
		"raw":    func(*testing.T, *Ledger) {},
		"packed": func(t *testing.T, l *Ledger) { pack(t, l) },
	} {
		t.Run(name, func(t *testing.T) {
			d := history(t, prepare)
			filters := []events.Filter{{Session: "S"}, {ID: "B"}, {Session: "S", ID: "A", Kind: events.KindSettled}, {Class: events.ClassMailbox}, {ID: "nobody"}}
			sameAtRest(t, string(d), filters...)
			crashed(t, d)
			sameAtRest(t, string(d), filters...)
			if err := os.Remove(d.left()); err != nil {
				t.Fatal(err)
			}
			sameAtRest(t, string(d), filters...)
		})
	}
}

// TestReadAtRestOfAFaultyStore harms a ledger in each way: a reader gets what a
// writer gets, the same refusal or the same events.
func TestReadAtRestOfAFaultyStore(t *testing.T) {
	for _, f := range faults() {
		t.Run(f.name, func(t *testing.T) {
			d := filled(t)
			f.harm(t, d)
			before := checksums(t, d)
			l, err := Open(t.Context(), Options{Dir: string(d), ReadOnly: true})
			if f.refused != "" {
				if err == nil { // the blocks are as the host left them: it is met when it is read
					for _, err = range l.ReadRaw(t.Context(), events.Filter{}, 1, 0) {
					}
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), f.refused) {
					t.Fatalf("opened with %v, want %q in it", err, f.refused)
				}
				if !maps.Equal(before, checksums(t, d)) {
					t.Error("the refused open changed the store")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			quiet := see(t, l, nil)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			served := see(t, open(t, string(d)), nil)
			if diff := cmp.Diff(served, quiet); diff != "" {
				t.Errorf("at rest something else is read (-served +at rest):\n%s", diff)
			}
		})
	}
}

// TestWhatTheHostLeftIsACache spoils what the last host noted: the blocks are
// inspected then, and nothing else changes.
func TestWhatTheHostLeftIsACache(t *testing.T) {
	d := filled(t)
	whole, err := os.ReadFile(d.left())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", string(whole[:len(whole)/2]), `{"version":2}`, `{"version":1,"blocks":{"LIFECYCLE":[]}}`, string(whole)} {
		if err := os.WriteFile(d.left(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := reader(t, string(d))
		if n := count(t, r); n != faultEvents || r.resting() == nil {
			t.Errorf("with %q: %d events, at rest %v", text, n, r.resting() != nil)
		}
	}
	// A host that was killed leaves the note of the one before it.
	l, err := Open(t.Context(), Options{Dir: string(d)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), event("S", "", events.Closed{})); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	crashed(t, d)
	if err := os.WriteFile(d.left(), whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := count(t, reader(t, string(d))); n != faultEvents+1 {
		t.Errorf("with the note of an earlier host: %d events, want %d", n, faultEvents+1)
	}
}

// TestReadAtRestWhileAHostAppears reads on, within what was there, and asks the
// host for what only it knows.
func TestReadAtRestWhileAHostAppears(t *testing.T) {
	dir := string(filled(t))
	r, read := reader(t, dir), 0
	for _, err := range r.ReadRaw(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if read++; read == 10 { // the lock is free
			host := open(t, dir)
			if _, err := host.Append(t.Context(), event("S", "", events.Closed{})); err != nil {
				t.Fatal(err)
			}
		}
	}
	if read != faultEvents || r.resting() == nil {
		t.Errorf("%d events, at rest %v", read, r.resting() != nil)
	}
	if i, err := r.Info(t.Context()); err != nil || i.LastSeq != faultEvents+1 || i.Role != "joined" {
		t.Errorf("%+v, %v", i, err)
	}
	if n := count(t, r); n != faultEvents+1 {
		t.Errorf("%d events, want %d", n, faultEvents+1)
	}
}

// TestReadAtRestGoesOnWithTheServer finds a block changed half-way.
func TestReadAtRestGoesOnWithTheServer(t *testing.T) {
	d := filled(t)
	r := reader(t, string(d))
	var seqs []uint64
	for m, err := range r.ReadRaw(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if seqs = append(seqs, m.Seq); len(seqs) == 10 {
			flip(t, filepath.Join(d.stream(lifecycleStream), "msgs", "2.blk"), 5000)
		}
	}
	if len(seqs) != faultEvents-1 || !slices.IsSorted(seqs) || r.resting() != nil {
		t.Errorf("%d events, %v", len(seqs), seqs)
	}
}

// TestAtRestAnExecutionIsFoundInItsBlocks makes a segment of several blocks, and
// has a few executions in each.
func TestAtRestAnExecutionIsFoundInItsBlocks(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(t.Context(), Options{Dir: dir, Sync: SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	const executions = 12
	noise := make([]byte, 300<<10)
	for i := range executions {
		id := fmt.Sprintf("E%02d", i)
		if _, err := l.Append(t.Context(), event("S", id, events.Requested{Command: "shout"})); err != nil {
			t.Fatal(err)
		}
		c := newChatter(l, id)
		for range 8 {
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(noise) // it does not fail
			c.post(t, id, events.KindStdout, noise)
		}
		c.posted.Wait()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d := stateDir(dir)
	stale := func() {
		if err := os.Remove(filepath.Join(d.stream(segmentName(1)), "msgs", "index.db")); err != nil {
			t.Fatal(err)
		}
	}
	for name, harm := range map[string]func(){"with its index": func() {}, "without its index": stale} {
		t.Run(name, func(t *testing.T) {
			harm()
			r := reader(t, dir).resting()
			total := len(r.streams[segmentName(1)])
			list, err := r.holders(t.Context(), segmentName(1), pattern(events.Filter{Session: "S", Class: events.ClassOutput, ID: "E05"}.Subject()))
			if err != nil || total < 16 || len(list) == 0 || len(list) > 4 {
				t.Errorf("its output is in %d of %d blocks, %v", len(list), total, err)
			}
			sameAtRest(t, dir)
		})
	}
}

func TestReadersShareTheLockAndHostsDoNot(t *testing.T) {
	d := filled(t)
	a, err := lockShared(d.hostLock())
	if err != nil {
		t.Fatal(err)
	}
	b, err := lockShared(d.hostLock())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockFile(d.hostLock(), true); !errors.Is(err, errLocked) {
		t.Errorf("a host took the lock of readers: %v", err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	host, err := lockFile(d.hostLock(), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockShared(d.hostLock()); !errors.Is(err, errLocked) {
		t.Errorf("a reader took the lock of the host: %v", err)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
}

// silentHost locks the ledger as a host does that answers nobody: its port takes
// connections, as long as there is room for them.
func silentHost(t *testing.T, d stateDir) (net.Listener, *hostLock) {
	t.Helper()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = port.Close() })
	lock, err := d.lockHost(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(d.endpoint(), endpoint{Version: 1, Port: port.Addr().(*net.TCPAddr).Port}, false); err != nil {
		t.Fatal(err)
	}
	return port, lock
}

// TestReadingWaitsForAHostToDie locks the ledger as a host does that was killed:
// its port takes connections for a while, and nobody greets.
func TestReadingWaitsForAHostToDie(t *testing.T) {
	d := filled(t)
	port, lock := silentHost(t, d)
	if !d.hostDies() {
		t.Error("it greets")
	}
	gone := make(chan error)
	go func() {
		for range 2 { // the one above, and whoever reads has found it locked
			if c, err := port.Accept(); err != nil || c.Close() != nil {
				t.Error("nobody asked whether it greets")
			}
		}
		gone <- lock.Close()
	}()
	l, err := Open(t.Context(), Options{Dir: string(d), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Error(err)
	}
	if l.resting() == nil {
		t.Error("it was not read at rest")
	}
	if n := count(t, l); n != faultEvents {
		t.Errorf("%d events", n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestReadingBesideAHostThatHangs reads a ledger whose host keeps its locks and
// answers nobody, as a stopped process does. Its last write may be there in part.
func TestReadingBesideAHostThatHangs(t *testing.T) {
	d := filled(t)
	_, lock := silentHost(t, d)
	defer lock.Close()
	paths, err := blocks(d.stream(lifecycleStream))
	if err != nil {
		t.Fatal(err)
	}
	newest, err := os.OpenFile(paths[len(paths)-1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newest.Write(make([]byte, 777))
	if err := errors.Join(err, newest.Close(), os.WriteFile(d.running(), nil, 0o600)); err != nil {
		t.Fatal(err)
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
