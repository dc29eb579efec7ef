package mcp

import (
	"bufio"
	stdcmp "cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; reaching it is a failure.
const patience = 30 * time.Second

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, patience)
		}
	}
}

// client is the far end of a stdio server.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

// serve starts a server on pipes. It ends with the test.
func serve(t *testing.T, s *Server) *client {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	c := &client{t: t, in: inWrite, out: bufio.NewReader(outRead), ended: make(chan error, 1)}
	go func() {
		err := s.ServeStdio(context.Background(), inRead, outWrite)
		_ = outWrite.Close()
		c.ended <- err
	}()
	t.Cleanup(func() {
		_ = inWrite.Close()
		_ = outRead.Close() // Nobody listens any more.
		select {
		case <-c.ended:
		case <-time.After(patience):
			t.Error("the server did not end")
		}
	})
	return c
}

func (c *client) send(lines ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, strings.Join(lines, "\n")+"\n"); err != nil {
		c.t.Fatalf("sending: %v", err)
	}
}

// received is a message from the server.
type received struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *rpcError
}

func (c *client) next() received {
	c.t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatalf("receiving: %v", err)
	}
	var r received
	if err := json.Unmarshal(line, &r); err != nil || !utf8.Valid(line) {
		c.t.Fatalf("not JSON: %q", line)
	}
	return r
}

func request(id int, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
}

func toolCall(id int, name, arguments string) string {
	return request(id, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
}

// gated is a server whose tool "gate" blocks until the gate opens or the call
// is cancelled, and whose tool "chat" notifies n times before it answers.
func gated(t *testing.T) (s *Server, gate chan struct{}, entered chan string) {
	t.Helper()
	s, gate, entered = newServer(Options{}), make(chan struct{}), make(chan string, 100)
	s.add(&tool{name: "gate", run: func(ctx context.Context, _ *call) (reply, error) {
		entered <- "in"
		select {
		case <-gate:
			return answer(map[string]bool{"open": true}), nil
		case <-ctx.Done():
			entered <- "cancelled"
			return reply{}, ctx.Err()
		}
	}}, &tool{name: "chat", run: func(_ context.Context, c *call) (reply, error) {
		for i := range 5 {
			c.notify("notifications/progress", map[string]int{"progress": i})
		}
		return answer(map[string]string{}), nil
	}}, &tool{name: "panic", run: func(context.Context, *call) (reply, error) { panic("no") }})
	return s, gate, entered
}

func TestPingPassesCallsInFlight(t *testing.T) {
	s, gate, entered := gated(t)
	c := serve(t, s)
	for i := range 50 {
		c.send(toolCall(i, "gate", `{}`))
	}
	for range 50 {
		<-entered
	}
	c.send(request(99, "ping", `{}`))
	if r := c.next(); string(r.ID) != "99" || string(r.Result) != "{}" {
		t.Errorf("the ping was answered %+v", r)
	}
	close(gate)
	for range 50 {
		c.next()
	}
}

func TestCancelRightBehindItsRequest(t *testing.T) {
	s, _, entered := gated(t)
	c := serve(t, s)
	for i := range 50 {
		c.send(toolCall(i, "gate", `{}`), fmt.Sprintf(
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
		if got := []string{<-entered, <-entered}; !cmp.Equal(got, []string{"in", "cancelled"}) {
			t.Fatalf("call %d: %v", i, got)
		}
	}
	c.send(request(99, "ping", `{}`))
	if r := c.next(); string(r.ID) != "99" {
		t.Errorf("a cancelled call was answered: %+v", r)
	}
}

func TestLateCancelDoesNothing(t *testing.T) {
	s, _, _ := gated(t)
	c := serve(t, s)
	c.send(toolCall(1, "chat", `{}`))
	for c.next().ID == nil {
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, request(2, "ping", `{}`))
	if r := c.next(); string(r.ID) != "2" {
		t.Errorf("got %+v", r)
	}
}

func TestNotificationsPrecedeTheResponse(t *testing.T) {
	s, _, _ := gated(t)
	c := serve(t, s)
	for id := range 200 {
		c.send(toolCall(id, "chat", `{}`))
		for i := range 5 {
			if r := c.next(); r.Method != "notifications/progress" || !strings.Contains(string(r.Params), fmt.Sprint(i)) {
				t.Fatalf("notification %d of call %d is %+v", i, id, r)
			}
		}
		if r := c.next(); string(r.ID) != fmt.Sprint(id) {
			t.Fatalf("response %d is %+v", id, r)
		}
	}
}

func TestBadLinesAreAnsweredAndDoNotKill(t *testing.T) {
	s, _, _ := gated(t)
	c := serve(t, s)
	for _, bad := range []struct {
		line string
		code int
		id   string
	}{
		{`{`, codeParse, "null"},
		{`nonsense`, codeParse, "null"},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, codeInvalidRequest, "null"},
		{`42`, codeInvalidRequest, "null"},
		{`{"jsonrpc":"1.0","id":7,"method":"ping"}`, codeInvalidRequest, "7"},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, codeInvalidRequest, "null"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, codeInvalidRequest, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}", codeParse, "8"},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", codeParse, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}", codeParse, "null"},
		{"{\"jsonrpc\":\"1.0\",\"id\":\"\xff\",\"method\":\"ping\"}", codeParse, "null"},
		{`{"jsonrpc":"2.0","id":9,"method":5}`, codeInvalidRequest, "9"},
		{`{"jsonrpc":"2.0","id":14}`, codeInvalidRequest, "14"},
		{request(10, "no/such", `{}`), -32601, "10"},
		{toolCall(11, "no_such_tool", `{}`), codeInvalidParams, "11"},
		{request(12, "tools/call", `[]`), codeInvalidParams, "12"},
		{toolCall(13, "panic", `{}`), codeInternal, "13"},
	} {
		c.send(bad.line)
		r := c.next()
		id := stdcmp.Or(string(r.ID), "null")
		if r.Error == nil || r.Error.Code != bad.code || id != bad.id {
			t.Errorf("%q: id %s, error %+v", bad.line, r.ID, r.Error)
		} else if strings.Contains(r.Error.Message, "Go ") {
			t.Errorf("%q: %s: that tells who wrote the server", bad.line, r.Error.Message)
		}
	}
	c.send("", "  ", request(99, "ping", `{}`))
	if r := c.next(); string(r.ID) != "99" {
		t.Errorf("the server is broken: %+v", r)
	}
}

