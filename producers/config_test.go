package producers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func load(t *testing.T, vars map[string]string) (Config, []Setting, []string) {
	t.Helper()
	cfg, settings, warnings, err := LoadConfig(lookup(vars))
	if err != nil {
		t.Fatal(err)
	}
	return cfg, settings, warnings
}

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func TestM61_Defaults(t *testing.T) {
	cfg, settings, warnings := load(t, nil)
	if len(warnings) != 0 {
		t.Error(warnings)
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.DefaultCwd != cwd || cfg.MaxOutputBytes != 20000 || cfg.MaxProcesses != 50 || cfg.OutputLimit != 64<<20 ||
		cfg.DefaultYield != 5*time.Second || cfg.MaxYield != 5*time.Minute || cfg.DefaultTimeout != 0 ||
		cfg.StallTimeout != 0 || cfg.NoLanes || cfg.NoMailbox || cfg.LeaveDescendants ||
		cfg.AllowBackground || cfg.InheritEnv || cfg.RelaxedSync || cfg.Deny != nil || cfg.Allow != nil || cfg.AllowedCwds != nil {
		t.Errorf("%+v", cfg)
	}
	if len(settings) != 23 {
		t.Errorf("%d settings", len(settings))
	}
	for _, s := range settings {
		if s.Source != "default" || !strings.HasPrefix(s.Name, "YIELDLOG_") {
			t.Errorf("%+v", s)
		}
	}
}

func TestNamesOfSettings(t *testing.T) {
	cfg, settings, _ := load(t, map[string]string{
		"YIELDLOG_MAX_PROCESSES": "7", "YIELDSHELL_MAX_PROCESSES": "8",
		"YIELDLOG_MAX_OUTPUT_BYTES": "", "YIELDSHELL_MAX_OUTPUT_BYTES": "500",
		"MCP_YIELDSHELL_BLOCKED_SIDE_EFFECTS": " DELETES_FILES , , OTHER,",
		"YIELDSHELL_DEFAULT_YIELD_MS":         "900000", "YIELDSHELL_MAX_YIELD_MS": " 600000 ",
		"YIELDLOG_LANES": "off", "YIELDLOG_SHELL": "sh",
	})
	if cfg.MaxProcesses != 7 || cfg.MaxOutputBytes != 500 || cfg.DefaultYield != 10*time.Minute || !cfg.NoLanes {
		t.Errorf("%+v", cfg)
	}
	if diff := cmp.Diff([]string{"DELETES_FILES", "OTHER"}, cfg.Blocked); diff != "" {
		t.Error(diff)
	}
	if len(cfg.Shell) != 2 || !filepath.IsAbs(cfg.Shell[0]) || cfg.Shell[1] != "-c" {
		t.Errorf("shell %q", cfg.Shell)
	}
	source := map[string]string{}
	for _, s := range settings {
		source[s.Name] = s.Source
	}
	for name, want := range map[string]string{
		"YIELDLOG_MAX_PROCESSES":        "YIELDLOG_MAX_PROCESSES",
		"YIELDLOG_MAX_OUTPUT_BYTES":     "YIELDSHELL_MAX_OUTPUT_BYTES",
		"YIELDLOG_BLOCKED_SIDE_EFFECTS": "MCP_YIELDSHELL_BLOCKED_SIDE_EFFECTS",
		"YIELDLOG_SYNC":                 "default",
	} {
		if source[name] != want {
			t.Errorf("%s comes from %s, not %s", name, source[name], want)
		}
	}
}

func TestBlocklist(t *testing.T) {
	for value, want := range map[string]int{"": 5, " ": 5, ",": 0, " , ,": 0, "NONE": 1} {
		cfg, _, warnings := load(t, map[string]string{"MCP_YIELDSHELL_BLOCKED_SIDE_EFFECTS": value})
		if len(cfg.Blocked) != want {
			t.Errorf("%q blocks %q", value, cfg.Blocked)
		}
		if said := len(warnings) == 1; said != (want != 1) {
			t.Errorf("%q: warnings %q", value, warnings)
		}
		for _, w := range warnings {
			if !strings.HasPrefix(w, "MCP_YIELDSHELL_BLOCKED_SIDE_EFFECTS ") {
				t.Errorf("%q: the warning does not name the variable: %q", value, w)
			}
		}
	}
}

func TestBadNumbersFallBack(t *testing.T) {
	cfg, _, warnings := load(t, map[string]string{
		"YIELDSHELL_MAX_PROCESSES": "many", "YIELDLOG_DEFAULT_YIELD_MS": "-1", "YIELDLOG_MAX_OUTPUT_BYTES": "0",
		"YIELDLOG_DEFAULT_TIMEOUT_MS": "9223372036854775807", "YIELDLOG_MAX_BYTES": "1000",
	})
	if cfg.MaxBytes != 10<<30 || cfg.MaxProcesses != 50 || cfg.DefaultYield != 5*time.Second || cfg.MaxOutputBytes != 20000 || cfg.DefaultTimeout <= 0 {
		t.Errorf("%+v", cfg)
	}
	text := strings.Join(warnings, "\n")
	for _, name := range []string{"YIELDSHELL_MAX_PROCESSES", "YIELDLOG_DEFAULT_YIELD_MS", "YIELDLOG_MAX_OUTPUT_BYTES", "YIELDLOG_MAX_BYTES"} {
		if !strings.Contains(text, name) {
			t.Errorf("no warning names %s: %s", name, text)
		}
	}
}

func TestInvalidSettingsStopTheStart(t *testing.T) {
	for name, value := range map[string]string{
		"YIELDSHELL_DENY_COMMAND_REGEX":       "(unclosed",
		"YIELDSHELL_ALLOW_COMMAND_REGEX":      "(?<=x)y",
		"YIELDSHELL_REDACT_ENV_REGEX":         `(a)\1`,
		"MCP_YIELDSHELL_BLOCKED_SIDE_EFFECTS": "DELETES_FILES,BREAKS_OPERATING_SYSTEM",
		"YIELDLOG_LANES":                      "maybe",
		"YIELDLOG_SHELL":                      "no-such-shell-anywhere",
		"YIELDLOG_ALLOWED_CWDS":               ":",
	} {
		_, _, _, err := LoadConfig(lookup(map[string]string{name: value}))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
	_, _, _, err := LoadConfig(lookup(map[string]string{"MCP_YIELDSHELL_BLOCKED_SIDE_EFFECTS": "deletes_files"}))
	if err == nil || !strings.Contains(err.Error(), "deletes_files") {
		t.Errorf("the bad category is not named: %v", err)
	}
}

func TestM103_Delays(t *testing.T) {
	cfg := DefaultConfig()
	for _, c := range []struct{ in, want time.Duration }{
		{DefaultDelay, 5 * time.Second}, {0, 0}, {time.Second, time.Second}, {time.Hour, 5 * time.Minute},
	} {
		if got, _ := cfg.delays(Request{Yield: c.in}); got != c.want {
			t.Errorf("yield %s: %s, want %s", c.in, got, c.want)
		}
	}
	cfg.DefaultTimeout = time.Minute
	for in, want := range map[time.Duration]time.Duration{DefaultDelay: time.Minute, 0: 0, time.Hour: time.Hour} {
		if _, got := cfg.delays(Request{Timeout: in}); got != want {
			t.Errorf("timeout %s: %s, want %s", in, got, want)
		}
	}
}
