package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

//go:generate go test . -run TestEventReference|TestSchemas|TestAsyncAPI -update

const schemaDir = "../../docs/schemas"

// TestSchemas holds docs/schemas to the Go types: one schema for each kind, and
// one for the line that events --json prints and that hooks read.
func TestSchemas(t *testing.T) {
	g := newSchemas(t)
	want := map[string]bool{"event.json": true}
	for _, b := range bodies {
		name := kindName(b) + ".json"
		want[name] = true
		checkFile(t, filepath.Join(schemaDir, name), g.schema(t, kindName(b), reflect.TypeOf(b)))
	}
	line := g.schema(t, "event", reflect.TypeFor[replay.EventLine]())
	checkFile(t, filepath.Join(schemaDir, "event.json"), line)
	files, err := os.ReadDir(schemaDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[f.Name()] {
			t.Errorf("docs/schemas/%s describes no kind", f.Name())
		}
	}
}

// TestSchemasTakeWhatIsStored validates the golden bytes of every kind.
func TestSchemasTakeWhatIsStored(t *testing.T) {
	for _, b := range bodies {
		t.Run(kindName(b), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("../../events/testdata/golden", kindName(b)))
			if err != nil {
				t.Fatal(err)
			}
			_, body, _ := strings.Cut(string(data), "\n\n")
			var v map[string]any
			if err := json.Unmarshal([]byte(body), &v); err != nil {
				t.Fatal(err)
			}
			s := readSchema(t, kindName(b))
			if err := s.Validate(v); err != nil {
				t.Error(err)
			}
			v["a_field_of_tomorrow"] = 1
			if err := s.Validate(v); err != nil {
				t.Errorf("a field that is new must pass: %v", err)
			}
		})
	}
}

func readSchema(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(schemaDir, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func kindName(b events.Body) string { return string(b.Class()) + "." + string(b.Kind()) }

// typeName is the Go type of a body.
func typeName(b events.Body) string { return reflect.TypeOf(b).Name() }

// schemas makes schemas from Go types, their comments and their constants.
type schemas struct {
	comments map[string]string
	options  *jsonschema.ForOptions
}

func newSchemas(t *testing.T) schemas {
	t.Helper()
	g := schemas{comments: map[string]string{}}
	words := map[string][]any{}
	for _, file := range []string{"../../events/body.go", "../../events/event.go", "../../replay/jsonlines.go"} {
		for name, c := range readComments(t, file) {
			g.comments[name] = c
		}
		for name, values := range readWords(t, file) {
			words[name] = append(words[name], values...)
		}
	}
	word := func(typ string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: words[typ]} }
	g.options = &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[events.Status]():      word("Status"),
		reflect.TypeFor[events.Termination](): word("Termination"),
		reflect.TypeFor[events.Outcome]():     word("Outcome"),
		reflect.TypeFor[events.MailKind]():    word("MailKind"),
		reflect.TypeFor[events.Class]():       word("Class"),
		reflect.TypeFor[time.Time]():          {Type: "string", Format: "date-time"},
	}}
	return g
}

// schema is the type's schema, as it is written.
func (g schemas) schema(t *testing.T, name string, typ reflect.Type) []byte {
	t.Helper()
	s, err := jsonschema.ForType(typ, g.options)
	if err != nil {
		t.Fatal(err)
	}
	s.Schema = "http://json-schema.org/draft-07/schema#"
	s.ID = "https://github.com/yieldlog/yieldlog/docs/schemas/" + name + ".json"
	s.Title = name
	s.Description = g.comments[typ.Name()]
	if s.Description != "" {
		s.Description = sentence(typ.Name(), s.Description)
	}
	g.mend(s, typ)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

// mend adds the comments, and lets readers meet fields that they do not know.
func (g schemas) mend(s *jsonschema.Schema, typ reflect.Type) {
	switch typ.Kind() {
	case reflect.Pointer:
		g.mend(s, typ.Elem())
	case reflect.Slice:
		s.Type, s.Types = "array", nil // a nil slice is left out
		g.mend(s.Items, typ.Elem())
	case reflect.Struct:
		if s.Properties == nil {
			return
		}
		s.AdditionalProperties = nil
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			p.Description = g.comments[typ.Name()+"."+f.Name]
			g.mend(p, f.Type)
			if strings.HasPrefix(opts, "omit") && len(p.Types) == 2 { // left out, never null
				p.Type, p.Types = p.Types[1], nil
			}
		}
	}
}

// readWords is the values of the file's typed string constants, by type.
func readWords(t *testing.T, file string) map[string][]any {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string][]any{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		typ, isName := v.Type.(*ast.Ident)
		lit, isLiteral := v.Values[0].(*ast.BasicLit)
		if isName && isLiteral && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value) // the parser has checked it
			words[typ.Name] = append(words[typ.Name], s)
		}
		return true
	})
	return words
}

// checkFile demands that the file is want, or writes it under -update.
func checkFile(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the code says (%v); run: go generate ./cmd/yieldlog", file, err)
	}
}