func TestAMisplacedValueIsNamedByItsType(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":["ping"]}`: `not a JSON-RPC message: "method" must be a string, and is of type array`,
		`42`: "not a JSON-RPC message: a line must be an object, and is of type number",
	} {
		if _, err := parseMessage([]byte(line)); err == nil || err.Message != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A client may write an id in another way when it cancels.
func TestCancelByAnotherSpellingOfTheID(t *testing.T) {
	s, _, entered := gated(t)
	c := serve(t, s)
	for _, way := range []struct{ id, cancel string }{
		{"7", "7.0"}, {"8.0", "8"}, {"9.0", "9.0"}, {"7001", "7.001e3"}, {"0.5", "5e-1"}, {`"a"`, `"\u0061"`}, {"9007199254740993", "9007199254740993"},
	} {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"gate"}}`, way.id))
		if got := <-entered; got != "in" {
			t.Fatal(got)
		}
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, way.cancel))
		if got := <-entered; got != "cancelled" {
			t.Errorf("%s, cancelled as %s: %s", way.id, way.cancel, got)
		}
	}
	for _, two := range [][2]string{{"7", `"7"`}, {"7", "7.5"}, {"9007199254740993", "9007199254740992"}, {"1e999", "2e999"}, {`""`, "0"}} {
		if idKey(json.RawMessage(two[0])) == idKey(json.RawMessage(two[1])) {
			t.Errorf("%s and %s are one id", two[0], two[1])
		}
	}
}

func TestDuplicateIDIsRefused(t *testing.T) {
	s, gate, entered := gated(t)
	c := serve(t, s)
	c.send(toolCall(1, "gate", `{}`))
	<-entered
	c.send(toolCall(1, "gate", `{}`))
	if r := c.next(); r.Error == nil {
		t.Errorf("got %+v", r)
	}
	close(gate)
	if r := c.next(); r.Result == nil {
		t.Errorf("got %+v", r)
	}
}

// A line that is read while the server ends begins no call that nobody waits for.
func TestNoCallBeginsOnceTheServerEnds(t *testing.T) {
	c := &conn{calls: map[string]*inflight{}}
	c.drain(t.Context(), func() {})
	if bad := c.register("1", &inflight{}); bad == nil {
		t.Error("a call began")
	}
}

func TestHugeLine(t *testing.T) {
	s, _, _ := gated(t)
	c := serve(t, s)
	c.send(request(1, "ping", `{"a":"`+strings.Repeat("x", 20<<20)+`"}`))
	if r := c.next(); string(r.ID) != "1" {
		t.Errorf("20 MiB: %+v", r)
	}
	c.send(request(2, "ping", `{"a":"`+strings.Repeat("x", maxLine)+`"}`))
	if r := c.next(); r.Error == nil || r.Error.Code != codeInvalidRequest {
		t.Errorf("more than 64 MiB: %+v", r)
	}
	c.send(request(3, "ping", `{}`))
	if r := c.next(); string(r.ID) != "3" {
		t.Errorf("afterwards: %+v", r)
	}
}

// At the end of input calls in flight are answered, and so is a last line
// without its newline.
func TestEndOfInputDrains(t *testing.T) {
	s, gate, entered := gated(t)
	c := serve(t, s)
	c.send(toolCall(1, "gate", `{}`))
	if _, err := io.WriteString(c.in, toolCall(2, "gate", `{}`)); err != nil {
		t.Fatal(err)
	}
	_ = c.in.Close()
	<-entered
	<-entered
	close(gate)
	seen := map[string]bool{string(c.next().ID): true, string(c.next().ID): true}
	if !seen["1"] || !seen["2"] {
		t.Errorf("answered: %v", seen)
	}
}

// Calls that do not end are cancelled, and the server ends.
func TestEndOfInputCancelsWhatGoesOn(t *testing.T) {
	s, _, entered := gated(t)
	c := serve(t, s)
	c.send(toolCall(1, "gate", `{}`))
	<-entered
	_ = c.in.Close()
	if got := <-entered; got != "cancelled" {
		t.Errorf("got %q", got)
	}
	if r := c.next(); r.Error == nil || !strings.Contains(r.Error.Message, "the server is ending") {
		t.Errorf("the call was answered %+v", r)
	}
}

func TestClientThatStopsReadingEndsTheServer(t *testing.T) {
	s, _, entered := gated(t)
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeStdio(context.Background(), inRead, outWrite) }()
	_, _ = io.WriteString(inWrite, toolCall(1, "gate", `{}`)+"\n")
	<-entered
	_ = outRead.Close()
	_, _ = io.WriteString(inWrite, request(2, "ping", `{}`)+"\n")
	if got := <-entered; got != "cancelled" {
		t.Errorf("got %q", got)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("a client that left is no error: %v", err)
		}
	case <-time.After(patience):
		t.Error("the server did not end")
	}
	_ = inWrite.Close()
}

func TestInitialize(t *testing.T) {
	s, _, _ := gated(t)
	c := serve(t, s)
	c.send(request(1, "initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`),
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	var got struct {
		ProtocolVersion string
		Instructions    string
		ServerInfo      struct{ Name string }
		Capabilities    struct{ Tools *struct{} }
	}
	if err := json.Unmarshal(c.next().Result, &got); err != nil {
		t.Fatal(err)
	}
	if got.ProtocolVersion != "2025-06-18" || got.ServerInfo.Name != "yieldlog" || got.Capabilities.Tools == nil {
		t.Errorf("got %+v", got)
	}
	if n := len(got.Instructions); n == 0 || n >= 2048 {
		t.Errorf("the instructions have %d bytes", n)
	}
}

func TestOutboxWritesWhatWasPutBeforeClose(t *testing.T) {
	o := newOutbox()
	o.put([]byte("a"))
	o.put([]byte("b"))
	o.close()
	o.putLine(outLine{data: []byte("late"), done: func(written bool) {
		if written {
			t.Error("a line after the end was written")
		}
	}})
	var b strings.Builder
	if err := o.run(&b); err != nil || b.String() != "a\nb\n" {
		t.Errorf("wrote %q, %v", b.String(), err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestOutboxTellsWhatWasNotWritten(t *testing.T) {
	o := newOutbox()
	var told []bool
	for range 2 {
		o.putLine(outLine{data: []byte("x"), done: func(written bool) { told = append(told, written) }})
	}
	if err := o.run(brokenWriter{}); err == nil || !cmp.Equal(told, []bool{false, false}) {
		t.Errorf("told %v, %v", told, err)
	}
}
