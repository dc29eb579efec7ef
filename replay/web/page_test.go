package web

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look/looktest"
)

func recordStop(stopped chan<- string) func(context.Context, string, string, string) error {
	return func(_ context.Context, session, owner, execution string) error {
		stopped <- session + " " + owner + " " + execution
		return nil
	}
}

// mustHave fails for each text that a page lacks.
func mustHave(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page has no %q", text)
		}
	}
	if t.Failed() {
		t.Logf("the page:\n%s", page)
	}
}

func mustNotHave(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

func TestM81_M91_EveryPageShowsTheNight(t *testing.T) {
	l := looktest.Open(t)
	b, failed, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	for path, texts := range map[string][]string{
		"/":                               {"3 commands", "2 agents", "Watch the build", "[watch] done in 1.2s", "waits for its lane", "timed out", "exit 1"},
		"/?show=failed":                   {"Run the shop&#39;s tests"},
		"/?open=" + failed.ID:             {"TestCheckout", "checkout_test.go:88", `class="stderr"`, "● Background command", "In its session"},
		"/?q=checkout&deep=1":             {"Run the shop&#39;s tests", "1 match"},
		"/?q=nothing+at+all":              {"Nothing matches"},
		"/sessions":                       {"claude-code 2.1", "/home/ada/shop"},
		"/s/" + b.Session:                 {"<svg", "Transcript", "failed (exit code 1)", "rm is not allowed", "1 unread"},
		"/x/" + failed.ID:                 {"TestCheckout", "go test ./... -count=1"},
		"/x/" + failed.ID + "/play":       {"data-cast"},
		"/x/" + failed.ID + "/cast":       {`"version":3`, "TestCheckout"},
		"/x/" + failed.ID + "/raw":        {"--- FAIL: TestCheckout (0.31s)\n"},
		"/?open=" + running.ID + "&pin=1": {"[watch] 3 files changed"},
	} {
		code, page := get(t, c, s.base()+path)
		if code != http.StatusOK {
			t.Errorf("%s answers %d", path, code)
		}
		t.Run(path, func(t *testing.T) { mustHave(t, page, texts...) })
	}
	if code, _ := get(t, c, s.base()+"/x/NONE"); code != http.StatusNotFound {
		t.Errorf("an unknown execution answers %d", code)
	}
}

// The choices among the ended executions say how many each of them lists, also
// when a cleanup, a rewind or a narrower list leaves some out.
func TestEveryChoiceCountsWhatItLists(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-time.Hour))
	end := func(owner string, code int) *looktest.Run {
		r := b.Start(owner, "", "make")
		r.Exit(code)
		return r
	}
	forgotten := end("/root", 1)
	end("/root/reviewer", 1)
	for range 3 {
		end("/root", 0)
	}
	b.Start("/root", "", "sleep 600").Settle(events.Settled{Status: events.StatusLost, Termination: events.TermLost})
	to := b.Sync()
	end("/root", 0)
	b.Sync()
	for subject, body := range map[string]events.Body{
		forgotten.ID: events.Pruned{Reason: "cleanup"}, b.Session: events.Rewound{To: to},
	} {
		if _, err := l.Append(t.Context(), events.Event{Session: b.Session, Subject: subject, Time: b.Clock, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	chip := regexp.MustCompile(`class="chip is-([a-z-]*)">[A-Z][a-z ]+ <span class="n">(\d+)<`)
	for within, want := range map[string]string{
		"":                          " 5, failed 1, timed-out 0, stopped 0, completed 3",
		"&owner=%2Froot":            " 4, failed 0, timed-out 0, stopped 0, completed 3",
		"&owner=%2Froot%2Freviewer": " 1, failed 1, timed-out 0, stopped 0, completed 0",
	} {
		_, page := get(t, c, s.base()+"/?"+within)
		mustHave(t, page, `class="took">0.0s`) // though it took less than a millisecond
		var counts []string
		for _, m := range chip.FindAllStringSubmatch(page, -1) {
			counts = append(counts, m[1]+" "+m[2])
			_, chosen := get(t, c, s.base()+"/?show="+m[1]+within)
			if n := strings.Count(chosen, `aria-expanded="false"`); strconv.Itoa(n) != m[2] {
				t.Errorf("%q lists %d of %q, and says %s", m[1], n, within, m[2])
			}
		}
		if got := strings.Join(counts, ", "); got != want {
			t.Errorf("the choices of %q are %q, not %q", within, got, want)
		}
	}
}

// TestAnyMomentCanBeSeen looks at the night before the test run had failed.
func TestAnyMomentCanBeSeen(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-time.Hour))
	r := b.Start("/root", "Long", "sleep 60; echo late")
	r.Out("early\n")
	seen := b.Sync()
	b.Wait(time.Minute)
	r.Out("late\n")
	r.Exit(0)
	b.Sync()
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	_, past := get(t, c, fmt.Sprintf("%s/?at=%d&open=%s", s.base(), seen, r.ID))
	mustHave(t, past, "as of", "1 command", "early\n", "Back to now")
	mustNotHave(t, past, "late\n", "sse-connect")
	_, now := get(t, c, s.base()+"/?open="+r.ID)
	mustHave(t, now, "late\n", "nothing", "sse-connect")
	_, again := get(t, c, fmt.Sprintf("%s/s/%s?at=%d", s.base(), b.Session, seen))
	mustHave(t, again, "is-running")
}

