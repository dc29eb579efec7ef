package main

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestDemo plays the demo with the real binary, finds its story whole, its
// temporary directory gone, and the same story in the README.
func TestDemo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its commands are for a POSIX shell")
	}
	tmp := t.TempDir()
	demo := exec.Command(binary, "demo")
	demo.Env = append(os.Environ(), "TMPDIR="+tmp)
	demo.Stderr = os.Stderr
	data, err := demo.Output()
	out := string(data)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`-> completed, exit code 0`, `-> backgrounded, with the handle`, `step 5`,
		`the server is gone`, `nothing is orphaned`, `(?m)^   \w+ .* lost .* sleep 600$`,
		`session lost`, `0 findings`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the demo does not say %q:\n%s", want, out)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v behind (%v)", left, err)
	}

	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, title := range regexp.MustCompile(`(?m)^\d\. .*$`).FindAllString(out, -1) {
		if !strings.Contains(string(readme), "\n"+title+"\n") {
			t.Errorf("the README's demo has no %q", title)
		}
	}
}
