package web

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/replay/chromium"
	"github.com/yieldlog/yieldlog/replay/look/looktest"
)

var pictures = flag.String("pictures", "", "write what the browser tests see into this directory")

//go:embed testdata/axe.min.js
var axe string

// patienceOfBrowser bounds the wait for one thing to show. It is no measure of
// speed: the machine may be busy.
const patienceOfBrowser = 2 * time.Minute

// tab is a real browser that looks at a page.
type tab struct {
	*chromium.Browser
	t   *testing.T
	ctx context.Context
}

// browse opens the page in a real browser, or skips the test.
func browse(t *testing.T, s *Server) *tab {
	t.Helper()
	ctx := t.Context()
	if _, err := chromium.Find(); err != nil {
		t.Skip("skipped: ", err)
	}
	b, err := chromium.Start(ctx)
	if err != nil {
		t.Skip("skipped: the browser does not start here: ", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("closing the browser: %v", err)
		}
	})
	v := &tab{Browser: b, t: t, ctx: ctx}
	v.must(b.Set(ctx, chromium.Look{Width: 1280, Height: 860}))
	v.must(b.Open(ctx, s.Link()))
	v.until(`window.htmx && !location.search.includes("token")`)
	return v
}

func (v *tab) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *tab) until(expression string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, patienceOfBrowser)
	defer cancel()
	if err := v.Until(ctx, expression); err != nil {
		var page string
		_ = v.Eval(v.ctx, "location.href + '\\n' + document.getElementById('main').outerHTML", &page)
		v.t.Fatalf("%v\nthe page:\n%s\nit said: %v", err, page, v.Said())
	}
}

func (v *tab) run(expression string) {
	v.t.Helper()
	v.must(v.Eval(v.ctx, expression, nil))
}

// picture keeps what is seen, if somebody wants it.
func (v *tab) picture(name string) {
	v.t.Helper()
	if *pictures == "" {
		return
	}
	png, err := v.Picture(v.ctx)
	v.must(err)
	v.must(os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644))
}

// clean fails if the page threw, or broke its own policy.
func (v *tab) clean() {
	v.t.Helper()
	for _, e := range v.Said() {
		if e.Kind == "error" || strings.Contains(e.Text, "Content Security Policy") {
			v.t.Errorf("the page said: %s", e.Text)
		}
	}
}

