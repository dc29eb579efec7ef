package main

import (
	"os"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/producers"
)

// TestConfigurationDocument compares docs/configuration.md with the settings
// that exist, and with their defaults.
func TestConfigurationDocument(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{} // the default by the name
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "\x00"), "|")
		if len(cells) > 3 && strings.HasPrefix(cells[1], " `YIELDLOG_") {
			name := strings.Trim(cells[1], " `")
			rows[name] = strings.ReplaceAll(strings.Trim(cells[2], " `"), "\x00", "|")
		}
	}
	for _, notOfTheConfig := range []string{"YIELDLOG_DIR", "YIELDLOG_HTTP_TOKEN"} {
		delete(rows, notOfTheConfig)
	}

	_, settings, warnings, err := producers.LoadConfig(func(string) (string, bool) { return "", false })
	if err != nil || len(warnings) > 0 {
		t.Fatalf("the defaults: %v, %q", err, warnings)
	}
	for _, s := range settings {
		row, ok := rows[s.Name]
		switch {
		case !ok:
			t.Errorf("%s is not documented", s.Name)
		case row != s.Value && s.Name != "YIELDLOG_DEFAULT_CWD":
			t.Errorf("%s is documented with the default %q; it is %q", s.Name, row, s.Value)
		}
		delete(rows, s.Name)
	}
	for name := range rows {
		t.Errorf("%s is documented, and does not exist", name)
	}
}
