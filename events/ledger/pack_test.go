package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yieldlog/yieldlog/events"
)

func TestM68_PackKeepsEveryByteAtItsAddress(t *testing.T) {
	dir := t.TempDir()
	host := open(t, dir)
	for name, l := range map[string]*Ledger{"host": host, "joined": open(t, dir)} {
		c := newChatter(l, name+"A", name+"B", name+"C")
		c.lines(t, 150)
		roll(t, l) // two segments
		c.lines(t, 150)
		c.settle(t)
		before := c.everything(t)
		r := pack(t, l)
		if len(r.Segments) != 2 || r.After*3 > r.Before {
			t.Errorf("%s packed %+v", name, r)
		}
		same(t, before, c.everything(t))
		whole := bytesOf(before[name+"A"])
		for range 50 {
			from := rand.Int64N(int64(len(whole)))
			to := from + rand.Int64N(int64(len(whole))-from)
			l.positions = positions{}
			if got := bytesOf(said(t, l.Output(t.Context(), "S", name+"A", from, to))); got != whole[from:to] {
				t.Fatalf("bytes %d to %d are %q, want %q", from, to, got, whole[from:to])
			}
		}
		for _, s := range r.Segments {
			if _, err := os.Stat(host.store.dir.stream(s)); !os.IsNotExist(err) {
				t.Errorf("%s is still on disk: %v", s, err)
			}
		}
	}
	if got := pack(t, host); len(got.Segments) != 0 {
		t.Errorf("packed again: %+v", got)
	}
}

func TestPrunePacked(t *testing.T) {
	l := open(t, t.TempDir())
	c := newChatter(l, "A", "B")
	c.lines(t, 100)
	middle := c.at["A"]
	roll(t, l)
	c.lines(t, 100)
	c.settle(t)
	pack(t, l)
	i, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	noted := map[string]events.Pruned{}
	r, err := l.Prune(t.Context(), i.Bytes-1, "size", func(_ context.Context, _, owner, id string, p events.Pruned) error {
		if owner != events.RootOwner {
			t.Errorf("noted for %q", owner)
		}
		noted[id] = p
		return nil
	})
	if err != nil || len(r.Segments) != 1 || r.Segments[0] != twinName(segmentName(1)) {
		t.Errorf("pruned %+v, %v", r, err)
	}
	if want := (events.Pruned{To: middle, Reason: "size"}); noted["A"] != want {
		t.Errorf("noted %+v, want %+v", noted["A"], want)
	}
	left := said(t, l.Output(t.Context(), "S", "A", 0, -1))
	if from := left[0].Body.(events.Output).Offset; from != middle {
		t.Errorf("output begins at %d, want %d", from, middle)
	}
}

func TestPackWaitsForTheUnsettled(t *testing.T) {
	l := open(t, t.TempDir())
	c := newChatter(l, "A", "B")
	c.lines(t, 50)
	if r := pack(t, l); len(r.Segments) != 0 || !slices.Equal(r.Waiting, []string{segmentName(1)}) {
		t.Errorf("packed %+v", r)
	}
	c.settle(t)
	if r := pack(t, l); !slices.Equal(r.Segments, []string{segmentName(1)}) {
		t.Errorf("packed %+v", r)
	}
}

// TestM62_PackKeepsWhatWouldNotShrink packs noise: it stays, and is not tried again.
func TestM62_PackKeepsWhatWouldNotShrink(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	c := newChatter(l, "A")
	noise := make([]byte, 40_000)
	for range 10 {
		for i := range noise {
			noise[i] = byte(rand.Uint32())
		}
		c.post(t, "A", events.KindStdout, slices.Clone(noise))
	}
	c.posted.Wait()
	c.settle(t)
	before := c.everything(t)
	if r := pack(t, l); len(r.Segments) != 0 || !slices.Equal(r.Dense, []string{segmentName(1)}) {
		t.Errorf("packed %+v", r)
	}
	if r := pack(t, l); len(r.Dense) != 0 {
		t.Errorf("tried again: %+v", r)
	}
	same(t, before, c.everything(t))
	if _, err := os.Stat(l.store.dir.stream(twinName(segmentName(1)))); !os.IsNotExist(err) {
		t.Errorf("the twin is still there: %v", err)
	}
}

