package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yieldlog/yieldlog/producers"
)

// serveHTTP serves over HTTP until the test ends.
func serveHTTP(t *testing.T, token string, open Open) (url string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ServeHTTP(ctx, l, token, open) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(end)
	return "http://" + l.Addr().String() + "/mcp", end
}

// alone gives each client a server without a ledger.
func alone(s func() *Server) Open {
	return func(context.Context, string) (*Server, func(string) error, error) {
		return s(), func(string) error { return nil }, nil
	}
}

// liveHTTP gives each client a session on one ledger.
func liveHTTP(t *testing.T) (url string) {
	t.Helper()
	l := newLedger(t)
	url, _ = serveHTTP(t, "", func(context.Context, string) (*Server, func(string) error, error) {
		s, end := serverOn(t, l, producers.DefaultConfig())
		return s, func(string) error { end(); return nil }, nil
	})
	return url
}

// httpCaller is a client over HTTP.
type httpCaller struct {
	t            *testing.T
	url, session string
	id           int
}

func newHTTPCaller(t *testing.T, url string) *httpCaller {
	t.Helper()
	status, answer, session := post(t, url, request(1, "initialize", initializeParams))
	if status != http.StatusOK || session == "" {
		t.Fatalf("initialize: %d %s, session %q", status, answer, session)
	}
	return &httpCaller{t: t, url: url, session: session, id: 1}
}

func (c *httpCaller) post(body string) string {
	c.t.Helper()
	status, answer, _ := post(c.t, c.url, body, sessionHeader, c.session)
	if status/100 != 2 {
		c.t.Fatalf("%s: %d %s", body, status, answer)
	}
	return answer
}

func (c *httpCaller) call(tool, arguments string) string {
	c.t.Helper()
	c.id++
	return c.post(toolCall(c.id, tool, arguments))
}

// background starts a command that lasts.
func (c *httpCaller) background() (process string) {
	c.t.Helper()
	answer := c.call("exec", `{"command":"sleep 600","side_effects":["NONE"],"yield_ms":0}`)
	_, rest, _ := strings.Cut(answer, `"structuredContent":{"process_id":"`)
	process, _, ok := strings.Cut(rest, `"`)
	if !ok {
		c.t.Fatalf("exec: %s", answer)
	}
	return process
}

// listen opens the stream of what the client is told unasked.
func (c *httpCaller) listen() *bufio.Scanner {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set(sessionHeader, c.session)
	resp, err := http.DefaultClient.Do(r) //nolint:bodyclose // cancel ends it
	if err != nil || resp.StatusCode != http.StatusOK {
		c.t.Fatalf("listening: %v, %v", resp, err)
	}
	return bufio.NewScanner(resp.Body)
}

