package producers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func testRequest(command string) Request {
	return Request{Command: command, SideEffects: []string{"NONE"}}
}

// wantRefusal checks that the request is refused for the reason, with all of
// the words in the message.
func wantRefusal(t *testing.T, c *Config, r Request, reason string, words ...string) string {
	t.Helper()
	_, no := c.check(r, 0)
	if no == nil {
		t.Errorf("%+v is not refused", r)
		return ""
	}
	if no.Reason != reason {
		t.Errorf("reason %s, want %s (%s)", no.Reason, reason, no.Message)
	}
	for _, w := range words {
		if !strings.Contains(no.Message, w) {
			t.Errorf("%q does not say %q", no.Message, w)
		}
	}
	return no.Message
}

func TestSideEffects(t *testing.T) {
	cfg := DefaultConfig()
	if len(SideEffects) != 21 || !slices.IsSorted(SideEffects) {
		t.Errorf("%d categories, sorted %t", len(SideEffects), slices.IsSorted(SideEffects))
	}
	r := testRequest("true")
	for _, e := range SideEffects {
		r.SideEffects = []string{e}
		_, no := cfg.check(r, 0)
		if blocked := slices.Contains(defaultBlocked, e); (no != nil) != blocked {
			t.Errorf("%s is blocked: %t", e, !blocked)
		}
	}
	r.SideEffects = []string{"NONE", "NONE"}
	if _, no := cfg.check(r, 0); no != nil || !r.reads() {
		t.Errorf("NONE twice: %+v, reads %t", no, r.reads())
	}
	for _, list := range [][]string{nil, {}, {"none"}, {"NONE", "OTHER"}, {"OTHER", "NONE"}, {""}} {
		r.SideEffects = list
		wantRefusal(t, &cfg, r, "side_effects")
	}
}

func TestBlockedMessage(t *testing.T) {
	cfg := DefaultConfig()
	r := testRequest("true")
	r.SideEffects = []string{"RUNS_INLINE_CODE", "DELETES_FILES", "MODIFIES_OS_SETTINGS"}
	text := wantRefusal(t, &cfg, r, "side_effects", "RUNS_INLINE_CODE", "MODIFIES_OS_SETTINGS",
		"stopped by policy before the process started", "Safer next action for RUNS_INLINE_CODE: put the code into a reviewable file")
	if strings.Contains(text, "DELETES_FILES") {
		t.Errorf("%q names an allowed category", text)
	}
	seen := map[string]bool{}
	for _, e := range defaultBlocked {
		r.SideEffects = []string{e}
		seen[strings.ReplaceAll(wantRefusal(t, &cfg, r, "side_effects"), e, "")] = true
	}
	if len(seen) != len(defaultBlocked) {
		t.Error("two categories share their advice")
	}
	cfg.Blocked = []string{"OTHER"}
	r.SideEffects = []string{"OTHER"}
	wantRefusal(t, &cfg, r, "side_effects", "OTHER", otherAction)
}

func TestOrderOfChecks(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Deny = regexp.MustCompile("sleep")
	cfg.MaxProcesses = 1
	r := Request{Command: "sleep 1 &", Cwd: "/missing", SideEffects: []string{"RUNS_INLINE_CODE"}}
	reason := func() string {
		if _, no := cfg.check(r, 1); no != nil {
			return no.Reason
		}
		return ""
	}
	var got []string
	got = append(got, reason())
	r.SideEffects = []string{"NONE"}
	got = append(got, reason())
	r.Command = "sleep 1"
	got = append(got, reason())
	r.Cwd = ""
	got = append(got, reason())
	r.Command = "true"
	got = append(got, reason())
	cfg.MaxProcesses = 2
	got = append(got, reason())
	if want := []string{"side_effects", "background", "cwd", "command", "limit", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestM06_CommandPolicy(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Deny = regexp.MustCompile(`rm\s+-rf`)
	cfg.Allow = regexp.MustCompile(`^(echo|rm) `)
	wantRefusal(t, &cfg, testRequest("echo x; rm   -rf /nowhere"), "command", "denied")
	wantRefusal(t, &cfg, testRequest("ls"), "command", "allowed")
	if _, no := cfg.check(testRequest("echo x"), 0); no != nil {
		t.Error(no.Message)
	}
	cfg = DefaultConfig()
	wantRefusal(t, &cfg, testRequest("a & b"), "background", "yield_ms", "&")
	cfg.AllowBackground = true
	if _, no := cfg.check(testRequest("a & b"), 0); no != nil {
		t.Error(no.Message)
	}
}

func TestTextsThatNoProcessTakes(t *testing.T) {
	cfg := DefaultConfig()
	wantRefusal(t, &cfg, testRequest("echo \x00"), "command", "NUL")
	wantRefusal(t, &cfg, testRequest(strings.Repeat("x", 128<<10)), "command", "too long", "131071")
	if _, no := cfg.check(testRequest(strings.Repeat("x", 128<<10-1)), 0); no != nil {
		t.Error(no.Message)
	}
	for _, env := range []map[string]string{{"": "x"}, {"A=B": "x"}, {"A": "\x00"}, {"A": strings.Repeat("x", 128<<10)}} {
		r := testRequest("true")
		r.Env = env
		wantRefusal(t, &cfg, r, "command")
	}
}

func TestWorkingDirectories(t *testing.T) {
	top := t.TempDir()
	dir := func(name string) string {
		d := filepath.Join(top, name)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		return d
	}
	root, other, evil, deep := dir("root"), dir("other"), dir("root-evil"), dir("root/sub/deep")
	dir("root/..hidden")
	link := filepath.Join(root, "link")
	if err := os.Symlink(other, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	alias := filepath.Join(top, "alias")
	if err := os.Symlink(root, alias); err != nil {
		t.Fatal(err)
	}
	cfg, _, warnings := load(t, map[string]string{
		"YIELDSHELL_ALLOWED_CWDS": alias + string(os.PathListSeparator) + filepath.Join(top, "missing"),
		"YIELDSHELL_DEFAULT_CWD":  root,
	})
	if len(warnings) != 1 {
		t.Errorf("warnings %q", warnings)
	}
	for _, d := range []string{"", ".", "sub", root, root + "/", deep, deep + "/..", root + "/..hidden", alias, alias + "/sub"} {
		if _, no := cfg.check(Request{Command: "true", SideEffects: []string{"NONE"}, Cwd: d}, 0); no != nil {
			t.Errorf("%q: %s", d, no.Message)
		}
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := cfg.workdir(Request{Cwd: alias + "/sub"}); got != filepath.Join(real, "sub") {
		t.Errorf("the directory is %s, not the resolved one", got)
	}
	// Where nothing is checked, too, the system goes through the link first.
	open := DefaultConfig()
	if got, no := open.workdir(Request{Cwd: link + "/.."}); no != nil || got != filepath.Dir(real) {
		t.Errorf("the directory behind a link is %s (%v), not %s", got, no, filepath.Dir(real))
	}
	for _, d := range []string{"..", "/", top, other, evil, link, link + "/..", root + "/../other", root + "/x/../../other", file, filepath.Join(top, "missing"), "x\x00"} {
		r := testRequest("true")
		r.Cwd = d
		wantRefusal(t, &cfg, r, "cwd")
	}
}

func TestDeletedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	cfg := DefaultConfig()
	cfg.DefaultCwd = dir
	wantRefusal(t, &cfg, testRequest("true"), "cwd", dir, "does not exist")
	r := testRequest("true")
	r.Cwd = os.TempDir()
	if _, no := cfg.check(r, 0); no != nil {
		t.Error(no.Message)
	}
}
