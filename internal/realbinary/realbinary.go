// Package realbinary builds yieldlog for the packages whose tests drive the real
// program.
package realbinary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Run builds yieldlog into a temporary directory, puts its path into binary,
// runs the tests, and returns the exit code for [os.Exit].
func Run(m *testing.M, binary *string) int {
	dir, err := os.MkdirTemp("", "yieldlog-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*binary = filepath.Join(dir, "yieldlog")
	build := exec.Command("go", "build", "-o", *binary, "github.com/yieldlog/yieldlog/cmd/yieldlog")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building yieldlog:", err)
		return 1
	}
	return m.Run()
}
