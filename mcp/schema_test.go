package mcp

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestToolsListIsGolden pins what clients see. The whole list stays small: it is
// in every conversation.
func TestToolsListIsGolden(t *testing.T) {
	c := serve(t, liveServer(t, nil))
	c.send(request(1, "tools/list", `{}`))
	result := c.next().Result
	if len(result) >= 12_000 {
		t.Errorf("tools/list has %d bytes", len(result))
	}
	var got bytes.Buffer
	if err := json.Indent(&got, result, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	golden := filepath.Join("testdata", "tools.json")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("tools/list differs from %s (-update rewrites it):\n%s", golden, diff)
	}
}

func TestSideEffectsAreSorted(t *testing.T) {
	for _, p := range (&Server{}).execTool().params {
		if p.name == "side_effects" && (len(p.enum) != 21 || !slices.IsSorted(p.enum)) {
			t.Errorf("the categories are %v", p.enum)
		}
	}
}

// A list of types is legal JSON Schema, and more than some clients take.
func TestSchemasNameOneType(t *testing.T) {
	var check func(at string, v any)
	check = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if list, ok := v["type"].([]any); ok {
				t.Errorf("%s has the types %v", at, list)
			}
			for name, inner := range v {
				check(at+"."+name, inner)
			}
		case []any:
			for _, inner := range v {
				check(at, inner)
			}
		}
	}
	c := serve(t, liveServer(t, nil))
	c.send(request(1, "tools/list", `{}`))
	var list any
	if err := json.Unmarshal(c.next().Result, &list); err != nil {
		t.Fatal(err)
	}
	check("tools/list", list)
}