// accessible runs axe-core on what is seen.
func (v *tab) accessible(name string) {
	v.t.Helper()
	v.run(axe + "; undefined")
	var raw string
	v.must(v.Eval(v.ctx, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + " " + n.failureSummary)}))))`, &raw))
	var violations []struct {
		ID, Help string
		Nodes    []string
	}
	v.must(json.Unmarshal([]byte(raw), &violations))
	for _, x := range violations {
		v.t.Errorf("%s: %s (%s): %s", name, x.Help, x.ID, strings.Join(x.Nodes, "\n  "))
	}
}

func TestBrowserSeesAndSteers(t *testing.T) {
	l := looktest.Open(t)
	b, failed, running := looktest.Night(t, l)
	stopped := make(chan string, 1)
	s := serve(t, Options{Ledger: l, Stop: recordStop(stopped)})
	v := browse(t, s)
	v.until(`document.querySelector(".panel .row")`)
	v.picture("now")

	// The inspector opens in place, by the keyboard, and there is one.
	v.must(v.Press(v.ctx, "j"))
	v.until(`document.activeElement.classList.contains("line")`)
	v.run(`document.getElementById("a-` + running.ID + `").focus()`)
	v.must(v.Press(v.ctx, "Enter"))
	v.until(`document.querySelector("#i-` + running.ID + ` .output")`)
	v.picture("inspector")
	v.run(`document.getElementById("a-` + failed.ID + `").click()`)
	v.until(`document.querySelectorAll(".inspector").length === 1 && document.querySelector("#i-` + failed.ID + `")`)
	v.must(v.Press(v.ctx, "Escape"))
	v.until(`document.querySelectorAll(".inspector").length === 0`)

	// Its original entry is a named action away, also when it is far back.
	v.run(`document.getElementById("a-` + failed.ID + `").click()`)
	v.until(`document.querySelector("#origin-` + failed.ID + `")`)
	v.must(v.Press(v.ctx, "t"))
	v.until(`location.pathname === "/s/` + b.Session + `" && document.getElementById("r-` + failed.ID + `").getBoundingClientRect().top < innerHeight`)
	v.run(`history.back()`)
	v.until(`location.pathname === "/" && document.querySelector("#i-` + failed.ID + `")`)

	// What happens comes by itself, and the open inspector takes it in.
	v.run(`document.getElementById("a-` + running.ID + `").click()`)
	v.until(`document.querySelector("#i-` + running.ID + `")`)
	running.Out("something new\n")
	v.until(`document.querySelector("#i-` + running.ID + ` .output").textContent.includes("something new")`)

	// Stop is a button, and asks the session.
	v.run(`document.querySelector("#r-` + running.ID + ` button.stop").click()`)
	select {
	case got := <-stopped:
		if want := b.Session + " /root " + running.ID; got != want {
			t.Errorf("stopped %q, not %q", got, want)
		}
	case <-time.After(patienceOfBrowser):
		t.Fatal("the stop did not come")
	}
	running.Stop()
	running.Mail("stopped")
	b.Sync()
	v.until(`document.querySelector("#i-` + running.ID + `") && document.querySelector("#r-` + running.ID + `.is-stopped")`)
	v.until(`document.querySelector("#said").textContent.includes("stopped")`)

	// The slider goes back, and back to now.
	v.run(`(() => { const s = document.getElementById("at"); s.focus(); s.value = 20; s.dispatchEvent(new Event("input", {bubbles: true})) })()`)
	v.until(`location.search.includes("at=20") && document.querySelector(".moment.past")`)
	v.until(`!document.querySelector("[sse-connect]")`)
	v.picture("past")
	v.run(`document.querySelector(".moment .button").click()`)
	v.until(`!location.search.includes("at=") && document.querySelector("[sse-connect]")`)
	v.clean()
}

func TestBrowserPlaysARecording(t *testing.T) {
	l := looktest.Open(t)
	_, failed, _ := looktest.Night(t, l)
	v := browse(t, serve(t, Options{Ledger: l}))
	v.run(`location.href = "/x/` + failed.ID + `/play"`)
	v.until(`document.querySelector(".ap-player")`)
	v.run(`document.querySelector(".ap-overlay-start, .ap-playback-button").click()`)
	v.until(`document.querySelector(".ap-term").textContent.includes("TestCheckout") || document.querySelector(".ap-player canvas")`)
	v.picture("player")
	v.clean()
}

// TestBrowserIsNotFooled shows hostile output to a real browser.
func TestBrowserIsNotFooled(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now())
	r := b.Start("/root/<b>", hostile, "echo "+hostile)
	r.Out(hostile + "\n")
	b.Wait(time.Second)
	r.Exit(1)
	b.Sync()
	v := browse(t, serve(t, Options{Ledger: l}))
	for _, path := range []string{"/?open=" + r.ID, "/s/" + b.Session, "/x/" + r.ID, "/x/" + r.ID + "/play"} {
		v.run(`location.href = "` + path + `"`)
		v.until(`location.pathname + location.search === "` + path + `" && document.readyState === "complete" && window.htmx`)
		v.until(`document.title.includes("yieldlog") && !document.querySelector("img, main script, iframe")`)
		if strings.HasSuffix(path, "/play") {
			v.until(`document.querySelector(".ap-player")`)
		}
		v.clean()
	}
}

func TestBrowserFindsItAccessible(t *testing.T) {
	l := looktest.Open(t)
	b, failed, running := looktest.Night(t, l)
	v := browse(t, serve(t, Options{Ledger: l, Stop: recordStop(make(chan string, 1))}))
	for name, look := range map[string]chromium.Look{
		"light":  {Width: 1280, Height: 900},
		"dark":   {Width: 1280, Height: 900, Dark: true},
		"narrow": {Width: 390, Height: 844, Dark: true},
	} {
		v.must(v.Set(v.ctx, look))
		for page, path := range map[string]string{
			"now": "/", "open": "/?open=" + failed.ID, "live": "/?pin=1&open=" + running.ID, "failed": "/?show=failed",
			"sessions": "/sessions", "session": "/s/" + b.Session, "execution": "/x/" + failed.ID, "none": "/x/NONE", "past": "/?at=12",
		} {
			v.run(`location.href = "` + path + `"`)
			v.until(`location.pathname + location.search === "` + path + `" && document.readyState === "complete" && window.htmx`)
			v.accessible(name + " " + page)
			v.picture(name + "-" + page)
			var wide bool
			v.must(v.Eval(v.ctx, `document.documentElement.scrollWidth > innerWidth + 1`, &wide))
			if wide {
				t.Errorf("%s %s scrolls sideways", name, page)
			}
		}
	}
	for _, e := range v.Said() {
		if e.Kind == "error" && !strings.Contains(e.Text, "404") {
			t.Errorf("the page said: %s", e.Text)
		}
	}
}

var measure = flag.Bool("measure", false, "measure the page with 10,000 executions and a flood (make bench-page)")

// TestBrowserIsQuick measures first paint and updates with 10,000 executions
// and a flood. It is no part of the suite: machines are noisy.
func TestBrowserIsQuick(t *testing.T) {
	if !*measure {
		t.Skip("a measurement: run with -measure")
	}
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-10*time.Hour))
	for i := range 10_000 {
		r := b.Start("/root", "", fmt.Sprintf("echo number %d", i))
		r.Exit(i % 7 / 6)
		b.Wait(3 * time.Second)
	}
	flood := b.Start("/root", "Flood", "yes")
	flood.Yield()
	last := b.Sync()
	s := serve(t, Options{Ledger: l})
	if err := s.live.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	v := browse(t, s)
	v.run(`location.href = "/?pin=1&open=` + flood.ID + `"`)
	v.until(`document.querySelector(".inspector") && performance.getEntriesByName("first-contentful-paint").length`)
	var paint float64
	v.must(v.Eval(v.ctx, `performance.getEntriesByName("first-contentful-paint")[0].startTime`, &paint))
	v.run(`window.updates = []; let began = 0;
		document.addEventListener("htmx:sseBeforeMessage", () => { began = performance.now() });
		document.addEventListener("htmx:sseMessage", () => { updates.push(performance.now() - began) })`)
	chunk := strings.Repeat(strings.Repeat("y", 79)+"\n", 800)
	for i := range 6 {
		for range 20 {
			flood.Out(chunk)
		}
		v.until(fmt.Sprintf("updates.length > %d", i))
	}
	var updates []float64
	v.must(v.Eval(v.ctx, `updates`, &updates))
	t.Logf("first paint after %.0f ms, updates took %.1f ms", paint, updates)
	v.clean()
}
