package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/yieldlog/yieldlog/internal/realbinary"

	"github.com/rogpeppe/go-internal/testscript"
)

// binary is the real yieldlog, built once for the run.
var binary string

func TestMain(m *testing.M) {
	os.Exit(realbinary.Run(m, &binary))
}

// TestScript drives the real binary. Scripts wait on facts: `until` runs a
// command again until its output matches.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("YIELDLOG_DIR", filepath.Join(e.WorkDir, "state"))
			// The sync of a busy test machine's disk is not what is tested here.
			e.Setenv("YIELDLOG_SYNC", "relaxed")
			return nil
		},
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"until": until},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