// leave ends the client's session.
func (c *httpCaller) leave() (status int) {
	r, err := http.NewRequestWithContext(context.WithoutCancel(c.t.Context()), http.MethodDelete, c.url, nil)
	if err != nil {
		c.t.Error(err)
		return 0
	}
	r.Header.Set(sessionHeader, c.session)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Error(err)
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// begin posts a message over a connection of its own, and goes on.
func (c *httpCaller) begin(body string) net.Conn {
	c.t.Helper()
	host := strings.TrimSuffix(strings.TrimPrefix(c.url, "http://"), "/mcp")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
		host, sessionHeader, c.session, len(body), body); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// until reads up to a line that has the text.
func until(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ended without %q: %v", text, lines.Err())
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
	return exchange(t, r)
}

// exchange sends a request and reads all of the response.
func exchange(t *testing.T, r *http.Request) (status int, answer, session string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header.Get(sessionHeader)
}

const initializeParams = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`

func TestHTTPIsGuarded(t *testing.T) {
	s, _, _ := gated(t)
	url, _ := serveHTTP(t, "secret", alone(func() *Server { return s }))
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
	s, _, _ := gated(t)
	url, _ := serveHTTP(t, "", alone(func() *Server { return s }))
	c := newHTTPCaller(t, url)
	if answer := c.call("chat", `{"nope":1}`); !strings.Contains(answer, `"isError":true`) || !strings.Contains(answer, `unknown argument`) {
		t.Errorf("a wrong argument: %s", answer)
	}
	answer := c.call("chat", `{}`)
	if n := strings.Count(answer, "notifications/progress"); n != 5 || !strings.Contains(answer, `"structuredContent":{}`) {
		t.Errorf("%d times progress in %s", n, answer)
	}
	if answer := c.call("nope", `{}`); !strings.Contains(answer, `-32602`) {
		t.Errorf("an unknown tool: %s", answer)
	}
	if answer := c.post(request(9, "ping", `{}`)); answer != `{"jsonrpc":"2.0","id":9,"result":{}}` {
		t.Errorf("a ping: %s", answer)
	}
}

func TestHTTPRefuses(t *testing.T) {
	s, _, _ := gated(t)
	url, _ := serveHTTP(t, "", alone(func() *Server { return s }))
	c := newHTTPCaller(t, url)
	ping := request(1, "ping", `{}`)
	session := []string{sessionHeader, c.session}
	for _, tt := range []struct {
		name    string
		status  int
		body    string
		headers []string
	}{
		{"no session", 400, ping, nil},
		{"an unknown session", 404, ping, []string{sessionHeader, "x"}},
		{"a version that is served", 200, ping, append([]string{"MCP-Protocol-Version", "2025-11-25"}, session...)},
		{"a version that is not", 400, ping, append([]string{"MCP-Protocol-Version", "2026-07-28"}, session...)},
		{"another type", 415, ping, append([]string{"Content-Type", "text/plain"}, session...)},
		{"a batch", 400, "[" + ping + "]", session},
		{"no JSON", 400, "{", session},
		{"nothing", 400, "", session},
		{"no UTF-8", 400, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", session},
		{"more than is read", 413, strings.Repeat(" ", maxLine+1), session},
		{"a message on many lines", 200, "\n" + strings.ReplaceAll(ping, ",", ",\n") + "\n", session},
		{"a notification", 202, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session},
	} {
		if status, answer, _ := post(t, url, tt.body, tt.headers...); status != tt.status {
			t.Errorf("%s: %d %s", tt.name, status, answer)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodHead, http.MethodPut} {
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode/100 != 4 {
			t.Errorf("%s without a session: %d", method, resp.StatusCode)
		}
	}
}

// A client over HTTP is told what one over stdio is told.
func TestHTTPTellsWhatStdioTells(t *testing.T) {
	url := liveHTTP(t)
	c := newHTTPCaller(t, url)
	id := c.background()
	if answer := c.post(request(2, "resources/list", `{}`)); !strings.Contains(answer, outputURI(id)) {
		t.Errorf("listed: %s", answer)
	}
	answer := c.post(request(3, "resources/read", `{"uri":"yieldlog://execution/none/output"}`))
	if !strings.Contains(answer, `"code":-32002`) {
		t.Errorf("an unknown resource: %s", answer)
	}
	heard := c.listen()
	c.post(request(4, "resources/subscribe", fmt.Sprintf(`{"uri":%q}`, outputURI(id))))
	c.call("write", fmt.Sprintf(`{"process_id":%q,"input":"x"}`, id))
	until(t, heard, outputURI(id))
	c.call("exec", `{"command":"sleep 0.1","side_effects":["NONE"],"yield_ms":0}`)
	until(t, heard, wakeText)
}

// Each client has a session of its own, and its commands end with it.
func TestHTTPClientsAreApart(t *testing.T) {
	url := liveHTTP(t)
	one, other := newHTTPCaller(t, url), newHTTPCaller(t, url)
	id := one.background()
	if answer := other.call("read", fmt.Sprintf(`{"process_id":%q}`, id)); !strings.Contains(answer, "Unknown process_id") {
		t.Errorf("the other client reads: %s", answer)
	}
	theirs := other.background()
	heard := one.listen()
	if status := one.leave(); status != http.StatusNoContent {
		t.Fatalf("DELETE: %d", status)
	}
	if heard.Scan() || heard.Err() != nil {
		t.Errorf("the stream went on with %q, %v", heard.Text(), heard.Err())
	}
	if status, answer, _ := post(t, url, request(9, "ping", `{}`), sessionHeader, one.session); status != http.StatusNotFound {
		t.Errorf("after the end: %d %s", status, answer)
	}
	if answer := other.call("ps", `{}`); !strings.Contains(answer, theirs) || strings.Contains(answer, id) || !strings.Contains(answer, `"running"`) {
		t.Errorf("the other client has %s", answer)
	}
}

func TestHTTPCancel(t *testing.T) {
	s, _, entered := gated(t)
	url, _ := serveHTTP(t, "", alone(func() *Server { return s }))
	c := newHTTPCaller(t, url)
	answered := bufio.NewScanner(c.begin(toolCall(7, "gate", `{}`)))
	<-entered
	c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	if got := <-entered; got != "cancelled" {
		t.Errorf("the call was %s", got)
	}
	if answered.Scan(); answered.Text() != "HTTP/1.1 202 Accepted" {
		t.Errorf("a cancelled call was answered %q", answered.Text())
	}
}

// A connection that breaks is no cancellation; a server that ends is one.
func TestHTTPBrokenConnection(t *testing.T) {
	s, _, entered := gated(t)
	url, end := serveHTTP(t, "", alone(func() *Server { return s }))
	c := newHTTPCaller(t, url)
	broken := c.begin(toolCall(7, "gate", `{}`))
	<-entered
	_ = broken.Close()
	answered := bufio.NewScanner(c.begin(toolCall(8, "gate", `{}`)))
	<-entered
	if answer := c.post(toolCall(7, "chat", `{}`)); !strings.Contains(answer, "a request with id 7 is in flight") {
		t.Errorf("the first call is over: %s", answer)
	}
	go end()
	until(t, answered, "the server is ending")
}

// Nor does it end a command that went on in the background, whether the client
// had the answer or not.
func TestHTTPBrokenConnectionEndsNoCommand(t *testing.T) {
	c := newHTTPCaller(t, liveHTTP(t))
	const each = 10
	var done sync.WaitGroup
	for i := range each {
		early, late := c.begin(toolCall(100+i, "exec", `{"command":"sleep 600","side_effects":["NONE"],"yield_ms":200}`)),
			c.begin(toolCall(200+i, "exec", `{"command":"sleep 600","side_effects":["NONE"],"yield_ms":0}`))
		done.Go(func() {
			_, _ = io.ReadFull(late, make([]byte, len("HTTP/1.1 200")))
			_ = late.Close()
		})
		done.Go(func() {
			time.Sleep(20 * time.Millisecond) // or it could be seen to leave before it sent all
			_ = early.Close()
		})
	}
	done.Wait()
	c.call("wait", fmt.Sprintf(`{"process_id":%q,"timeout_ms":1000}`, c.background())) // all have yielded by then
	_, structured, _ := strings.Cut(c.call("ps", `{}`), "structuredContent")
	if n := strings.Count(structured, `"status":"running"`); n != 2*each+1 {
		t.Errorf("%d run: %s", n, structured)
	}
}

// Who comes back to a server that died, for the answer of a call, is told so: a
// client that only finds no session waits until it gives the call up.
func TestHTTPAnswersForADeadServer(t *testing.T) {
	s, _, _ := gated(t)
	url, _ := serveHTTP(t, "", alone(func() *Server { return s }))
	_, answer, _ := post(t, url, `{"jsonrpc":"2.0","id":"a\n","method":"tools/call","params":{"name":"chat","arguments":{}}}`,
		sessionHeader, newHTTPCaller(t, url).session)
	_, event, _ := strings.Cut(answer, "id: ")
	event, _, _ = strings.Cut(event, "\n")
	if status, answer := comeBack(t, url, event); status != http.StatusOK || !strings.Contains(answer, `data: {"jsonrpc":"2.0","id":"a\n","error":`) {
		t.Errorf("after %q: %d %s", event, status, answer)
	}
	if status, answer := comeBack(t, url, "AAAA"); status != http.StatusBadRequest {
		t.Errorf("after no event: %d %s", status, answer)
	}
}

// comeBack asks for what came behind an event.
func comeBack(t *testing.T, url, event string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sessionHeader, "of the server that died")
	r.Header.Set(lastEventHeader, event)
	status, answer, _ = exchange(t, r)
	return status, answer
}

// Nobody is told of a call that broke off when it did not: who comes back behind
// the end, also that of a call that was cancelled or failed, finds no stream.
func TestHTTPNothingBehindTheEnd(t *testing.T) {
	url, end := serveHTTP(t, "", alone(func() *Server {
		s := newServer(Options{})
		s.add(&tool{name: "talk", run: func(ctx context.Context, c *call) (reply, error) {
			c.notify("notifications/progress", map[string]int{"progress": 1})
			<-ctx.Done()
			return reply{}, ctx.Err()
		}})
		return s
	}))
	cancelled := newHTTPCaller(t, url)
	talk := func(c *httpCaller) *bufio.Scanner {
		heard := bufio.NewScanner(c.begin(toolCall(7, "talk", `{}`)))
		until(t, heard, "notifications/progress")
		return heard
	}
	stopped, failed := talk(cancelled), talk(newHTTPCaller(t, url))
	cancelled.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	until(t, stopped, "id: "+lastEvent)
	if status, answer := comeBack(t, url, lastEvent); status != http.StatusMethodNotAllowed {
		t.Errorf("behind the end: %d %s", status, answer)
	}
	_, told := comeBack(t, url, "Nw") // 7
	until(t, bufio.NewScanner(strings.NewReader(told)), "id: "+lastEvent)
	go end()
	until(t, failed, "id: "+lastEvent)
	until(t, failed, "the server is ending")
}

// A message that does not come whole is not waited for; an answer is.
func TestHTTPSlowClient(t *testing.T) {
	s, gate, entered := gated(t)
	h := &httpServer{ctx: t.Context(), open: alone(func() *Server { return s }), clients: map[string]*httpClient{}}
	server := h.server("")
	server.ReadTimeout = 50 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() {
		h.close("the test is over")
		_ = server.Close()
		<-ended
		http.DefaultClient.CloseIdleConnections()
	}()
	c := newHTTPCaller(t, "http://"+l.Addr().String()+"/mcp")
	heard := c.listen()
	calls := c.begin(toolCall(7, "gate", `{}`))
	<-entered
	for range 2 { // the second is begun when the others have long been there
		slow := c.begin("")
		if _, err := fmt.Fprintf(slow, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		until(t, bufio.NewScanner(slow), "HTTP/1.1 408 ")
	}
	close(gate)
	until(t, bufio.NewScanner(calls), "HTTP/1.1 200 ")
	h.clients[c.session].out.put([]byte("news"))
	until(t, heard, "news")
}

// A session ends when what its client was last answered is written.
func TestHTTPAnswersBeforeTheEnd(t *testing.T) {
	told := make(chan string, 2)
	s := newServer(Options{})
	s.add(&tool{name: "long", run: func(_ context.Context, c *call) (reply, error) {
		c.after = append(c.after, func(written bool) { told <- fmt.Sprint("written: ", written) })
		return answer(map[string]string{"text": strings.Repeat("x", 8<<20)}), nil // more than fits between the two
	}})
	url, _ := serveHTTP(t, "", func(context.Context, string) (*Server, func(string) error, error) {
		return s, func(string) error { told <- "left"; return nil }, nil
	})
	c := newHTTPCaller(t, url)
	long := c.begin(toolCall(7, "long", `{}`))
	if _, err := io.ReadFull(long, make([]byte, len("HTTP/1.1 200"))); err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		if answer := c.leave(); answer != http.StatusNoContent {
			t.Errorf("DELETE: %d", answer)
		}
	}()
	for status := 0; status != http.StatusNotFound; { // so it is leaving
		status, _, _ = post(t, url, request(9, "ping", `{}`), sessionHeader, c.session)
	}
	go func() { _, _ = io.Copy(io.Discard, long) }() // until it is closed
	<-left
	if first, second := <-told, <-told; first != "written: true" || second != "left" {
		t.Errorf("%q, then %q", first, second)
	}
}

// The server's end waits for clients that come or leave.
func TestHTTPEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		come, leave := make(chan struct{}), make(chan struct{})
		h := &httpServer{ctx: t.Context(), clients: map[string]*httpClient{}, open: func(_ context.Context, client string) (*Server, func(string) error, error) {
			if client == "late" {
				<-come
			}
			return newServer(Options{}), func(string) error { <-leave; return nil }, nil
		}}
		c, err := h.admit("t")
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go h.end("the client left", c)
		go func() {
			if _, err := h.admit("late"); err == nil {
				t.Error("a client was let in")
			}
		}()
		synctest.Wait()
		go func() { h.close("signalled"); close(closed) }()
		for _, gate := range []chan struct{}{come, leave} {
			synctest.Wait()
			select {
			case <-closed:
				t.Fatal("the server did not wait")
			default:
				close(gate)
			}
		}
		<-closed
	})
}

// A client that was silent makes room, one that listens does not.
func TestHTTPMakesRoom(t *testing.T) {
	url, _ := serveHTTP(t, "", alone(func() *Server { return newServer(Options{}) }))
	listens := newHTTPCaller(t, url)
	listens.listen()
	silent := newHTTPCaller(t, url)
	for range maxClients - 1 {
		newHTTPCaller(t, url)
	}
	if status, _, _ := post(t, url, request(2, "ping", `{}`), sessionHeader, silent.session); status != http.StatusNotFound {
		t.Errorf("the silent one: %d", status)
	}
	listens.post(request(2, "ping", `{}`))
}
