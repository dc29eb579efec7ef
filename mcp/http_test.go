package mcp

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// httpServer serves a gated server over HTTP until the test ends.
func httpServer(t *testing.T, token string) string {
	t.Helper()
	s, _, _ := gated(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeHTTP(ctx, l, token) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String() + "/mcp"
}

func post(t *testing.T, url, body string, headers ...string) (status int, answer, session string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header.Get("Mcp-Session-Id")
}

// Over HTTP the same is listed as over stdio.
func TestHTTPListsResources(t *testing.T) {
	s := liveServer(t, nil)
	id := newCaller(t, s).exec("true").ProcessID
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.ServeHTTP(ctx, l, "") }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	url := "http://" + l.Addr().String() + "/mcp"
	_, _, session := post(t, url, request(1, "initialize", initializeParams))
	if _, answer, _ := post(t, url, request(2, "resources/list", `{}`), "Mcp-Session-Id", session); !strings.Contains(answer, outputURI(id)) {
		t.Errorf("listed: %s", answer)
	}
}

const initializeParams = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`

func TestHTTPIsGuarded(t *testing.T) {
	url := httpServer(t, "secret")
	body := request(1, "initialize", initializeParams)
	for _, tt := range []struct {
		name    string
		status  int
		headers []string
	}{
		{"no token", 401, nil},
		{"wrong token", 401, []string{"Authorization", "Bearer wrong"}},
		{"not a bearer", 401, []string{"Authorization", "secret"}},
		{"right token", 200, []string{"Authorization", "Bearer secret"}},
		{"foreign host", 403, []string{"Authorization", "Bearer secret", "Host", "evil.example"}},
		{"foreign origin", 403, []string{"Authorization", "Bearer secret", "Origin", "http://evil.example"}},
		{"opaque origin", 403, []string{"Authorization", "Bearer secret", "Origin", "null"}},
		{"cross site", 403, []string{"Authorization", "Bearer secret", "Sec-Fetch-Site", "cross-site"}},
	} {
		if status, answer, _ := post(t, url, body, tt.headers...); status != tt.status {
			t.Errorf("%s: %d %s", tt.name, status, answer)
		}
	}
}

func TestHTTPCallsTools(t *testing.T) {
	url := httpServer(t, "")
	status, answer, session := post(t, url, request(1, "initialize", initializeParams))
	if status != http.StatusOK || session == "" {
		t.Fatalf("initialize: %d %s, session %q", status, answer, session)
	}
	_, answer, _ = post(t, url, toolCall(2, "chat", `{"nope":1}`), "Mcp-Session-Id", session)
	if !strings.Contains(answer, `"isError":true`) || !strings.Contains(answer, `unknown argument`) {
		t.Errorf("a wrong argument: %s", answer)
	}
	_, answer, _ = post(t, url, toolCall(3, "chat", `{}`), "Mcp-Session-Id", session)
	if !strings.Contains(answer, `"structuredContent":{}`) {
		t.Errorf("a call: %s", answer)
	}
}
