package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

// tape is recorded output, as the ledger gives it.
type tape []events.Output

func (t tape) Output(_ context.Context, _, _ string, from, to int64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for _, o := range t {
			if to >= 0 && o.End() > to {
				o.Data = o.Data[:max(0, to-o.Offset)]
			}
			if o.Offset < from {
				o.Data = o.Data[min(from-o.Offset, int64(len(o.Data))):]
				o.Offset = from
			}
			if len(o.Data) > 0 && !yield(events.Event{Body: o}, nil) {
				return
			}
		}
	}
}

func (t tape) end() int64 {
	if len(t) == 0 {
		return 0
	}
	return t[len(t)-1].End()
}

func (t tape) stream(k events.Kind) []byte {
	var b []byte
	for _, o := range t {
		if o.Stream == k {
			b = append(b, o.Data...)
		}
	}
	return b
}

// record cuts the bytes of two streams into chunks, interleaved.
func record(t *rapid.T, stdout, stderr []byte) tape {
	var tp tape
	for len(stdout)+len(stderr) > 0 {
		from, stream := &stdout, events.KindStdout
		if len(stdout) == 0 || len(stderr) > 0 && rapid.Bool().Draw(t, "stderr") {
			from, stream = &stderr, events.KindStderr
		}
		n := rapid.IntRange(1, min(len(*from), 9)).Draw(t, "chunk")
		tp = append(tp, events.Output{Stream: stream, Offset: tp.end(), Data: (*from)[:n]})
		*from = (*from)[n:]
	}
	return tp
}

func text() *rapid.Generator[[]byte] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "\n", "é", "€", "🙂", "xyz"}), 0, 40), func(s []string) []byte {
		return []byte(strings.Join(s, ""))
	})
}

func binary() *rapid.Generator[[]byte] {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{'a', '\n', 0x80, 0xBF, 0xC3, 0xE2, 0xF0, 0xFF, 0}), 0, 60)
}

func read(t interface{ Fatal(...any) }, src replay.Outputs, r replay.PageRequest) replay.Page {
	p, err := replay.ReadPage(context.Background(), src, "s", "e", r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pages reads forward pages to the end.
func pages(t *rapid.T, tp tape, r replay.PageRequest) (all []replay.Page) {
	for range 1000 {
		p := read(t, tp, r)
		if p.Start != r.From || p.Next < p.Start || p.Latest < p.Next {
			t.Fatalf("page from %d: start %d, next %d, latest %d", r.From, p.Start, p.Next, p.Latest)
		}
		all = append(all, p)
		if p.Next == r.From {
			if len(p.Stdout)+len(p.Stderr) > 0 {
				t.Fatal("a page with bytes does not advance")
			}
			return all
		}
		if whole := p.Next == p.Latest; p.Truncated && whole {
			t.Fatalf("truncated, yet at the end: %+v", p)
		}
		r.From = p.Next
	}
	t.Fatal("paging did not end")
	return nil
}

// TestPagesConcatenate: forward pages of any size give the output, whatever
// its bytes and however it was chunked, each byte once.
func TestPagesConcatenate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.OneOf(text(), binary())
		tp := record(t, content.Draw(t, "stdout"), content.Draw(t, "stderr"))
		r := replay.PageRequest{Limit: rapid.IntRange(0, 20).Draw(t, "limit"), Final: true}
		if rapid.Bool().Draw(t, "knows the end") {
			r.End = tp.end()
		}
		if rapid.Bool().Draw(t, "filters") {
			r.Streams = []events.Kind{events.KindStdout}
		}
		var stdout, stderr []byte
		for _, p := range pages(t, tp, r) {
			stdout, stderr = append(stdout, p.Stdout...), append(stderr, p.Stderr...)
		}
		if want := tp.stream(events.KindStdout); !bytes.Equal(stdout, want) {
			t.Fatalf("stdout %q, want %q", stdout, want)
		}
		want := tp.stream(events.KindStderr)
		if len(r.Streams) > 0 {
			want = nil
		}
		if !bytes.Equal(stderr, want) {
			t.Fatalf("stderr %q, want %q", stderr, want)
		}
	})
}

