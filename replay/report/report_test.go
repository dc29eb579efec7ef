package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/replay/chromium"
	"github.com/yieldlog/yieldlog/replay/look/looktest"
	"github.com/yieldlog/yieldlog/replay/web"
)

func made(t *testing.T, write func(*Report) func(*bytes.Buffer) error, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(r)(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func asHTML(t *testing.T, r *Report) string {
	t.Helper()
	return made(t, func(r *Report) func(*bytes.Buffer) error { return func(b *bytes.Buffer) error { return r.HTML(b) } }, r)
}

func asMarkdown(t *testing.T, r *Report) string {
	t.Helper()
	return made(t, func(r *Report) func(*bytes.Buffer) error { return func(b *bytes.Buffer) error { return r.Markdown(b) } }, r)
}

func TestReportTellsTheNight(t *testing.T) {
	l := looktest.Open(t)
	b, _, _ := looktest.Night(t, l)
	r, err := Make(t.Context(), l, b.Session, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	page := asHTML(t, r)
	for _, want := range []string{"What needs a look", "TestCheckout", "<svg", "Transcript", "Play the recording", "rm is not allowed", "(exit code 1)"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report has no %q", want)
		}
	}
	if strings.Index(page, "What needs a look") > strings.Index(page, "Transcript") {
		t.Error("what went wrong does not come first")
	}
	for _, outside := range []string{"src=\"http", "href=\"http", "url(http", "@import"} {
		if strings.Contains(page, outside) {
			t.Errorf("the report needs the network: %s", outside)
		}
	}
	md := asMarkdown(t, r)
	for _, want := range []string{"# Session", "| 12 | 1 | 1 | 1 |", "TestCheckout", "checkout_test.go:88"} {
		if !strings.Contains(md, want) {
			t.Errorf("the Markdown has no %q in\n%s", want, md)
		}
	}
	if _, err := Make(t.Context(), l, "NONE", time.Now()); !errors.Is(err, ErrNoSession) {
		t.Errorf("no session: %v", err)
	}
}

const hostile = "</script></style></pre><script>document.title='owned'</script>```\n````\x1b]0;owned\x07|<!--\u202e"

func TestReportIsNotFooled(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now())
	run := b.Start("/root/<script>", hostile, hostile)
	run.Out(hostile)
	b.Wait(time.Second)
	run.Exit(1)
	b.Sync()
	r, err := Make(t.Context(), l, b.Session, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	page := strings.ReplaceAll(asHTML(t, r), string(web.Asset("asciinema-player.min.js")), "")
	// A recording keeps what a terminal may show; it is data in an attribute.
	page = regexp.MustCompile(`data-cast="[^"]*"`).ReplaceAllString(page, "")
	if strings.Contains(page, "<script>document") || strings.Contains(page, "\x1b") || strings.Contains(page, "\u202e") {
		i := max(strings.Index(page, "\x1b"), strings.Index(page, "\u202e"), strings.Index(page, "<script>document"))
		t.Errorf("output became markup: %q", page[max(i-200, 0):i+40])
	}
	for line := range strings.Lines(asMarkdown(t, r)) {
		if strings.TrimSpace(line) == "````" {
			t.Error("output ended its block")
		}
	}
}

func TestReportOfAThousand(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-5*time.Hour))
	nasty := strings.Repeat("<&>'\"", 4_000) + "\n"
	for i := range 1_000 {
		run := b.Start("/root", "", fmt.Sprintf("go test ./package/number/%d -count=1", i))
		for range 4 {
			run.Out(nasty)
		}
		b.Wait(10 * time.Second)
		if i%3 == 0 {
			run.Yield()
		}
		run.Exit(i % 5 / 4)
	}
	b.Sync()
	r, err := Make(t.Context(), l, b.Session, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	page := asHTML(t, r)
	t.Logf("%d bytes", len(page))
	if len(page) >= 5_000_000 {
		t.Errorf("the report has %d bytes", len(page))
	}
	if md := asMarkdown(t, r); len(md) >= 5_000_000 {
		t.Errorf("the Markdown has %d bytes", len(md))
	}
}

// TestBrowserOpensTheReport opens the file with a real browser that has no
// network, and plays a recording.
func TestBrowserOpensTheReport(t *testing.T) {
	if _, err := chromium.Find(); err != nil {
		t.Skip("skipped: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l := looktest.Open(t)
	b, _, _ := looktest.Night(t, l)
	r, err := Make(ctx, l, b.Session, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(asHTML(t, r)), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := chromium.Start(ctx)
	if err != nil {
		t.Skip("skipped: the browser does not start here: ", err)
	}
	defer v.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\nit said: %v", err, v.Said())
		}
	}
	must(v.Set(ctx, chromium.Look{Width: 1200, Height: 900}))
	must(v.Call(ctx, "Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}, nil))
	must(v.Open(ctx, (&url.URL{Scheme: "file", Path: file}).String()))
	must(v.Until(ctx, `getComputedStyle(document.querySelector(".tiles")).display === "flex"`))
	picture(ctx, t, v, "report")
	must(v.Eval(ctx, `document.querySelector("button[data-cast]").click()`, nil))
	must(v.Until(ctx, `document.querySelector(".ap-player")`))
	for _, e := range v.Said() {
		if e.Kind == "error" || strings.Contains(e.Text, "Content Security Policy") {
			t.Errorf("the report said: %s", e.Text)
		}
	}
	must(v.Set(ctx, chromium.Look{Width: 1200, Height: 900, Print: true}))
	picture(ctx, t, v, "report-print")
}

// picture keeps what is seen where YIELDLOG_PICTURES says, if it does.
func picture(ctx context.Context, t *testing.T, v *chromium.Browser, name string) {
	t.Helper()
	dir := os.Getenv("YIELDLOG_PICTURES")
	if dir == "" {
		return
	}
	png, err := v.Picture(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
