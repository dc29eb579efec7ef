package web

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look/looktest"
)

// serve runs a page on a ledger until the test ends.
func serve(t *testing.T, o Options) *Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(ln, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() { // the test's context has ended
		if err := <-done; err != nil {
			t.Errorf("the page ended with: %v", err)
		}
	})
	return s
}

// enter is a client that opened the page's link.
func enter(t *testing.T, s *Server) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar}
	if code, body := get(t, c, s.Link()); code != http.StatusOK {
		t.Fatalf("the link answers %d: %s", code, body)
	}
	return c
}

func get(t *testing.T, c *http.Client, addr string) (int, string) {
	t.Helper()
	resp, err := c.Get(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (s *Server) base() string { return "http://" + s.listener.Addr().String() }

func TestOnlyTheLinkOpensThePage(t *testing.T) {
	s := serve(t, Options{Ledger: looktest.Open(t)})
	for name, addr := range map[string]string{
		"no token":        s.base() + "/",
		"a wrong token":   s.base() + "/?token=guessed",
		"no token, asset": s.base() + assetNames()["page.css"],
		"no token, live":  s.base() + "/live/",
	} {
		if code, _ := get(t, http.DefaultClient, addr); code != http.StatusUnauthorized {
			t.Errorf("%s: %d, not %d", name, code, http.StatusUnauthorized)
		}
	}
	link := s.Link()
	jar, _ := cookiejar.New(nil)
	first := &http.Client{Jar: jar}
	if code, _ := get(t, first, link); code != http.StatusOK {
		t.Errorf("the link: %d", code)
	}
	if code, _ := get(t, first, link); code != http.StatusOK {
		t.Errorf("the link again, from whom it let in: %d", code)
	}
	if code, _ := get(t, http.DefaultClient, link); code != http.StatusUnauthorized {
		t.Errorf("the link again, from somebody else: %d", code)
	}
}

func TestTheCookieIsForUsAlone(t *testing.T) {
	s := serve(t, Options{Ledger: looktest.Open(t)})
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Get(strings.Replace(s.Link(), "/?", "//elsewhere.example/?", 1))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cookies := resp.Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookies are %v", cookies)
	}
	if to, err := url.Parse(resp.Header.Get("Location")); err != nil || to.Host != "" || strings.HasPrefix(to.Path, "//") || to.Query().Has("token") {
		t.Errorf("the link goes on to %q", resp.Header.Get("Location"))
	}
}

func TestStrangersAreRefused(t *testing.T) {
	stopped := make(chan string, 8)
	l := looktest.Open(t)
	_, _, running := looktest.Night(t, l)
	s := serve(t, Options{Ledger: l, Stop: recordStop(stopped)})
	c := enter(t, s)
	for name, change := range map[string]struct {
		method, host, origin string
		want                 int
	}{
		"another Host":            {"GET", "evil.example:80", "", http.StatusMisdirectedRequest},
		"another Origin":          {"GET", "", "https://evil.example", http.StatusForbidden},
		"a null Origin":           {"GET", "", "null", http.StatusForbidden},
		"another port's Origin":   {"POST", "", "http://127.0.0.1:1", http.StatusForbidden},
		"a change without Origin": {"POST", "", "", http.StatusForbidden},
		"another Origin's change": {"POST", "", "https://evil.example", http.StatusForbidden},
		"ourselves":               {"GET", "", s.base(), http.StatusOK},
	} {
		path := "/"
		if change.method == http.MethodPost {
			path = "/x/" + running.ID + "/stop"
		}
		req, err := http.NewRequest(change.method, s.base()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = change.host
		if change.origin != "" {
			req.Header.Set("Origin", change.origin)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != change.want {
			t.Errorf("%s: %d, not %d", name, resp.StatusCode, change.want)
		}
	}
	if len(stopped) > 0 {
		t.Errorf("a stranger stopped %s", <-stopped)
	}
}

func TestHeadersHoldThePageTogether(t *testing.T) {
	s := serve(t, Options{Ledger: looktest.Open(t)})
	resp, err := enter(t, s).Get(s.base() + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	csp := resp.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("the policy %q has no %q", csp, want)
		}
	}
	if strings.Contains(csp, "unsafe-inline") || strings.Contains(csp, "'unsafe-eval'") {
		t.Errorf("the policy %q lets inline script or style in", csp)
	}
}

func TestThePageIsOnLoopbackOnly(t *testing.T) {
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := New(ln, Options{Ledger: &ledger.Ledger{}}); err == nil {
		t.Error("the page took a listener that others can reach")
	}
}

func TestBackGoesNowhereElse(t *testing.T) {
	for back, want := range map[string]string{
		"/?open=X": "/?open=X", "": "/", "https://evil.example": "/", "//evil.example": "/", `/\evil.example`: "/",
		"javascript:alert(1)": "/", "/s/A?page=2": "/s/A?page=2",
	} {
		if got := localPath(back); got != want {
			t.Errorf("%q goes to %q, not %q", back, got, want)
		}
	}
}