// TestM25_LookingClaimsNothing compares the ledger before and after every page was
// looked at (M-25).
func TestM25_LookingClaimsNothing(t *testing.T) {
	l := looktest.Open(t)
	b, failed, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	before, err := l.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/?pin=1&open=" + running.ID, "/s/" + b.Session, "/x/" + failed.ID, "/x/" + failed.ID + "/cast"} {
		get(t, c, s.base()+path)
	}
	after, err := l.LastSeq(t.Context())
	if err != nil || before != after {
		t.Errorf("looking wrote events: %d, then %d (%v)", before, after, err)
	}
	page, err := replay.ReadPage(t.Context(), l, b.Session, running.ID, replay.PageRequest{})
	if err != nil || !strings.HasPrefix(string(page.Stdout), "[watch] 3 files") {
		t.Errorf("the output is not whole: %q (%v)", page.Stdout, err)
	}
}

// An owner's transcript folds the completions below it into counted lines;
// everyone's has each at its own row alone.
func TestM19_CompletionsOfOthersAreCounted(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-time.Hour))
	for i := range 3 {
		r := b.Start("/root/reviewer", fmt.Sprintf("check %d", i), "true")
		r.Yield()
		r.Exit(i / 2)
		r.Mail("as posted")
	}
	b.Sync()
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	const line = "● 3 completions of other owners: 2 completed, 1 failed"
	_, everyone := get(t, c, s.base()+"/s/"+b.Session)
	mustNotHave(t, everyone, line)
	mustHave(t, everyone, "owner=%2Froot%2Freviewer")
	_, root := get(t, c, s.base()+"/s/"+b.Session+"?owner=%2Froot")
	mustHave(t, root, line, `&#34;check 1&#34; completed (exit code 0)`)
	if n := strings.Count(root, "<details>"); n != 1 {
		t.Errorf("%d groups", n)
	}
}

// TestM23_M94_AnInspectorStaysThroughTheEnd opens a running row, lets it end, and finds
// it in its place (M-94).
func TestM23_M94_AnInspectorStaysThroughTheEnd(t *testing.T) {
	l := looktest.Open(t)
	b, _, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	running.Exit(0)
	b.Sync()
	_, page := get(t, c, s.base()+"/?pin=1&open="+running.ID)
	panel, _, _ := strings.Cut(page, `class="recent"`)
	mustHave(t, panel, `id="r-`+running.ID+`"`, `aria-expanded="true"`, "completed", "2 commands")
	if strings.Count(page, `class="inspector"`) != 1 {
		t.Error("there is not exactly one inspector")
	}
}

