package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/replay/look"
	"github.com/yieldlog/yieldlog/replay/web"
)

var (
	//go:embed report.html
	page string
	//go:embed report.css
	style string
	//go:embed report.js
	script string
)

var htmlTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"short": look.Short, "bytes": look.Bytes, "duration": look.Duration, "count": look.Count,
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock": func(t time.Time) string { return t.Local().Format("15:04:05") },
	"day":   func(t time.Time) string { return t.Local().Format("Monday, 2 January 2006, 15:04 MST") },
}).Parse(page))

// HTML writes the report as one page that needs nothing else.
func (r *Report) HTML(w io.Writer) error {
	css, js := string(web.Asset("page.css"))+style, ""
	if r.playable() {
		css += string(web.Asset("asciinema-player.css"))
		js = string(web.Asset("asciinema-player.min.js")) + "\n" + script
	}
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; font-src data:; style-src " + hash(css) + ";"
	if js != "" {
		policy += " script-src " + hash(js) + " 'wasm-unsafe-eval'; connect-src data: blob:"
	}
	data := struct {
		*Report
		Policy string
		Style  template.CSS
		Script template.JS
	}{r, policy, template.CSS(css), template.JS(js)} //nolint:gosec // both are our own embedded files
	if err := htmlTemplate.Execute(w, data); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// hash is the source expression that lets exactly this text in.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (r *Report) playable() bool {
	for _, row := range r.Rows {
		if row.Call != nil && row.Call.Cast != "" {
			return true
		}
	}
	return false
}

// CastData is the recording for an attribute of the page.
func (c *Call) CastData() string { return strings.TrimSuffix(c.Cast, "\n") }
