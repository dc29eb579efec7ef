//go:build linux

package producers

import (
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

func onTerminal(r *Request) { r.TTY = &events.Size{Rows: 40, Cols: 120} }

func TestM107_ATerminalIsOne(t *testing.T) {
	b := newBench(t)
	r := request("test -t 0 && test -t 1 && test -t 2 && stty size; exit 3")
	onTerminal(&r)
	n := b.run(r)
	n.exits(t, events.StatusCompleted, 3, events.TermExited)
	if n.tty != "40 120\r\n" || n.out != "" {
		t.Errorf("%q", n.tty)
	}
}

func TestATerminalTakesInputAndSize(t *testing.T) {
	b := newBench(t)
	id := b.background("stty -echo; echo ready; read a; echo got:$a; stty size; cat", onTerminal)
	b.prints(id, "ready")
	for _, in := range []Input{
		{Data: []byte("line\n"), Resize: &events.Size{Rows: 50, Cols: 132}},
		{Data: []byte("rest\n")},
		{Close: true},
	} {
		if err := b.Write("", id, in); err != nil {
			t.Fatal(err)
		}
	}
	n := b.ended(id)
	n.exits(t, events.StatusCompleted, 0, events.TermExited)
	if want := "ready\r\ngot:line\r\n50 132\r\nrest\r\n"; n.tty != want {
		t.Errorf("%q, want %q", n.tty, want)
	}
}

// The end of input is one also behind a line that does not end.
func TestATerminalEndsItsInput(t *testing.T) {
	b := newBench(t)
	for in, want := range map[string]string{"": "", "line\n": "line\r\n", "part": "part"} {
		id := b.background("stty -echo; echo ready; cat", onTerminal)
		b.prints(id, "ready")
		if err := b.Write("", id, Input{Data: []byte(in), Close: true}); err != nil {
			t.Fatal(err)
		}
		n := b.ended(id)
		n.exits(t, events.StatusCompleted, 0, events.TermExited)
		if n.tty != "ready\r\n"+want {
			t.Errorf("after %q: %q", in, n.tty)
		}
	}
}

func TestM109_ControlCInterruptsOnATerminal(t *testing.T) {
	b := newBench(t)
	id := b.background("trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.02; done", onTerminal)
	b.prints(id, "ready")
	if err := b.Write("", id, Input{Data: []byte{3}}); err != nil {
		t.Fatal(err)
	}
	n := b.ended(id)
	n.exits(t, events.StatusCompleted, 7, events.TermExited)
	if !strings.Contains(n.tty, "caught") {
		t.Errorf("%q", n.tty)
	}
}

func TestATerminalIsStopped(t *testing.T) {
	b := newBench(t)
	m := marker()
	id := b.background("trap '' HUP; echo ready; (setsid sleep "+m+"); sleep "+m, onTerminal)
	b.prints(id, "ready")
	if _, err := b.Stop(t.Context(), "", id, StopOptions{}); err != nil {
		t.Fatal(err)
	}
	gone(t, m)
}