// TestM65_PackKeepsWhatDoesNotMatchItsSettlement keeps the evidence.
func TestM65_PackKeepsWhatDoesNotMatchItsSettlement(t *testing.T) {
	l := open(t, t.TempDir())
	c := newChatter(l, "A")
	c.lines(t, 50)
	c.sums["A"][events.KindStderr][0] ^= 1
	c.settle(t)
	if _, err := l.Pack(t.Context()); !errors.Is(err, errUnsound) || !strings.Contains(err.Error(), "stderr of S.A") {
		t.Errorf("packed: %v", err)
	}
	if got := l.dir().segments()[0]; got != segmentName(1) {
		t.Errorf("%s counts", got)
	}
}

// TestPackKeepsWhatItCannotReadWhole keeps a segment whose blocks do not hold what
// the server knows.
func TestPackKeepsWhatItCannotReadWhole(t *testing.T) {
	for name, harm := range map[string]func(block []byte) []byte{
		"a flipped byte": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a lost end": func(b []byte) []byte {
			end := 0
			for off := 0; off < len(b); {
				rec, _ := frame(b[off:])
				if sequence(rec) > 0 {
					end = off
				}
				off += len(rec)
			}
			return b[:end]
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, t.TempDir())
			c := newChatter(l, "A")
			c.lines(t, 50)
			c.settle(t)
			roll(t, l)
			paths, err := blocks(l.dir().stream(segmentName(1)))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(paths[0], harm(b), 0o600); err != nil {
				t.Fatal(err)
			}
			if r, err := l.Pack(t.Context()); err == nil {
				t.Errorf("packed %+v", r)
			}
			if got := l.dir().segments()[0]; got != segmentName(1) {
				t.Errorf("%s counts", got)
			}
		})
	}
}

// TestM64_ReadsGoOnWhilePacking reads without end, in the host and beside it, while
// segment after segment is packed. Some readers stand still in the middle.
func TestM64_ReadsGoOnWhilePacking(t *testing.T) {
	dir := t.TempDir()
	host, joined := open(t, dir), open(t, dir)
	c := newChatter(host, "A", "B")
	for range 4 {
		c.lines(t, 120)
		roll(t, host)
	}
	c.settle(t)
	want := map[string]string{}
	for _, id := range c.ids {
		want[id] = bytesOf(said(t, host.Output(t.Context(), "S", id, 0, -1)))
	}
	type paused struct {
		next func() (events.Event, error, bool)
		got  string
	}
	var waiting []*paused
	for i, l := range []*Ledger{host, joined, host, joined} {
		next, stop := iter.Pull2(l.Output(t.Context(), "S", "A", 0, -1))
		defer stop()
		p := &paused{next: next}
		for range 1 + i*90 { // in different segments
			e, err, ok := next()
			if err != nil || !ok {
				t.Fatal(err, ok)
			}
			p.got += string(e.Body.(events.Output).Data)
		}
		waiting = append(waiting, p)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var rounds sync.WaitGroup
	for _, l := range []*Ledger{host, joined} {
		rounds.Add(1)
		readers.Go(func() {
			for i := 0; ; i++ {
				for _, id := range c.ids {
					if got := bytesOf(said(t, l.Output(t.Context(), "S", id, 0, -1))); got != want[id] {
						t.Errorf("round %d read %d bytes of %s, want %d", i, len(got), id, len(want[id]))
					}
				}
				if i == 0 {
					rounds.Done()
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	rounds.Wait()
	if r := pack(t, joined); len(r.Segments) != 4 {
		t.Errorf("packed %+v", r)
	}
	close(stop)
	readers.Wait()
	for i, p := range waiting {
		for e, err, ok := p.next(); ok; e, err, ok = p.next() {
			if err != nil {
				t.Fatal(err)
			}
			p.got += string(e.Body.(events.Output).Data)
		}
		if p.got != want["A"] {
			t.Errorf("reader %d got %d bytes, want %d", i, len(p.got), len(want["A"]))
		}
	}
}

// TestM70_PackedBombIsRefused stores a body that is far longer than it says.
func TestM70_PackedBombIsRefused(t *testing.T) {
	l := open(t, t.TempDir())
	m, err := events.Encode(event("S", "E", events.Packed{Records: []events.Record{{Stream: events.KindStdout, Data: make([]byte, 1000)}}}))
	if err != nil {
		t.Fatal(err)
	}
	big, err := events.Encode(events.Event{ID: "x", Session: "S", Subject: "E", Body: events.Output{Stream: events.KindStdout, Data: make([]byte, events.MaxChunk)}})
	if err != nil {
		t.Fatal(err)
	}
	m.Header["ce-id"] = []string{"x"}
	m.Data = slices.Repeat(big.Data, 100) // frames follow each other: 50 MiB
	_, err = l.store.js.PublishMsg(t.Context(), &nats.Msg{Subject: ingestPrefix(segmentName(1)) + m.Subject, Header: m.Header, Data: m.Data})
	if err != nil {
		t.Fatal(err)
	}
	for _, err = range l.Output(t.Context(), "S", "E", 0, -1) {
		break
	}
	if err == nil || !strings.Contains(err.Error(), "inflating") {
		t.Errorf("read it: %v", err)
	}
}

// killedAtPackStep is a child that packs, and dies between two steps.
func killedAtPackStep(dir, at string) error {
	atPackStep = func(step string) {
		if step != at {
			return
		}
		p, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = p.Kill()
		}
		fmt.Fprintln(os.Stderr, "killed", err)
		select {}
	}
	l, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		return err
	}
	_, err = l.Pack(context.Background())
	return errors.Join(err, l.Close())
}

// TestPackSurvivesAKillAtEachStep kills the process that hosts and packs. Then
// either the raw segment or its twin is there, and holds everything.
func TestPackSurvivesAKillAtEachStep(t *testing.T) {
	for _, step := range []string{"made", "begun", "written", "verified", "sealed", "marked", "deleted"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			before := recordChatter(t, dir)
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), "YIELDLOG_TEST_PACK="+step, "YIELDLOG_TEST_PACK_DIR="+dir)
			out, err := child.CombinedOutput()
			if err == nil {
				t.Fatalf("the packer lived through %s: %s", step, out)
			}
			l := open(t, dir)
			c := newChatter(l, "A", "B")
			c.at = before.at
			same(t, before.all, c.everything(t))
			raw, packed := segmentName(1), twinName(segmentName(1))
			counts, other := raw, packed
			if step == "marked" || step == "deleted" {
				counts, other = packed, raw
			}
			if got := l.dir().segments()[0]; got != counts {
				t.Errorf("%s counts, want %s: %s", got, counts, out)
			}
			if left, err := filepath.Glob(l.store.dir.stream(other)); err != nil || len(left) > 0 {
				t.Errorf("%v is left: %v", left, err)
			}
			pack(t, l)
			if got := l.dir().segments()[0]; got != packed {
				t.Errorf("%s counts after a pack", got)
			}
			same(t, before.all, c.everything(t))
		})
	}
}

