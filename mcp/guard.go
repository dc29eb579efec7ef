package mcp

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// guard lets through what comes from this machine's own programs with the
// token: no web page, whatever its origin or the name it was reached by.
func guard(mcp http.Handler, token string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp)
	crossOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !localName(r.Host):
			http.Error(w, "this Host is not served", http.StatusForbidden)
		case !sameOrigin(r):
			http.Error(w, "this Origin is not served", http.StatusForbidden)
		case !authorized(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the bearer token is missing or wrong", http.StatusUnauthorized)
		default:
			crossOrigin.ServeHTTP(w, r)
		}
	})
}

// localName reports whether the name is this machine's loopback, so that no
// foreign name that resolves to it gets in.
func localName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}

// sameOrigin reports whether a browser's request, of any method, comes from a
// page of this very server. Programs send no Origin.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host == r.Host
}

func authorized(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	scheme, got, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(got), []byte(token)) == 1
}