// The panel has one row a running command, of every owner, with its stop; what
// does not fit expands in place; and it alone is counted in the rule.
func TestM91_OnePanel(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-time.Hour))
	ids := map[string]bool{}
	for i := range panelRows + 3 {
		owner := []string{"/root", "/root/reviewer"}[i%2]
		ids[b.Start(owner, fmt.Sprintf("work %d", i), "sleep 600").ID] = true
	}
	b.Sync()
	s := serve(t, Options{Ledger: l, Stop: recordStop(make(chan string, 1))})
	c := enter(t, s)
	panel := func(path string) string {
		_, page := get(t, c, s.base()+path)
		panel, rest, _ := strings.Cut(page, `class="recent"`)
		if strings.Contains(rest, "work ") {
			t.Error("running work is among what has ended")
		}
		return panel
	}
	rows := func(panel string) (shown, stops int) {
		for id := range ids {
			shown += strings.Count(panel, `id="r-`+id+`"`)
			stops += strings.Count(panel, `action="/x/`+id+`/stop"`)
		}
		return shown, stops
	}
	folded := panel("/")
	mustHave(t, folded, "11 commands", "2 agents", "3 more", `<input type="hidden" name="owner" value="/root/reviewer">`)
	if shown, stops := rows(folded); shown != panelRows || stops != panelRows || strings.Count(folded, `class="counts">`) != 1 {
		t.Errorf("%d rows, %d stops, %d rules with counts", shown, stops, strings.Count(folded, `class="counts">`))
	}
	whole := panel("/?more=1")
	mustHave(t, whole, "Show fewer")
	if shown, stops := rows(whole); shown != len(ids) || stops != len(ids) {
		t.Errorf("expanded, %d rows, %d stops", shown, stops)
	}
}

func TestM24_StopAsksTheSession(t *testing.T) {
	stopped := make(chan string, 2)
	l := looktest.Open(t)
	b, failed, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l, Stop: recordStop(stopped)})
	c := enter(t, s)
	post := func(path string, form url.Values) int {
		req, err := http.NewRequest(http.MethodPost, s.base()+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", s.base())
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/x/" + running.ID + "/stop", "/s/" + b.Session + "/stop"} { // only its own control stops
		if code, _ := get(t, c, s.base()+path); code == http.StatusOK {
			t.Errorf("looking at %s answers %d", path, code)
		}
	}
	if len(stopped) > 0 {
		t.Errorf("looking stopped %s", <-stopped)
	}
	if code := post("/x/"+running.ID+"/stop", url.Values{"back": {"/?open=" + running.ID}}); code != http.StatusOK {
		t.Errorf("the stop answers %d", code)
	}
	if got, want := <-stopped, b.Session+" /root "+running.ID; got != want {
		t.Errorf("stopped %q, not %q", got, want)
	}
	if code := post("/s/"+b.Session+"/stop", url.Values{"owner": {"/root/builder"}}); code != http.StatusOK {
		t.Errorf("the stop of an owner answers %d", code)
	}
	if got, want := <-stopped, b.Session+" /root/builder "; got != want {
		t.Errorf("stopped %q, not %q", got, want)
	}
	if _, page := get(t, c, s.base()+"/?open="+failed.ID); strings.Contains(page, "/x/"+failed.ID+"/stop") {
		t.Error("what has ended has a stop")
	}
}

// hostile is what a command may print, be called and run as.
const hostile = "<script>document.title='owned'</script>\x1b]0;owned\x07\x1b[2J\u202e<img src=x onerror=alert(1)>&amp;]]><!--\x00\xff"

func TestHostileBytesAreText(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now())
	r := b.Start("/root/<script>", hostile, "echo "+hostile)
	r.Out(hostile + "\n")
	live := b.Start("/root", hostile, hostile)
	live.Out(hostile)
	b.Wait(time.Second)
	r.Exit(1)
	b.Sync()
	s := serve(t, Options{Ledger: l, Stop: recordStop(make(chan string, 1))})
	c := enter(t, s)
	for _, path := range []string{"/", "/?open=" + r.ID, "/?pin=1&open=" + live.ID, "/sessions", "/s/" + b.Session, "/x/" + r.ID, "/x/" + r.ID + "/play", "/?q=" + url.QueryEscape(hostile)} {
		code, page := get(t, c, s.base()+path)
		if code != http.StatusOK {
			t.Errorf("%s answers %d", path, code)
		}
		mustNotHave(t, page, "<script>document", "<img", "\x1b", "\x00", "\u202e", "<!--")
	}
	_, cast := get(t, c, s.base()+"/x/"+r.ID+"/cast")
	mustNotHave(t, cast, "\x1b")
}