type recorded struct {
	at  map[string]int64
	all map[string][]events.Event
}

// recordChatter writes a ledger and closes it.
func recordChatter(t *testing.T, dir string) recorded {
	t.Helper()
	l, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c := newChatter(l, "A", "B")
	c.lines(t, 60)
	c.settle(t)
	r := recorded{at: c.at, all: c.everything(t)}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPackAndPruneDoNotRace has one process prune what another packs.
func TestPackAndPruneDoNotRace(t *testing.T) {
	dir := t.TempDir()
	host, joined := open(t, dir), open(t, dir)
	c := newChatter(host, "A", "B")
	for range 6 {
		c.lines(t, 40)
		roll(t, host)
	}
	c.settle(t)
	whole := bytesOf(said(t, host.Output(t.Context(), "S", "A", 0, -1)))
	var both sync.WaitGroup
	both.Go(func() {
		for range 3 {
			if _, err := joined.Pack(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	var pruned int64
	both.Go(func() {
		for range 3 {
			i, err := host.Info(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			_, err = host.Prune(t.Context(), i.Bytes-1, "size", func(_ context.Context, _, _, id string, p events.Pruned) error {
				if id == "A" {
					pruned = max(pruned, p.To)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	both.Wait()
	if got := bytesOf(said(t, joined.Output(t.Context(), "S", "A", 0, -1))); pruned == 0 || got != whole[pruned:] {
		t.Errorf("%d bytes are left of %d, and %d were pruned", len(got), len(whole), pruned)
	}
}

func TestM63_AutoPackPacksASealedSegment(t *testing.T) {
	l := open(t, t.TempDir())
	c := newChatter(l, "A", "B")
	c.lines(t, 60)
	c.settle(t)
	before := c.everything(t)
	roll(t, l)
	l.AutoPack()
	deadline := time.After(time.Minute)
	for l.dir().segments()[0] != twinName(segmentName(1)) {
		select {
		case <-deadline:
			t.Fatal("nothing was packed")
		case <-time.After(10 * time.Millisecond): // it looks at the marker again
		}
	}
	same(t, before, c.everything(t))
}
