package look

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCount(t *testing.T) {
	for want, got := range map[string]string{"1 match": Count(1, "match"), "5 matches": Count(5, "match"), "0 commands": Count(0, "command")} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestTextIsHarmless(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":     {"hello\nworld\n", "hello\nworld\n"},
		"colour":    {"\x1b[31mred\x1b[0m", "red"},
		"title":     {"a\x1b]0;owned\x07b", "ab"},
		"link":      {"\x1b]8;;javascript:alert(1)\x1b\\x\x1b]8;;\x1b\\", "x"},
		"clipboard": {"\x1b]52;c;ZXZpbA==\x07ok", "ok"},
		"device":    {"\x1bP+q544e\x1b\\ok", "ok"},
		"progress":  {"10%\r50%\r100%\ndone", "100%\ndone"},
		"dos":       {"a\r\nb\r\n", "a\nb\n"},
		"overwrite": {"b\bbo\bol", "bol"},
		"bell":      {"a\x07b\x00", "a\u2407b\u2400"},
		"bidi":      {"a\u202eb", `a\u202eb`},
		"invalid":   {"a\xff\xfeb", "a\uFFFDb"},
		"markup":    {"<script>alert(1)</script>", "<script>alert(1)</script>"},
		"umlaut":    {"größer 👩‍💻", "größer 👩‍💻"},
	} {
		if got := Text([]byte(c.in)); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("\x1b[2J\x1b]0;x\x07\x9b31m\xc2\x9bx\r\n\b\b"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := Text(in)
		if !utf8.ValidString(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		for _, r := range got {
			if r != '\n' && r != '\t' && (r < ' ' || (r >= 0x7f && r < 0xa0)) {
				t.Fatalf("the control character %q is left in %q", r, got)
			}
		}
	})
}

func TestLongLineIsCut(t *testing.T) {
	got := Text([]byte(strings.Repeat("x", 10_000)))
	if len(got) > 2100 || !strings.Contains(got, "8000 more characters") {
		t.Errorf("%d bytes: %q", len(got), got[max(0, len(got)-40):])
	}
}

func TestLastLines(t *testing.T) {
	if got := LastLines("a\nb\n\nc\n\n", 2); strings.Join(got, ",") != "b,c" {
		t.Errorf("%q", got)
	}
}