// TestM135_PagesSplitNoCharacter: while a command writes text, every page is whole
// characters, however small the page and wherever the chunks end; when it has
// settled nothing is missing.
func TestM135_PagesSplitNoCharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := record(t, text().Draw(t, "stdout"), text().Draw(t, "stderr"))
		r := replay.PageRequest{Limit: rapid.IntRange(0, 9).Draw(t, "limit")}
		var stdout, stderr []byte
		for n := 1; n <= len(tp); n++ {
			r.Final = n == len(tp)
			for _, p := range pages(t, tp[:n], r) {
				if !utf8.Valid(p.Stdout) || !utf8.Valid(p.Stderr) {
					t.Fatalf("split: %q %q", p.Stdout, p.Stderr)
				}
				if alone := len(p.Stderr) == 0; alone && r.Limit > 0 && len(p.Stdout) > max(r.Limit, utf8.UTFMax) {
					t.Fatalf("limit %d, page of %d bytes", r.Limit, len(p.Stdout))
				}
				stdout, stderr = append(stdout, p.Stdout...), append(stderr, p.Stderr...)
				r.From = p.Next
			}
		}
		if !bytes.Equal(stdout, tp.stream(events.KindStdout)) || !bytes.Equal(stderr, tp.stream(events.KindStderr)) {
			t.Fatalf("got %q and %q", stdout, stderr)
		}
	})
}

// TestObservations: a newest page is a suffix of each stream and a head-and-tail
// page a prefix and a suffix, within the limit; the omitted range read forward
// gives exactly the rest.
func TestObservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := record(t, text().Draw(t, "stdout"), text().Draw(t, "stderr"))
		r := replay.PageRequest{
			Limit: rapid.IntRange(1, 40).Draw(t, "limit"), End: tp.end(), Final: true,
			Newest: rapid.Bool().Draw(t, "newest"), HeadTail: true,
		}
		p := read(t, tp, r)
		if p.Next != tp.end() {
			t.Fatalf("next is %d of %d", p.Next, tp.end())
		}
		between := pagesWithin(t, tp, p.OmittedFrom, p.OmittedTo)
		var omitted int64
		for _, s := range []struct {
			kind events.Kind
			got  []byte
			cut  int
		}{{events.KindStdout, p.Stdout, p.StdoutCut}, {events.KindStderr, p.Stderr, p.StderrCut}} {
			want := tp.stream(s.kind)
			if len(s.got) > r.Limit || !utf8.Valid(s.got) {
				t.Fatalf("limit %d: %q", r.Limit, s.got)
			}
			if !bytes.HasPrefix(want, s.got[:s.cut]) || !bytes.HasSuffix(want, s.got[s.cut:]) {
				t.Fatalf("%q is no head and tail of %q", s.got, want)
			}
			missing := want[s.cut : len(want)-len(s.got)+s.cut]
			omitted += int64(len(missing))
			if !bytes.Contains(between.stream(s.kind), missing) {
				t.Fatalf("%q of %q is missing, and not in the omitted range", missing, want)
			}
		}
		if omitted != p.OmittedBytes || p.Truncated != (omitted > 0) {
			t.Fatalf("%d bytes omitted, page says %d (%v)", omitted, p.OmittedBytes, p.Truncated)
		}
	})
}

func pagesWithin(t *rapid.T, tp tape, from, to int64) (within tape) {
	for e, err := range tp.Output(context.Background(), "", "", from, to) {
		if err != nil {
			t.Fatal(err)
		}
		within = append(within, e.Body.(events.Output))
	}
	return within
}

// lines is an output of numbered lines on stdout.
func lines(n int) tape {
	var tp tape
	for i := range n {
		tp = append(tp, events.Output{Stream: events.KindStdout, Offset: tp.end(), Data: fmt.Appendf(nil, "line %06d\n", i)})
	}
	return tp
}

func TestHeadTailIsNewlineAware(t *testing.T) {
	p := read(t, lines(100), replay.PageRequest{HeadTail: true, Limit: 100, Final: true})
	want := "line 000000\nline 000001\nline 000002\nline 000003\n" + "line 000096\nline 000097\nline 000098\nline 000099\n"
	if string(p.Stdout) != want {
		t.Errorf("got %q", p.Stdout)
	}
	if p.OmittedFrom != 4*12 || p.OmittedTo != 96*12 || p.OmittedBytes != 92*12 || p.StdoutCut != 48 || !p.Truncated {
		t.Errorf("omitted [%d, %d), %d bytes, cut at %d", p.OmittedFrom, p.OmittedTo, p.OmittedBytes, p.StdoutCut)
	}
}

