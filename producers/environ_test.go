package producers

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func toMap(t *testing.T, env []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if _, twice := m[name]; twice || !ok {
			t.Errorf("%q is there twice, or no variable", kv)
		}
		m[name] = value
	}
	return m
}

func TestM82_Environment(t *testing.T) {
	cfg := DefaultConfig()
	parent := []string{"PATH=/bin", "TERM=xterm", "BOTH=parent", "PWD=/old", "YIELDLOG_EXECUTION=outer", "YIELDLOG_GUARDIAN=g", "A_TOKEN=tok-11111", "PIN_KEY=123", "odd"}
	e := newEnvironment(&cfg, parent)
	got := toMap(t, e.of("01X", "/dir", map[string]string{"BOTH": "overlay", "PAGER": "less", "YIELDLOG_EXECUTION": "forged", "YIELDLOG_GUARDIAN": "forged"}))
	want := map[string]string{
		"PATH": "/bin", "BOTH": "overlay", "PWD": "/dir", "A_TOKEN": "tok-11111", "PIN_KEY": "123",
		"YIELDLOG_EXECUTION": "01X", "YIELDLOG_GUARDIAN": "g",
		"NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "COLORTERM": "",
		"PAGER": "less", "GIT_PAGER": "cat", "GH_PAGER": "cat",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := toMap(t, e.of("01Y", "/dir", nil)); got["BOTH"] != "parent" || got["PAGER"] != "cat" {
		t.Errorf("an overlay lasts: %v", got)
	}
	cfg.InheritEnv = true
	if got := toMap(t, newEnvironment(&cfg, parent).of("01X", "/dir", nil)); got["TERM"] != "xterm" || got["PAGER"] != "" {
		t.Errorf("not inherited: %v", got)
	}
}

func TestSecrets(t *testing.T) {
	cfg := DefaultConfig()
	e := newEnvironment(&cfg, []string{"A_TOKEN=tok-11111\n", "B_KEY=tok-11111", "SHORT_KEY=abc", "PLAIN=plain-value", "my_secret=lower-case"})
	if diff := cmp.Diff([]string{"tok-11111"}, e.secrets(nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"tok-11111-more", "tok-11111"}, e.secrets(map[string]string{"C_PASSWORD": "tok-11111-more", "D": "ddddddddddddddddddd"})); diff != "" {
		t.Error(diff)
	}
	cfg.RedactEnv = nil
	if got := newEnvironment(&cfg, []string{"A_TOKEN=tok-11111"}).secrets(map[string]string{"B_TOKEN": "tok-22222"}); len(got) != 0 {
		t.Errorf("%q with redaction off", got)
	}
	if diff := cmp.Diff([]string{"A", "B"}, names(map[string]string{"B": "1", "A": "2"})); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkEnvironment(b *testing.B) {
	cfg := DefaultConfig()
	var parent []string
	for i := range 60 {
		parent = append(parent, strings.Repeat("V", i+1)+"=some value of the usual length")
	}
	e := newEnvironment(&cfg, parent)
	for b.Loop() {
		e.of("01JDZZZZZZZZZZZZZZZZZZZZZZ", "/dir", nil)
	}
}