// What runs is listed while it runs: nothing of the panel is history.
func TestM22_WhatEndsLeavesThePanel(t *testing.T) {
	l := looktest.Open(t)
	b, _, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	row := `id="r-` + running.ID + `"`
	where := func() (panel, recent bool) {
		_, page := get(t, c, s.base()+"/")
		p, r, _ := strings.Cut(page, `class="recent"`)
		return strings.Contains(p, row), strings.Contains(r, row)
	}
	if panel, recent := where(); !panel || recent {
		t.Errorf("running: in the panel %t, below it %t", panel, recent)
	}
	running.Exit(0)
	b.Sync()
	if panel, recent := where(); panel || !recent {
		t.Errorf("ended: in the panel %t, below it %t", panel, recent)
	}
}

// TestM22_ChangesArePushed follows the page as a browser does, until a change that
// happens meanwhile arrives.
func TestM22_ChangesArePushed(t *testing.T) {
	l := looktest.Open(t)
	b, _, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	resp, err := c.Get(s.base() + "/live/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 8<<20)
	waitLine(t, lines, "Watch the build")
	running.Out("a new line of output\n")
	waitLine(t, lines, "a new line of output")
	running.Exit(0)
	b.Sync()
	waitLine(t, lines, "2 commands")
}

func waitLine(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the page ended before %q came: %v", text, lines.Err())
}

// TestTenThousandExecutions keeps the page usable: a bounded page, and quickly
// made. The bound is generous; the numbers are in the log.
func TestTenThousandExecutions(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 30,000 events")
	}
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now().Add(-10*time.Hour))
	for i := range 10_000 {
		r := b.Start("/root", "", fmt.Sprintf("echo number %d", i))
		b.Wait(3 * time.Second)
		if i < 9_900 {
			r.Exit(i % 7 / 6)
		}
	}
	b.Sync()
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	last, err := l.LastSeq(t.Context())
	if err != nil || s.live.WaitFor(t.Context(), last) != nil {
		t.Fatal("the page did not catch up", err)
	}
	for _, path := range []string{"/", "/?page=150", "/?q=number+99", "/?show=failed", "/s/" + b.Session, "/?at=9000"} {
		get(t, c, s.base()+path) // the first look at a moment folds up to it
		began := time.Now()
		code, page := get(t, c, s.base()+path)
		took := time.Since(began)
		t.Logf("%-40s %d bytes in %v", path, len(page), took)
		if code != http.StatusOK || len(page) > 2<<20 || took > 20*time.Second {
			t.Errorf("%s: %d, %d bytes, %v", path, code, len(page), took)
		}
	}
}

// TestAFloodIsBounded floods a running command, and looks at the page meanwhile.
func TestAFloodIsBounded(t *testing.T) {
	l := looktest.Open(t)
	b, _, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	line := strings.Repeat("x", 200) + "\n"
	for range 200 {
		running.Out(strings.Repeat(line, 300))
	}
	running.Out("the end of the flood\n")
	b.Sync()
	_, page := get(t, c, s.base()+"/?pin=1&open="+running.ID)
	mustHave(t, page, "the end of the flood")
	if len(page) > 1<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// TestTheOriginalEntryIsFound asks a long transcript for the page of one row.
func TestTheOriginalEntryIsFound(t *testing.T) {
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now())
	first := b.Start("/root", "The first", "true")
	first.Exit(0)
	for range 3 * transcriptRows {
		b.Start("/root", "", "true").Exit(0)
	}
	b.Sync()
	s := serve(t, Options{Ledger: l})
	c := enter(t, s)
	_, page := get(t, c, s.base()+"/?q=The+first&open="+first.ID)
	at := strings.Index(page, "/s/"+b.Session+"?row=")
	if at < 0 {
		t.Fatalf("there is no way to the entry:\n%s", page)
	}
	origin, _, _ := strings.Cut(page[at:], `"`)
	_, page = get(t, c, s.base()+origin)
	mustHave(t, page, `id="r-`+first.ID+`"`, "page 4 of 4")
}