func TestTailLines(t *testing.T) {
	p := read(t, lines(100), replay.PageRequest{TailLines: 2, Limit: 1000, Final: true})
	if got := string(p.Stdout); got != "line 000098\nline 000099\n" {
		t.Errorf("got %q", got)
	}
	tp := append(lines(3), events.Output{Stream: events.KindStdout, Offset: 36, Data: []byte("unfinished")})
	if got := string(read(t, tp, replay.PageRequest{TailLines: 2}).Stdout); got != "line 000002\nunfinished" {
		t.Errorf("got %q", got)
	}
}

// TestNewestOfAFlood: one line of stderr before a flood is found if the totals
// tell of it, and what is omitted is named.
func TestNewestOfAFlood(t *testing.T) {
	tp := tape{{Stream: events.KindStderr, Data: []byte("warning\n")}}
	for range 100_000 {
		tp = append(tp, events.Output{Stream: events.KindStdout, Offset: tp.end(), Data: []byte("0123456789abcde\n")})
	}
	r := replay.PageRequest{
		Newest: true, Limit: 1000, End: tp.end(), Final: true,
		Totals: map[events.Kind]int64{events.KindStdout: 1_600_000, events.KindStderr: 8},
	}
	p := read(t, tp, r)
	if string(p.Stderr) != "warning\n" || len(p.Stdout) > 1000 || len(p.Stdout) < 980 {
		t.Errorf("stderr %q, stdout %d bytes", p.Stderr, len(p.Stdout))
	}
	if p.OmittedFrom != 8 || p.OmittedTo != p.Next-int64(len(p.Stdout)) || !p.Truncated {
		t.Errorf("omitted [%d, %d), next %d", p.OmittedFrom, p.OmittedTo, p.Next)
	}
}

// TestObservationsOfAStreamInTheMiddle: a line of stderr within a flood is shown,
// however far it is from both ends of the output.
func TestObservationsOfAStreamInTheMiddle(t *testing.T) {
	flood := func(tp tape, n int) tape {
		for range n {
			tp = append(tp, events.Output{Stream: events.KindStdout, Offset: tp.end(), Data: bytes.Repeat([]byte("0123456789abcde\n"), 4096)})
		}
		return tp
	}
	for name, tt := range map[string]struct {
		chunks, limit int
		kept          bool
	}{"recent": {500, 1600, true}, "ledger": {50, 1600, false}, "a limit above what is kept": {500, 160_000, true}} {
		tp := flood(nil, tt.chunks)
		at := tp.end()
		tp = flood(append(tp, events.Output{Stream: events.KindStderr, Offset: at, Data: []byte("error\n")}), tt.chunks)
		ledger := &counting{tape: tp}
		var src replay.Outputs = ledger
		if tt.kept {
			recent := replay.NewRecent(ledger)
			told(recent, tp)
			src = recent
		}
		for _, r := range []replay.PageRequest{{HeadTail: true}, {Newest: true}, {Newest: true, TailLines: 3}} {
			r.Limit, r.End, r.Final = tt.limit, tp.end(), true
			r.Totals = map[events.Kind]int64{events.KindStdout: tp.end() - 6, events.KindStderr: 6}
			p := read(t, src, r)
			shown := int64(len(p.Stdout))
			if string(p.Stderr) != "error\n" || shown == 0 || p.OmittedBytes != tp.end()-6-shown || p.Next != tp.end() {
				t.Errorf("%s, %+v: stderr %q, %d bytes of stdout, omitted [%d, %d) %d bytes",
					name, r, p.Stderr, shown, p.OmittedFrom, p.OmittedTo, p.OmittedBytes)
			}
		}
		if tt.kept && tt.limit == 1600 && ledger.asked > 0 {
			t.Errorf("the ledger was asked %d times", ledger.asked)
		}
	}
}

// TestPrunedOutput: bytes that were deleted are named, not skipped in silence.
func TestPrunedOutput(t *testing.T) {
	tp := tape{
		{Stream: events.KindStdout, Offset: 100, Data: []byte("abc")},
		{Stream: events.KindStdout, Offset: 203, Data: []byte("def")},
	}
	p := read(t, tp, replay.PageRequest{End: 306, Final: true})
	if string(p.Stdout) != "abcdef" || p.Next != 306 || p.OmittedFrom != 0 || p.OmittedTo != 306 || p.OmittedBytes != 300 || !p.Truncated {
		t.Errorf("%q %+v", p.Stdout, p)
	}
}

