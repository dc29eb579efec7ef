//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/creack/pty"
)

// TestQuiet holds commands to not asking the terminal anything: one that does
// not answer would make each of them wait.
func TestQuiet(t *testing.T) {
	c := exec.Command(binary, "version")
	c.Env = append(os.Environ(), "TERM=xterm-256color", "CI=")
	f, err := pty.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	said, _ := io.ReadAll(f) // a terminal that was closed is an error on Linux
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if bytes.ContainsRune(said, '\x1b') || !bytes.Contains(said, []byte("yieldlog")) {
		t.Errorf("it said %q", said)
	}
}
