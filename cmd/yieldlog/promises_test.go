package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryPromiseHasATest looks for the promises about session-owned
// executions, M-01 to M-146, in the names of tests and scripts, such as
// TestM49_M50_Name.
func TestEveryPromiseHasATest(t *testing.T) {
	unused := []int{96, 97, 98, 99, 132, 133}
	function := regexp.MustCompile(`(?m)^func Test((?:M\d+b?_?)+)`)
	script := regexp.MustCompile(`^((?:M\d+b?_)+).*\.txtar$`)
	number := regexp.MustCompile(`M(\d+b?)`)
	tested := map[string]bool{}
	note := func(names [][]string) {
		for _, name := range names {
			for _, n := range number.FindAllStringSubmatch(name[1], -1) {
				tested[n[1]] = true
			}
		}
	}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			source, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading a test: %w", err)
			}
			note(function.FindAllStringSubmatch(string(source), -1))
		default:
			note(script.FindAllStringSubmatch(d.Name(), -1))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	promises := []string{"49b", "51b"}
	for n := 1; n <= 146; n++ {
		if !slices.Contains(unused, n) {
			promises = append(promises, fmt.Sprintf("%02d", n))
		}
	}
	for _, p := range promises {
		if !tested[p] {
			t.Errorf("no test is named after M-%s", p)
		}
	}
}
