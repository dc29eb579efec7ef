package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

func search(t interface{ Fatal(...any) }, src replay.Recording, q replay.Query) (found []replay.Match) {
	for m, err := range replay.Search(context.Background(), src, q) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
	}
	return found
}

// taped is a tape as the output of one execution with the command "x".
func taped(tp tape) recording {
	r := recording{output: map[string][]events.Event{}}
	r.history = history{{Seq: 1, Session: "s", Owner: "/root", Subject: "e", Body: events.Requested{Command: "x"}}}
	for _, o := range tp {
		r.output["e"] = append(r.output["e"], events.Event{Body: o})
	}
	return r
}

// TestSearchIsGrep: the matches are those of the pattern in each line, with the
// right numbers, offsets and context, however the output was chunked.
func TestSearchIsGrep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"ab", "c", "\n", "\r\n", "é", "abc", " "}), 0, 60), func(s []string) []byte {
			return []byte(strings.Join(s, ""))
		})
		tp := record(t, content.Draw(t, "stdout"), content.Draw(t, "stderr"))
		pattern := rapid.SampledFrom([]string{"abc", "a.c", "^ab", "c$", "é", "(ab)+c", "b|é", "", "zz", "(?i)ABC", "[^a]c"}).Draw(t, "pattern")
		n := rapid.IntRange(0, 3).Draw(t, "context")
		var got []string
		for _, m := range search(t, taped(tp), replay.Query{Pattern: pattern, Context: n}) {
			if m.Stream != "" {
				got = append(got, describe(m))
			}
		}
		var want []string
		for _, k := range []events.Kind{events.KindStdout, events.KindStderr} {
			want = append(want, grep(tp, k, regexp.MustCompile(pattern), n)...)
		}
		// The streams are searched side by side: their matches interleave.
		if diff := cmp.Diff(byStream(want), byStream(got)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func describe(m replay.Match) string {
	return fmt.Sprintf("%s:%d@%d %q[%d:%d] %q %v %q %v", m.Stream, m.Line, m.Offset, m.Text, m.Start, m.End, m.Before, m.BeforeAt, m.After, m.AfterAt)
}

func byStream(lines []string) map[bool][]string {
	split := map[bool][]string{}
	for _, l := range lines {
		k := strings.HasPrefix(l, "stderr")
		split[k] = append(split[k], l)
	}
	return split
}

// grep is what Search should find in one stream.
func grep(tp tape, k events.Kind, re *regexp.Regexp, n int) (found []string) {
	var lines []string
	var offsets []int64
	open := false
	for _, o := range tp {
		if o.Stream != k {
			continue
		}
		for i, c := range o.Data {
			if !open {
				lines, offsets = append(lines, ""), append(offsets, o.Offset+int64(i))
			}
			if open = c != '\n'; open {
				lines[len(lines)-1] += string([]byte{c})
			}
		}
	}
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	for i, line := range lines {
		if loc := re.FindStringIndex(line); loc != nil {
			found = append(found, describe(replay.Match{
				Stream: k, Line: int64(i + 1), Offset: offsets[i], Text: line, Start: loc[0], End: loc[1],
				Before: lines[max(0, i-n):i], After: lines[i+1 : min(len(lines), i+1+n)],
				BeforeAt: offsets[max(0, i-n):i], AfterAt: offsets[i+1 : min(len(lines), i+1+n)],
			}))
		}
	}
	return found
}

func TestSearchFilters(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		query replay.Query
		want  []string
	}{
		"across chunks": {replay.Query{Pattern: "café"}, []string{"fast01@0"}},
		"command":       {replay.Query{Pattern: "make"}, []string{"build1"}},
		"all":           {replay.Query{Pattern: `^cc|ls|warn`}, []string{"build1@0", "build1@5", "build1@10", "fast01"}},
		"newest first":  {replay.Query{Pattern: `^cc a|ls|warn`, NewestFirst: true}, []string{"fast01", "build1@0", "build1@10"}},
		"one execution": {replay.Query{Pattern: ".", Execution: "fast01"}, []string{"fast01", "fast01@0"}},
		"owner":         {replay.Query{Pattern: ".", Owner: "/root/other"}, nil},
		"since":         {replay.Query{Pattern: "cc|warn", Since: start.Add(4 * time.Second)}, []string{"build1@10"}},
		"until":         {replay.Query{Pattern: "cc a|warn", Until: start.Add(time.Second)}, []string{"build1@0"}},
		"outcome":       {replay.Query{Pattern: ".", Outcome: "failed"}, nil},
		"literal":       {replay.Query{Pattern: "m.ke", Literal: true}, nil},
		"literal case":  {replay.Query{Pattern: "WARNING", Literal: true, IgnoreCase: true}, []string{"build1@10"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, m := range search(t, evening(), c.query) {
				got = append(got, m.Address())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSearchOfLongLines: a line longer than what is held matches once, also
// where its parts meet.
func TestSearchOfLongLines(t *testing.T) {
	line := bytes.Repeat([]byte("x"), 3<<20)
	copy(line[1_100_000-3:], "needle") // where the first part ends
	copy(line[2<<20:], "needle")
	var tp tape
	for at := 0; at < len(line); at += 100_000 {
		tp = append(tp, events.Output{Stream: events.KindStdout, Offset: int64(at), Data: line[at:min(len(line), at+100_000)]})
	}
	tp = append(tp, events.Output{Stream: events.KindStdout, Offset: tp.end(), Data: []byte("\nneedle\n")})
	found := search(t, taped(tp), replay.Query{Pattern: "needle"})
	if len(found) != 2 || found[0].Text[found[0].Start:found[0].End] != "needle" || len(found[0].Text) > 4<<10 || found[1].Line != 2 {
		t.Errorf("%d matches: %.200v", len(found), found)
	}
}

// TestSearchSeesThroughColours: a word that escape sequences split is found, and
// so are the sequences themselves.
func TestSearchSeesThroughColours(t *testing.T) {
	const lines = "plain\n\x1b[1mdone: \x1b[31mERROR\x1b[0m in \x1b]8;;file:///x\x1b\\main.go\x1b]8;;\x1b\\\r\nplain\n\x1b[32mok\x1b[m\n"
	for pattern, want := range map[string]string{
		"ERROR in main":    `stdout:2@6 "done: ERROR in main.go"[6:19]`,
		"^done.*go$":       `stdout:2@6 "done: ERROR in main.go"[0:22]`,
		"^ok$":             `stdout:4@72 "ok"[0:2]`,
		"\\x1b\\[32m":      `stdout:4@72 "\x1b[32mok\x1b[m"[0:5]`,
		"plain.*ERROR in|": `stdout:1@0 "plain"[0:0]`,
		"ERRORin":          "",
	} {
		tp := tape{{Stream: events.KindStdout, Data: []byte(lines)}}
		var got string
		for _, m := range search(t, taped(tp), replay.Query{Pattern: pattern}) {
			if m.Stream != "" && got == "" {
				got = fmt.Sprintf("%s:%d@%d %q[%d:%d]", m.Stream, m.Line, m.Offset, m.Text, m.Start, m.End)
			}
		}
		if got != want {
			t.Errorf("%q: %s, want %s", pattern, got, want)
		}
	}
}

func TestSearchRefusesABadPattern(t *testing.T) {
	for _, err := range replay.Search(context.Background(), evening(), replay.Query{Pattern: "("}) {
		if err == nil || !strings.Contains(err.Error(), "pattern") {
			t.Errorf("got %v", err)
		}
		return
	}
	t.Error("no error")
}

func BenchmarkSearch(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	var text bytes.Buffer
	for text.Len() < 64<<20 {
		fmt.Fprintf(&text, "2026-12-01T00:00:00Z level=info msg=\"request %d took %dms\" path=/api/v1/things/%x\n", r.Uint32(), r.IntN(1000), r.Uint64())
	}
	fmt.Fprintln(&text, "level=error msg=\"the needle\"")
	data := text.Bytes()
	l := openLedger(b)
	ctx := b.Context()
	if _, err := l.Append(ctx, events.Event{Session: "s", Owner: "/root", Subject: "e", Body: events.Requested{Command: "x"}}); err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	for at := 0; at < len(data); at += 256 << 10 {
		e := events.Event{Session: "s", Owner: "/root", Subject: "e", Body: events.Output{
			Stream: events.KindStdout, Offset: int64(at), Data: data[at:min(len(data), at+256<<10)],
		}}
		last := at+256<<10 >= len(data)
		if err := l.Post(ctx, e, func(_ events.Event, err error) {
			if last {
				done <- err
			}
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	for _, pattern := range []string{"needle", "error msg=.the n", "took 99[0-9]ms", "[a-z]eedle"} {
		for name, src := range map[string]replay.Recording{"ledger": l, "memory": taped(chunked(data))} {
			b.Run(pattern+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if found := search(b, src, replay.Query{Pattern: pattern}); len(found) == 0 {
						b.Fatal("nothing found")
					}
				}
			})
		}
	}
}

func chunked(data []byte) (tp tape) {
	for at := 0; at < len(data); at += 256 << 10 {
		tp = append(tp, events.Output{Stream: events.KindStdout, Offset: int64(at), Data: data[at:min(len(data), at+256<<10)]})
	}
	return tp
}