// TestY84_ObservationsOfPrunedOutput: what was deleted is named, also where the
// end is asked for, and reading goes on behind it.
func TestY84_ObservationsOfPrunedOutput(t *testing.T) {
	const end = 1 << 20
	last := tape{{Stream: events.KindStdout, Offset: end - 3, Data: []byte("def")}}
	for name, tt := range map[string]struct {
		recorded tape
		shown    string
	}{"the beginning": {last, "def"}, "all": {nil, ""}} {
		for _, r := range []replay.PageRequest{
			{Newest: true, Limit: 1000}, {HeadTail: true, Limit: 1000}, {Newest: true, Limit: end}, {HeadTail: true, Limit: end}, {TailLines: 5},
		} {
			r.End, r.Final = end, true
			r.Totals = map[events.Kind]int64{events.KindStdout: end}
			p := read(t, tt.recorded, r)
			if string(p.Stdout) != tt.shown || p.Next != end || !p.Truncated || p.OmittedBytes != end-int64(len(tt.shown)) || p.OmittedFrom != 0 {
				t.Errorf("%s, %+v: %q, next %d, truncated %t, omitted [%d, %d) %d bytes",
					name, r, p.Stdout, p.Next, p.Truncated, p.OmittedFrom, p.OmittedTo, p.OmittedBytes)
			}
		}
	}
}

// TestObservationsOfLongOutput: what is not read is omitted and named: the page
// and the bytes of its omitted range have every byte of what was asked for.
func TestObservationsOfLongOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := long(t)
		r := replay.PageRequest{
			Limit: rapid.IntRange(1, 200_000).Draw(t, "limit"), End: tp.end(), Final: true,
			Newest: rapid.Bool().Draw(t, "newest"), HeadTail: true,
		}
		if rapid.Bool().Draw(t, "knows the totals") {
			r.Totals = map[events.Kind]int64{
				events.KindStdout: int64(len(tp.stream(events.KindStdout))), events.KindStderr: int64(len(tp.stream(events.KindStderr))),
			}
		}
		var src replay.Outputs = tp
		if rapid.Bool().Draw(t, "recent") {
			recent := replay.NewRecent(tp)
			told(recent, tp)
			src = recent
		}
		p := read(t, src, r)
		between := pagesWithin(t, tp, p.OmittedFrom, p.OmittedTo)
		shown := 0
		for _, s := range []struct {
			kind events.Kind
			got  []byte
			cut  int
		}{{events.KindStdout, p.Stdout, p.StdoutCut}, {events.KindStderr, p.Stderr, p.StderrCut}} {
			want := tp.stream(s.kind)
			shown += len(s.got)
			if len(s.got) > r.Limit {
				t.Fatalf("%d bytes with the limit %d", len(s.got), r.Limit)
			}
			if !bytes.HasPrefix(want, s.got[:s.cut]) || !bytes.HasSuffix(want, s.got[s.cut:]) {
				t.Fatalf("%s is no head and tail", s.kind)
			}
			if missing := want[s.cut : len(want)-len(s.got)+s.cut]; !bytes.Contains(between.stream(s.kind), missing) {
				t.Fatalf("%d bytes of %s are missing, and not in the omitted range [%d, %d)", len(missing), s.kind, p.OmittedFrom, p.OmittedTo)
			}
		}
		if rest := tp.end() - int64(shown); p.OmittedBytes != rest || p.Truncated != (rest > 0) {
			t.Fatalf("%d bytes are not shown, the page says %d", rest, p.OmittedBytes)
		}
	})
}

// TestObservationsAheadOfTheRecord: the output was seen to be longer than what
// is recorded. What a page does not show is omitted and named, or comes after it.
func TestObservationsAheadOfTheRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := long(t)
		r := replay.PageRequest{
			Limit: rapid.IntRange(1, 50_000).Draw(t, "limit"), End: tp.end() + rapid.Int64Range(1, 1<<20).Draw(t, "ahead"),
			Newest: rapid.Bool().Draw(t, "newest"), HeadTail: true,
		}
		if rapid.Bool().Draw(t, "knows the totals") { // as of before what is recorded
			r.Totals = map[events.Kind]int64{}
		}
		p := read(t, tp, r)
		shown := int64(len(p.Stdout) + len(p.Stderr))
		if p.Next > tp.end() || p.OmittedBytes == 0 && shown != p.Next-p.Start {
			t.Fatalf("[%d, %d) of %d recorded bytes shows %d and names none as omitted", p.Start, p.Next, tp.end(), shown)
		}
	})
}
