package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

func TestPlain(t *testing.T) {
	var bar strings.Builder
	for i := range 101 {
		fmt.Fprintf(&bar, "\rprogress %d%%", i)
	}
	for in, want := range map[string]string{
		"":                                  "",
		"a\nb":                              "a\nb",
		"a\r\nb\r\n":                        "a\nb\n",
		bar.String() + "\ndone\n":           "progress 100%\ndone\n",
		"long line\rshort\n":                "shortline\n",
		"abc\b\bX\n":                        "aXc\n",
		"\x1b[1;31mred\x1b[0m \x1b]0;t\a.":  "red .",
		"\xff\n":                            "\uFFFD\n",
		"one\x1b[2K\x1b[1Gtwo":              "two",
		"a long line\r\x1b[Kend\n":          "end\n",
		"abc\x1b[2DX\x1b[3Cd\x1b[2G\x1b[1K": "  c  d",
		strings.Repeat("\x1b[9999C", 100):   "",
		"1 wait\n2 wait\n\x1b[2A\x1b[2K\r1 done\x1b[1B\r\x1b[2K2 done\n":   "1 done\n2 done\n",
		"above\n\x1b[2K\x1b[1A\x1b[2K\x1b[Gbelow\n":                        "below\n",
		"a\nb\nc\n\x1b[3A\x1b[Jd\n":                                        "d\n",
		"a\nb\x1b[1Fc\x1b[9Ed\x1b[99Ae\x1b[99Bf\x1b[2J":                    "ce\nd f",
		"top\n\x1b[9A\x1b[0m\x1b[0Jnew\n\x1b[H\x1b[2J\x1b[3Jafter\n\x1b[A": "new\nafter\n",
	} {
		if got := Plain([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestScreen(t *testing.T) {
	size := events.Size{Rows: 5, Cols: 20}
	for in, want := range map[string]string{
		"a\r\nb":                      "a\nb",
		"1\r\n2\r\n3\r\n4\r\n5\r\n6":  "2\n3\n4\n5\n6",
		"x\x1b[2J\x1b[H\x1b[3;4Hdown": "\n\n   down",
		"asks\x1b[6n\x1b[c":           "asks",
	} {
		if got := Screen([]byte(in), size); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestScreenOfAFlood: what scrolled away costs nothing, however large the
// terminal, and no sequence is obeyed for long.
func TestScreenOfAFlood(t *testing.T) {
	large := events.Size{Rows: 200, Cols: 500}
	began := time.Now()
	for in, want := range map[string]string{
		strings.Repeat("x\r\n", 80_000) + "end":   "\nend",
		strings.Repeat("\x1b[L", 80_000) + "end":  "end",
		strings.Repeat("\x1b[2J", 60_000) + "end": "end",
		"\x1b[2147483647Xa\x1b[2147483647I\x1b[2147483647Z\x1b[2147483647b\x1b[2147483647S\x1b[2147483647L\x1b[2147483647@\x1b[Hend": "end",
		"\x1b[1;2147483647r\x1b[999;1H\x1b[2L\x1b[3S\n\n\x1b[r\x1b[Hend":                                                             "end",
	} {
		if got := Screen([]byte(in), large); !strings.HasSuffix(got, want) {
			t.Errorf("%.20q: the screen ends with %q", in, got[max(0, len(got)-20):])
		}
	}
	if took := time.Since(began); took > 20*time.Second { // minutes without a bound
		t.Errorf("it took %v", took)
	}
}

func FuzzScreen(f *testing.F) {
	f.Add([]byte("\x1b[6n\x1b[?25l\x1b(0lqk"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		Screen(data, events.Size{Rows: 3, Cols: 7})
		Plain(data)
	})
}
