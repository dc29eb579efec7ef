package mcp

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
)

func outputEvent(offset int64, data []byte) events.Event {
	return events.Event{Subject: "x", Body: events.Output{Stream: events.KindStdout, Offset: offset, Data: data}}
}

// However the output is cut into chunks, and whatever comes twice, the tail is
// that of the whole.
func TestTailsAreThoseOfTheWholeOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-zé]{0,20}`), 0, 20).Draw(t, "lines")
		whole := strings.Join(lines, "\n")
		tails := newTails()
		for at := 0; at < len(whole); {
			n := rapid.IntRange(1, len(whole)-at).Draw(t, "chunk")
			e := outputEvent(int64(at), []byte(whole[at:at+n]))
			tails.apply(e)
			tails.apply(e)
			at += n
		}
		count, last := tails.of("x")
		if int(count) != strings.Count(whole, "\n") {
			t.Errorf("%d lines", count)
		}
		want := strings.Split(strings.TrimSuffix(whole, "\n"), "\n")
		want = want[max(0, len(want)-tailLines):]
		if last != strings.Join(want, "\n") {
			t.Errorf("the tail is %q, want %q", last, want)
		}
	})
}

func TestTailsAreBoundedAndForgotten(t *testing.T) {
	tails := newTails()
	for i := range 100 {
		tails.apply(outputEvent(int64(i)<<20, bytes.Repeat([]byte("x"), 1<<20)))
	}
	if _, last := tails.of("x"); len(last) != tailLines*tailWidth {
		t.Errorf("the tail has %d bytes", len(last))
	}
	tails.apply(events.Event{Subject: "x", Body: events.Settled{}})
	if len(tails.live) != 0 {
		t.Error("the end did not forget it")
	}
}
