package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/replay/look"
)

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// assets are the embedded files by their address, which carries the hash of
// their content: a browser keeps them for ever. They and the templates are made
// when a page is first served: a program that serves none starts faster.
var assets = sync.OnceValue(readAssets)

// assetNames are the addresses by file name.
var assetNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for addr, a := range assets() {
		names[a.name] = addr
	}
	return names
})

type asset struct {
	name, kind string
	data       []byte
}

func readAssets() map[string]asset {
	all := map[string]asset{}
	// The files are part of the program: reading them cannot fail.
	_ = fs.WalkDir(assetFiles, "assets", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := assetFiles.ReadFile(p)
		sum := sha256.Sum256(data)
		name := path.Base(p)
		kind := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}[path.Ext(p)]
		if kind == "" {
			kind = "text/plain"
		}
		all["/assets/"+hex.EncodeToString(sum[:6])+"/"+name] = asset{name, kind + "; charset=utf-8", data}
		return err
	})
	return all
}

func assetHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := assets()[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
		http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.data))
	})
}

// pages holds a template set for each page: they share everything but "body".
var pages = sync.OnceValue(func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/layout.html", "templates/row.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"now", "sessions", "session", "execution", "play", "problem"} {
		all[name] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, "templates/"+name+".html"))
	}
	return all
})

// render makes a template of a page.
func render(page, name string, f frame) ([]byte, error) {
	var b bytes.Buffer
	if err := pages()[page].ExecuteTemplate(&b, name, f); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", page, err)
	}
	return b.Bytes(), nil
}

var functions = template.FuncMap{
	"asset":    func(name string) string { return assetNames()[name] },
	"short":    look.Short,
	"bytes":    look.Bytes,
	"duration": look.Duration,
	"count":    look.Count,
	"clock":    clock,
	"stamp":    func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"full":     func(t time.Time) string { return t.Local().Format("Monday, 2 January 2006, 15:04:05.000 MST") },
	"since":    func(t, now time.Time) string { return look.Duration(now.Sub(t)) },
	"key":      key,
	"add":      func(a, b int) int { return a + b },
	"pct":      func(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) },
	"lines":    func(s []string) string { return strings.Join(s, "\n") },
	"trim":     func(s string) string { return strings.TrimRight(s, "\n") },
}

// key names an address in an id.
func key(address string) string {
	sum := sha256.Sum256([]byte(address))
	return hex.EncodeToString(sum[:6])
}

// clock is a moment for people: the time, and the day if it is not today.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.IsZero():
		return ""
	case t.YearDay() == now.YearDay() && t.Year() == now.Year():
		return t.Format("15:04:05")
	case t.Year() == now.Year():
		return t.Format("2 Jan 15:04:05")
	}
	return t.Format("2 Jan 2006 15:04")
}

// Asset is an embedded file, such as page.css or asciinema-player.min.js: what
// is looked at elsewhere looks the same.
func Asset(name string) []byte { return assets()[assetNames()[name]].data }
