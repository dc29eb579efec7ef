//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCollectsSeldom holds that small calls make little garbage, and that little
// garbage is not collected all the time: both once made every other call late.
func TestCollectsSeldom(t *testing.T) {
	log := filepath.Join(t.TempDir(), "stderr")
	server := exec.Command("sh", "-c", `exec "$0" mcp 2>"$1"`, binary, log)
	server.Env = append(withoutSettings(os.Environ()), "YIELDLOG_DIR="+t.TempDir(), "YIELDLOG_SYNC=relaxed", "GODEBUG=gctrace=1", "GOGC=")
	s, err := greet(server)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.call("exec", map[string]any{"command": "seq 1 1000", "side_effects": []string{"NONE"}})
	const calls = 2000
	for range calls {
		if err == nil {
			_, err = s.call("wait", map[string]any{"process_id": a.ProcessID})
		}
	}
	if err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	said, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(said, []byte("\ngc ")); n == 0 || n > calls/50 {
		t.Errorf("it collected %d times in %d calls", n, calls)
	}
}
