package mcp

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	mcpgoserver "github.com/mark3labs/mcp-go/server"
)

const (
	// headerTime bounds how long a client may take to send its headers.
	headerTime = 10 * time.Second
	// sessionIdle is how long an HTTP client may be silent before it is forgotten.
	sessionIdle = time.Hour
)

// ServeHTTP serves MCP over streamable HTTP at /mcp on the listener, until ctx
// is done. Calls in flight then have a moment to end. Every request must carry
// the token as a bearer; "" asks for none.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener, token string) error {
	transport := s.transport()
	calls, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler:           guard(transport, token),
		ReadHeaderTimeout: headerTime,
		BaseContext:       func(net.Listener) context.Context { return calls },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	s.wakes.serveHTTP(true)
	defer s.wakes.serveHTTP(false)
	select {
	case err := <-served:
		return fmt.Errorf("serving HTTP: %w", err)
	case <-ctx.Done():
	}
	s.wakes.serveHTTP(false) // nobody is woken while the server closes
	grace, done := context.WithTimeout(calls, drainTime)
	defer done()
	if err := transport.Shutdown(grace); err != nil { // ends the listening streams
		s.log.Warn("closing HTTP sessions", "error", err)
	}
	if err := server.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shutting HTTP down: %w", err)
	}
	cancel()
	return server.Close()
}

// transport is mcp-go's, with sessions.
func (s *Server) transport() *mcpgoserver.StreamableHTTPServer {
	return mcpgoserver.NewStreamableHTTPServer(s.protocol,
		mcpgoserver.WithStateful(true),
		mcpgoserver.WithSessionIdleTTL(sessionIdle),
		mcpgoserver.WithStreamableHTTPLogger(s.log),
	)
}

// guard lets through what comes from this machine's own programs with the
// token: no web page, whatever its origin or the name it was reached by.
func guard(mcp http.Handler, token string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", deliver(mcp))
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
			r.Body = http.MaxBytesReader(w, r.Body, maxLine)
			crossOrigin.ServeHTTP(w, r)
		}
	})
}

// answers are what an HTTP response carries.
type answers struct {
	mu      sync.Mutex
	replies []reply
}

type answersKey struct{}

// deliver tells the makers of answers whether they were written, once the
// response was.
func deliver(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answers{}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answersKey{}, a)))
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.replies) == 0 {
			return
		}
		written := r.Context().Err() == nil && http.NewResponseController(w).Flush() == nil
		for _, r := range a.replies {
			r.finish(written)
		}
	})
}

// finishWithResponse finishes the reply with the response that carries it.
func finishWithResponse(ctx context.Context, r reply) {
	a, ok := ctx.Value(answersKey{}).(*answers)
	if !ok {
		r.finish(ctx.Err() == nil)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replies = append(a.replies, r)
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
