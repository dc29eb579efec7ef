package ledger

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

const faultEvents = 150

// filled makes a ledger of three blocks and closes it. The low limit makes
// JetStream use small blocks.
func filled(t *testing.T) stateDir {
	t.Helper()
	dir := t.TempDir()
	l, err := Open(t.Context(), Options{Dir: dir, Sync: SyncRelaxed, MaxBytes: 120_000})
	if err != nil {
		t.Fatal(err)
	}
	notice := strings.Repeat("x", 100)
	for range faultEvents {
		err := l.Post(t.Context(), event("S", events.NewID(), events.Posted{Notice: notice}), func(_ events.Event, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return stateDir(dir)
}

func count(t *testing.T, l *Ledger) int {
	t.Helper()
	n := 0
	for _, err := range l.ReadRaw(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func flip(t *testing.T, path string, offset int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xee, 0xdd}, offset); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// checksums of the files of the store.
func checksums(t *testing.T, dir stateDir) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	err := filepath.WalkDir(dir.streams(), func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		sums[p] = sha256.Sum256(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// A faultCase is a way to damage a ledger.
type faultCase struct {
	name string
	harm func(t *testing.T, d stateDir)
	// refused is a part of the refusal, or "" when the ledger must open.
	refused string
	// events is what must be there: after the repair, if it was refused.
	events int
	beyond bool // no repair
}

// faults is every way to damage what [filled] made.
func faults() []faultCase {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stale := func(t *testing.T, d stateDir) {
		must(t, os.Remove(filepath.Join(d.stream(lifecycleStream), "msgs", "index.db")))
	}
	block := func(d stateDir, n string) string {
		return filepath.Join(d.stream(lifecycleStream), "msgs", n+".blk")
	}
	last := func(t *testing.T, d stateDir) string {
		paths, err := blocks(d.stream(lifecycleStream))
		must(t, err)
		if len(paths) < 3 {
			t.Fatalf("only %d blocks", len(paths))
		}
		return paths[len(paths)-1]
	}
	return []faultCase{
		{"intact", func(*testing.T, stateDir) {}, "", faultEvents, false},
		{"flipped byte, index valid", func(t *testing.T, d stateDir) { flip(t, block(d, "2"), 5000) }, "", faultEvents - 1, false},
		{"flipped byte of the first record, index valid", func(t *testing.T, d stateDir) { flip(t, block(d, "2"), 200) }, "", faultEvents - 1, false},
		{"flipped byte, index stale", func(t *testing.T, d stateDir) { flip(t, block(d, "2"), 5000); stale(t, d) }, "2.blk has a bad checksum", faultEvents - 1, false},
		{"flipped length, index stale", func(t *testing.T, d stateDir) { flip(t, block(d, "1"), 0); stale(t, d) }, "1.blk has a", faultEvents - 1, false},
		{"flipped length, index valid", func(t *testing.T, d stateDir) {
			b, err := os.ReadFile(block(d, "2"))
			must(t, err)
			first, why := frame(b)
			if why != "" {
				t.Fatal(why)
			}
			flip(t, block(d, "2"), int64(len(first)))
			must(t, os.Chtimes(block(d, "2"), time.Time{}, time.Now().Add(-time.Hour)))
		}, "2.blk has a", faultEvents - 1, false},
		{"flipped sequence, index valid", func(t *testing.T, d stateDir) {
			b, err := os.ReadFile(block(d, "2"))
			must(t, err)
			first, why := frame(b)
			if why != "" {
				t.Fatal(why)
			}
			flip(t, block(d, "2"), int64(len(first))+4)
		}, "2.blk has a bad checksum", faultEvents - 1, false},
		{"flipped first sequence", func(t *testing.T, d stateDir) { flip(t, block(d, "2"), 4) }, "2.blk begins with no record", faultEvents - 1, false},
		{"head zeroed, of old", func(t *testing.T, d stateDir) {
			f, err := os.OpenFile(block(d, "2"), os.O_RDWR, 0)
			must(t, err)
			_, err = f.WriteAt(make([]byte, 22), 0)
			must(t, errors.Join(err, f.Close(), os.Chtimes(block(d, "2"), time.Time{}, time.Now().Add(-time.Hour))))
		}, "2.blk begins with no record", faultEvents - 1, false},
		{"flipped byte, unclean stop", func(t *testing.T, d stateDir) {
			flip(t, block(d, "1"), 5000)
			must(t, os.WriteFile(d.running(), nil, 0o600))
		}, "1.blk has a bad checksum", faultEvents - 1, false},
		{"torn last record, index older", func(t *testing.T, d stateDir) {
			f, err := os.OpenFile(last(t, d), os.O_APPEND|os.O_WRONLY, 0)
			must(t, err)
			_, err = f.Write(make([]byte, 777))
			must(t, errors.Join(err, f.Close()))
		}, "", faultEvents, false},
		{"last block cut off", func(t *testing.T, d stateDir) {
			st, err := os.Stat(last(t, d))
			must(t, err)
			must(t, os.Truncate(last(t, d), st.Size()-100))
		}, ".blk was cut off", faultEvents - 1, false},
		{"block in the middle cut off, index stale", func(t *testing.T, d stateDir) { must(t, os.Truncate(block(d, "2"), 20_000)); stale(t, d) }, "2.blk has a cut off record", -1, false},
		{"block in the middle cut off, index valid", func(t *testing.T, d stateDir) { must(t, os.Truncate(block(d, "2"), 20_000)) }, "2.blk was cut off", -1, false},
		{"block missing", func(t *testing.T, d stateDir) { must(t, os.Remove(block(d, "2"))) }, "2.blk is missing", -1, false},
		{"first block missing", func(t *testing.T, d stateDir) { must(t, os.Remove(block(d, "1"))) }, "1.blk is missing", -1, false},
		{"first block missing, index stale", func(t *testing.T, d stateDir) { must(t, os.Remove(block(d, "1"))); stale(t, d) }, "1.blk is missing", -1, false},
		{"first block zeroed", func(t *testing.T, d stateDir) {
			must(t, os.WriteFile(block(d, "1"), make([]byte, 30_000), 0o600))
			stale(t, d)
		}, "1.blk has a bad record length", -1, false},
		{"last block zeroed", func(t *testing.T, d stateDir) { must(t, os.WriteFile(last(t, d), make([]byte, 30_000), 0o600)) }, ".blk was cut off", -1, false},
		{"the only block of a segment zeroed", func(t *testing.T, d stateDir) {
			must(t, os.WriteFile(filepath.Join(d.stream(segmentName(1)), "msgs", "1.blk"), make([]byte, 30_000), 0o600))
		}, "1.blk was cut off", faultEvents, false},
		{"the only block of a segment missing", func(t *testing.T, d stateDir) {
			must(t, os.Remove(filepath.Join(d.stream(segmentName(1)), "msgs", "1.blk")))
		}, "1.blk is missing", faultEvents, false},
		{"list of streams damaged", func(t *testing.T, d stateDir) { must(t, os.WriteFile(d.marker(), []byte("{"), 0o600)) }, "list of streams", faultEvents, false},
		{"list of streams missing", func(t *testing.T, d stateDir) { must(t, os.Remove(d.marker())) }, "", faultEvents, false},
		{"block unreadable", func(t *testing.T, d stateDir) {
			must(t, os.Rename(block(d, "2"), filepath.Join(string(d), "2.blk")))
			must(t, os.Mkdir(block(d, "2"), 0o700))
		}, "2.blk cannot be read", 0, true},
		{"index missing", stale, "", faultEvents, false},
		{"index damaged", func(t *testing.T, d stateDir) {
			flip(t, filepath.Join(d.stream(lifecycleStream), "msgs", "index.db"), 20)
		}, "", faultEvents, false},
		{"description missing", func(t *testing.T, d stateDir) {
			must(t, os.Remove(filepath.Join(d.stream(lifecycleStream), "meta.inf")))
		}, "", faultEvents, false},
		{"description damaged", func(t *testing.T, d stateDir) {
			flip(t, filepath.Join(d.stream(lifecycleStream), "meta.inf"), 20)
		}, "", faultEvents, false},
		{"stream missing", func(t *testing.T, d stateDir) { must(t, os.RemoveAll(d.stream(lifecycleStream))) }, "stream LIFECYCLE", 0, true},
	}
}

// TestFaultsOfTheStore damages a ledger in each way and opens it.
func TestFaultsOfTheStore(t *testing.T) {
	for _, tt := range faults() {
		t.Run(tt.name, func(t *testing.T) {
			d := filled(t)
			tt.harm(t, d)
			if tt.refused != "" {
				refusedTwice(t, d, tt.refused)
				lines, err := Repair(string(d))
				if tt.beyond {
					if err == nil {
						t.Errorf("repaired what cannot be: %q", lines)
					}
					return
				}
				if err != nil || len(lines) == 0 {
					t.Fatalf("repair: %v, %q", err, lines)
				}
				t.Log(lines)
			}
			l := open(t, string(d))
			if n := count(t, l); n != tt.events && tt.events >= 0 || n < 80 {
				t.Errorf("%d events are there, want %d", n, tt.events)
			}
			if _, err := l.Append(t.Context(), event("S", "", events.Closed{})); err != nil {
				t.Error(err)
			}
		})
	}
}

// refusedTwice opens the ledger twice: both must be refused with the same text,
// and change nothing.
func refusedTwice(t *testing.T, d stateDir, text string) {
	t.Helper()
	before := checksums(t, d)
	for range 2 {
		l, err := Open(t.Context(), Options{Dir: string(d)})
		if err == nil {
			_ = l.Close()
			t.Fatal("the damaged ledger was opened")
		}
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), text) {
			t.Fatalf("refused with %q, want %q in it", err, text)
		}
	}
	if !maps.Equal(before, checksums(t, d)) {
		t.Error("the refused open changed the store")
	}
}

// TestOpenThatWasKilled finds the copies of an open that was killed when the
// server had deleted a stream: they are put back.
func TestOpenThatWasKilled(t *testing.T) {
	d := stateDir(filepath.Join(t.TempDir(), "a[b]c"))
	if err := os.Rename(string(filled(t)), string(d)); err != nil {
		t.Fatal(err)
	}
	m, err := d.readMarker()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setAside(d, m.Streams, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(d.stream(lifecycleStream)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(d.file("copying-x"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(t.Context(), Options{Dir: string(d)})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, l); n != faultEvents {
		t.Errorf("%d events are there, want %d", n, faultEvents)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{"aside-*", "copying-*", "retired-*", "refused-*"} {
		if paths := d.matching(left); len(paths) > 0 {
			t.Errorf("left %v", paths)
		}
	}
}

// TestAnUnmarkedPackDoesNotCount lists the streams of a ledger that lost its marker
// during a pack.
func TestAnUnmarkedPackDoesNotCount(t *testing.T) {
	d := stateDir(t.TempDir())
	for _, n := range []string{lifecycleStream, segmentName(1), segmentName(2), twinName(segmentName(2)), twinName(segmentName(3))} {
		if err := os.MkdirAll(d.stream(n), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"meta.inf", "meta.sum"} {
			if err := os.WriteFile(filepath.Join(d.stream(n), file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	names, err := streamNames(d, &marker{})
	if want := []string{lifecycleStream, segmentName(1), segmentName(2), twinName(segmentName(3))}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v, %v", names, err)
	}
}

// TestAStreamThatWasNotMadeWholeDoesNotCount leaves a segment as a kill does in
// the middle of its creation. The ledger opens, makes it anew, and opens again.
func TestAStreamThatWasNotMadeWholeDoesNotCount(t *testing.T) {
	d := filled(t)
	second := d.stream(segmentName(2))
	if err := os.MkdirAll(filepath.Join(second, "msgs"), 0o700); err != nil {
		t.Fatal(err)
	}
	meta, err := os.ReadFile(filepath.Join(d.stream(segmentName(1)), "meta.inf"))
	if err != nil {
		t.Fatal(err)
	}
	meta = []byte(strings.ReplaceAll(string(meta), segmentName(1), segmentName(2)))
	for name, data := range map[string][]byte{"meta.inf": meta, "meta.sum.tmp": nil, "msgs/1.blk": nil} {
		if err := os.WriteFile(filepath.Join(second, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		l := open(t, string(d))
		if n := count(t, l); n != faultEvents {
			t.Errorf("%d events", n)
		}
		if len(d.segments()) == 1 {
			roll(t, l)
		}
		if _, err := l.Append(t.Context(), event("S", "E", events.Output{Stream: events.KindStdout, Data: []byte("x")})); err != nil && !errors.Is(err, ErrExists) {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.segments(); len(got) != 2 {
		t.Errorf("segments: %v", got)
	}
}
