package ledger

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheServerCutsNoBlock damages lengths, and a body, where an open does not
// look, and lets the server read them: it loses those records alone, says so, and
// the block as it was is kept. What it leaves opens, also after an unclean stop.
func TestTheServerCutsNoBlock(t *testing.T) {
	d := filled(t)
	block := blockPath(d.stream(lifecycleStream), 2)
	b, err := os.ReadFile(block)
	if err != nil {
		t.Fatal(err)
	}
	var starts []int
	for off := 0; off < len(b); {
		rec, why := frame(b[off:])
		if why != "" {
			t.Fatal(why)
		}
		starts = append(starts, off)
		off += len(rec)
	}
	flip(t, block, int64(starts[1]))
	flip(t, block, int64(starts[7])+400)
	flip(t, block, int64(starts[len(starts)-1]))
	if b, err = os.ReadFile(block); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	serveUnchecked(t, d, &said)

	now, err := os.ReadFile(block)
	if err != nil || len(now) != len(b) || bytes.Equal(now, b) {
		t.Errorf("the block has %d bytes of %d, %v", len(now), len(b), err)
	}
	kept, _ := filepath.Glob(d.file("damaged-*/LIFECYCLE/2.blk"))
	if len(kept) != 1 {
		t.Fatalf("kept %v", kept)
	}
	if was, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(was, b) {
		t.Errorf("what was kept is not what was there: %v", err)
	}
	if !strings.Contains(said.String(), block+" is damaged") || !strings.Contains(said.String(), kept[0]) {
		t.Errorf("said %s", said.String())
	}
	for _, unclean := range []bool{false, true} {
		if unclean {
			if err := os.WriteFile(d.running(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l := open(t, string(d))
		if n := count(t, l); n != faultEvents-3 {
			t.Errorf("%d events are there, want %d (unclean stop: %v)", n, faultEvents-3, unclean)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// serveUnchecked runs the server on a store that nobody inspected, and asks it for
// every message.
func serveUnchecked(t *testing.T, d stateDir, said *bytes.Buffer) {
	t.Helper()
	o := Options{Dir: string(d), Logger: slog.New(slog.NewTextHandler(said, nil))}
	lock, err := d.lockHost(true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	h := &host{o: o, dir: d, lock: lock, removed: func() bool { return false }}
	if h.creds, err = d.ensureCredentials(); err != nil {
		t.Fatal(err)
	}
	if err := h.startServer(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.stopServer()
		if !h.hasMended() {
			t.Error("the server is not started anew")
		}
		h.dropMended()
		if _, err := os.Stat(indexFile(d.stream(lifecycleStream))); !errors.Is(err, fs.ErrNotExist) || h.hasMended() {
			t.Errorf("its index is kept: %v", err)
		}
	}()
	s, err := h.js.Stream(t.Context(), lifecycleStream)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for seq := range uint64(faultEvents) {
		if _, err := s.GetMsg(t.Context(), seq+1); err == nil {
			got++
		}
	}
	if got != faultEvents-3 {
		t.Errorf("the server shows %d events, want %d", got, faultEvents-3)
	}
}
