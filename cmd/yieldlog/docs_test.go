package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

var update = flag.Bool("update", false, "write the generated parts of the documentation")

// nested are the types that bodies are made of.
var nested = []any{events.Size{}, events.StreamSum{}, events.Descendant{}}

func TestEventReference(t *testing.T) {
	comments := readComments(t, "../../events/body.go")
	var b strings.Builder
	for _, body := range bodies {
		typ := reflect.TypeOf(body)
		fmt.Fprintf(&b, "\n### %s.%s\n\n", body.Class(), body.Kind())
		writeType(&b, typ, comments)
	}
	b.WriteString("\n### output.stdout, output.stderr, output.tty\n\nThe payload is the bytes.\n")
	for _, v := range nested {
		typ := reflect.TypeOf(v)
		fmt.Fprintf(&b, "\n### The object %s\n\n", typ.Name())
		writeType(&b, typ, comments)
	}
	checkGenerated(t, "../../docs/events.md", "<!-- kinds:", b.String())
}

func writeType(b *strings.Builder, typ reflect.Type, comments map[string]string) {
	if c := comments[typ.Name()]; c != "" {
		fmt.Fprintf(b, "%s\n\n", sentence(typ.Name(), c))
	}
	b.WriteString("| field | type | meaning |\n| --- | --- | --- |\n")
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		kind := jsonType(f.Type)
		if strings.HasPrefix(opts, "omit") {
			kind = strings.TrimSuffix(kind, " or null") + ", optional"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, kind, comments[typ.Name()+"."+f.Name])
	}
}

// sentence turns "Opened starts a session." into "Starts a session."
func sentence(name, doc string) string {
	doc = strings.TrimPrefix(doc, name+" ")
	return strings.ToUpper(doc[:1]) + doc[1:]
}

func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem()) + " or null"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array of " + jsonType(t.Elem())
	case reflect.Map:
		return "object of " + jsonType(t.Elem())
	case reflect.Struct:
		if t.PkgPath() == "time" {
			return "time"
		}
		return t.Name()
	default:
		return "integer"
	}
}

// readComments is the comments of the file's types and of their fields, keyed
// "Type" and "Type.Field", each on one line.
func readComments(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, decl := range f.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			typ, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			comments[typ.Name.Name] = joinLines(gen.Doc)
			if s, ok := typ.Type.(*ast.StructType); ok {
				fieldComments(comments, typ.Name.Name, s)
			}
		}
	}
	return comments
}

// fieldComments adds the fields' comments. A comment that names several fields
// stands above the first of them.
func fieldComments(comments map[string]string, typ string, s *ast.StructType) {
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			comments[typ+"."+name.Name] = joinLines(field.Doc)
		}
	}
}

// docLink is a link of a Go comment, unlike the beginning of an interval.
var docLink = regexp.MustCompile(`\[([\w.]+)\]`)

func joinLines(g *ast.CommentGroup) string {
	text := docLink.ReplaceAllString(strings.Join(strings.Fields(g.Text()), " "), "$1")
	return strings.ReplaceAll(text, "|", "\\|")
}

// checkGenerated demands that everything below the line that starts with
// marker is want, or writes it there under -update.
func checkGenerated(t *testing.T, file, marker, want string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(data), marker)
	if at < 0 {
		t.Fatalf("%s has no line %q", file, marker)
	}
	head, tail, _ := strings.Cut(string(data)[at:], "\n")
	if tail == want {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says; run: go test ./cmd/yieldlog -run '%s' -update", file, t.Name())
	}
	if err := os.WriteFile(file, []byte(string(data)[:at]+head+"\n"+want), 0o644); err != nil {
		t.Fatal(err)
	}
}
