package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/yieldlog/yieldlog"

// walls says what the packages below a folder may import of this module.
// Imports run one way:
//
//	cmd -> mcp -> producers, replay -> events/ledger, projections -> events
var walls = map[string][]string{
	"events":        {},
	"events/ledger": {"events"},
	"projections":   {"events"},
	"producers":     {"events", "events/ledger", "projections"},
	"replay":        {"events", "events/ledger", "projections"},
	"mcp":           {"events", "projections", "producers", "replay"},
	"guardian":      {},
	"bench":         {"events", "events/ledger"}, // to record what it opens
	"field":         {},
	"crash":         {}, // tests only
	"internal":      {}, // for tests
	"cmd":           {"events", "events/ledger", "projections", "producers", "replay", "mcp", "guardian"},
}

// keepers says which folder alone may import a library, and its tests too.
var keepers = map[string]string{
	"github.com/nats-io/":          "events/ledger",
	"github.com/synadia-io/":       "events/ledger",
	"github.com/mark3labs/mcp-go/": "mcp",
}

// pure are the folders whose packages do no I/O, and what they may not import.
var (
	pure      = []string{"events", "projections"}
	forbidden = []string{"os", "os/exec", "net", "net/http", "io/ioutil", "syscall", "log", "log/slog", "unsafe"}
)

// A source is one Go file: its folder below the module's root, and its imports.
type source struct {
	folder, file string
	imports      []string
	test, doc    bool
}

func TestArchitecture(t *testing.T) {
	sources := readSources(t, filepath.Join("..", ".."))
	documented := map[string]bool{}
	for _, s := range sources {
		checkLibraries(t, s)
		if !s.test {
			checkWalls(t, s)
			documented[s.folder] = documented[s.folder] || s.doc
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(documented)) {
		if !documented[folder] {
			t.Errorf("%s has no package documentation", folder)
		}
	}
}

func checkWalls(t *testing.T, s source) {
	wall, ok := wallOf(s.folder)
	if !ok {
		t.Errorf("%s stands behind no wall: add it to walls, with what it may import", s.folder)
		return
	}
	for _, imp := range s.imports {
		if slices.Contains(pure, wall) && slices.Contains(forbidden, imp) {
			t.Errorf("%s imports %s: %s does no I/O", s.file, imp, wall)
		}
		own, ok := strings.CutPrefix(imp, module+"/")
		if !ok {
			continue
		}
		to, _ := wallOf(own)
		if to != wall && !slices.Contains(walls[wall], to) {
			t.Errorf("%s imports %s: %s may not import %s", s.file, own, wall, to)
		}
	}
}

func checkLibraries(t *testing.T, s source) {
	for _, imp := range s.imports {
		for library, keeper := range keepers {
			if strings.HasPrefix(imp+"/", library) && !below(s.folder, keeper) {
				t.Errorf("%s imports %s: only %s may", s.file, imp, keeper)
			}
		}
	}
}

// wallOf is the longest wall that the folder stands behind.
func wallOf(folder string) (wall string, ok bool) {
	for w := range walls {
		if below(folder, w) && len(w) > len(wall) {
			wall, ok = w, true
		}
	}
	return wall, ok
}

func below(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

func readSources(t *testing.T, root string) []source {
	t.Helper()
	var sources []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "examples") {
			return filepath.SkipDir
		}
		if d.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		sources = append(sources, newSource(filepath.ToSlash(rel), f))
		return nil
	})
	if err != nil {
		t.Fatalf("reading the sources: %v", err)
	}
	return sources
}

func newSource(file string, f *ast.File) source {
	s := source{file: file, folder: path.Dir(file), test: strings.HasSuffix(file, "_test.go"), doc: f.Doc != nil}
	for _, imp := range f.Imports {
		// The parser has checked that it is a string.
		p, _ := strconv.Unquote(imp.Path.Value)
		s.imports = append(s.imports, p)
	}
	return s
}
