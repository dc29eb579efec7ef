package replay_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

func TestCompare(t *testing.T) {
	r := evening()
	all := projections.NewProcesses()
	if err := replay.NewEngine(all).RunTo(t.Context(), r, events.Filter{}, 0); err != nil {
		t.Fatal(err)
	}
	build, _ := all.Get("build1")
	fast, _ := all.Get("fast01")
	same, err := replay.Compare(t.Context(), r, build, build)
	if err != nil {
		t.Fatal(err)
	}
	if !same.Same() {
		t.Errorf("an execution differs from itself: %+v", same)
	}
	c, err := replay.Compare(t.Context(), r, build, fast)
	if err != nil {
		t.Fatal(err)
	}
	want := []replay.Difference{{Fact: "command", A: "make -j2", B: "ls"}, {Fact: "yielded", A: "true", B: "false"}}
	if diff := cmp.Diff(want, c.Facts); diff != "" {
		t.Error(diff)
	}
	if len(c.Streams) != 2 || !strings.Contains(c.Streams[0].Diff, "-cc a\n-cc b\n+café\n") || c.Streams[1].BytesB != 0 {
		t.Errorf("%+v", c.Streams)
	}
}
