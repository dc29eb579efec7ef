package web

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// policy is the content security policy. wasm-unsafe-eval lets the player's
// terminal compile; it allows no script.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; " +
	"font-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// gate lets in who has the key, and mints the one-time tokens that become it.
type gate struct {
	// hosts are the values of Host that are us.
	hosts  map[string]bool
	cookie string
	key    string

	mu     sync.Mutex
	tokens map[string]bool
}

// maxTokens bounds the links that nobody opened.
const maxTokens = 64

// newGate returns the gate of a listener's address.
func newGate(addr net.Addr) *gate {
	_, port, _ := net.SplitHostPort(addr.String()) // a listener's address has a port
	g := &gate{hosts: map[string]bool{}, cookie: "yieldlog-" + port, key: rand.Text(), tokens: map[string]bool{}}
	for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
		g.hosts[net.JoinHostPort(name, port)] = true
	}
	return g
}

// token is a new one-time token.
func (g *gate) token() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tokens) >= maxTokens {
		clear(g.tokens)
	}
	t := rand.Text()
	g.tokens[t] = true
	return t
}

// spend reports whether the token is good, which it is once.
func (g *gate) spend(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	good := g.tokens[token]
	delete(g.tokens, token)
	return good
}

// guard is next behind the gate.
func (g *gate) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !g.hosts[r.Host]:
			// A name that leads here by DNS rebinding.
			http.Error(w, "This page answers only under its own address.", http.StatusMisdirectedRequest)
		case !g.sameOrigin(r):
			http.Error(w, "Another site may not ask this page.", http.StatusForbidden)
		case r.URL.Query().Has("token"):
			g.enter(w, r)
		case !g.known(r):
			http.Error(w, "Open the link that `yieldlog web` printed. It works once; press Enter there for another.", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// sameOrigin refuses what another site's page sends. A browser sends Origin
// with everything that changes something, so there it must be.
func (g *gate) sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	}
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && g.hosts[u.Host] && u.Host == r.Host
}

// known reports whether the request has the key.
func (g *gate) known(r *http.Request) bool {
	c, err := r.Cookie(g.cookie)
	return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(g.key)) == 1
}

// enter turns a one-time token into the cookie, and goes on without it in the
// address. A spent one does no harm to who has the cookie already.
func (g *gate) enter(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || (!g.spend(r.URL.Query().Get("token")) && !g.known(r)) {
		http.Error(w, "This link was used already. Press Enter where `yieldlog web` runs for another.", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie, Value: g.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	q := r.URL.Query()
	q.Del("token")
	to := url.URL{Path: r.URL.Path, RawQuery: q.Encode()}
	if len(to.Path) > 1 && (to.Path[1] == '/' || to.Path[1] == '\\') {
		to.Path = "/" // "//elsewhere" is another host
	}
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
}
