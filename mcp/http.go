package mcp

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
)

const (
	// headerTime bounds how long a client may take to send its headers, and
	// bodyTime how long for all of a message.
	headerTime, bodyTime = 10 * time.Second, time.Minute
	// streamIdle is how long a stream is silent before it is given a sign of life:
	// HTTP libraries give up one that says nothing for minutes.
	streamIdle = 30 * time.Second
	// silentMost is how long a client may be silent, and not listen either, before
	// it has left, and lookSilent how often such clients are looked for.
	silentMost, lookSilent = time.Hour, time.Minute
	// maxClients is how many clients there may be before the one that was silent
	// the longest makes room for a new one.
	maxClients = 100

	sessionHeader   = "Mcp-Session-Id"
	lastEventHeader = "Last-Event-ID"
	// lastEvent is the id of the event behind which nothing comes. No call's is like it.
	lastEvent = "."
)

// Open makes the server for a client, which is named by its first message, or by
// nothing. leave is called once, when the client has left.
type Open func(ctx context.Context, client string) (s *Server, leave func(reason string) error, err error)

// httpServer is the streamable HTTP transport. Each client is a [conn], as over
// stdio, and is known by the session id that its requests bear.
type httpServer struct {
	ctx  context.Context
	open Open

	mu      sync.Mutex
	clients map[string]*httpClient
	over    bool
	moving  sync.WaitGroup // clients that come or leave; it grows under mu, until over and all left
}

// httpClient is a client that posts its messages, and may listen for more.
type httpClient struct {
	*conn
	id     string
	ctx    context.Context
	told   chan outLine // what it is told unasked, for whoever listens; closed at the end
	leave  func(reason string)
	posts  sync.WaitGroup // its messages that are being answered; it grows while the client is known
	busy   int            // its requests that are being answered; guarded by httpServer.mu
	silent time.Time      // since when there are none
}

// ServeHTTP serves MCP over streamable HTTP at /mcp on the listener, until ctx
// is done; the clients' calls are then cancelled. Every request must carry the
// token as a bearer; "" asks for none.
func ServeHTTP(ctx context.Context, l net.Listener, token string, open Open) error {
	h := &httpServer{ctx: ctx, open: open, clients: map[string]*httpClient{}}
	server := h.server(token)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	look := time.NewTicker(lookSilent)
	defer look.Stop()
	for {
		select {
		case now := <-look.C:
			h.end("the client was silent", h.silentSince(now.Add(-silentMost))...)
		case err := <-served:
			h.close("listening failed")
			return fmt.Errorf("serving HTTP: %w", err)
		case <-ctx.Done():
			h.close("signalled")
			grace, done := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
			defer done()
			if err := server.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("shutting HTTP down: %w", err)
			}
			return server.Close()
		}
	}
}

// server limits the time that a request takes to come, but not that of its answer.
func (h *httpServer) server(token string) *http.Server {
	return &http.Server{
		Handler: guard(h, token), ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: silentMost,
	}
}

func (h *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		h.post(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuseHTTP(w, http.StatusMethodNotAllowed, "the methods are GET, POST and DELETE")
		return
	}
	if last := r.Header.Get(lastEventHeader); r.Method == http.MethodGet && last != "" {
		failBroken(w, r, last)
		return
	}
	c := h.client(w, r)
	if c == nil {
		return
	}
	defer h.release(c)
	if r.Method == http.MethodGet {
		stream(w, r, "", c.told)
		return
	}
	h.end("the client left", c)
	w.WriteHeader(http.StatusNoContent)
}

// post takes one message.
func (h *httpServer) post(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuseHTTP(w, http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLine))
	var tooLong *http.MaxBytesError
	if errors.As(err, &tooLong) {
		refuseHTTP(w, http.StatusRequestEntityTooLarge, "%v", errLineTooLong)
		return
	}
	if err != nil {
		refuseHTTP(w, http.StatusRequestTimeout, "the message did not come: %v", err)
		return
	}
	m, bad := parse(text)
	switch {
	case bad != nil:
		_ = writeJSON(w, http.StatusBadRequest, errorLine(m.ID, bad))
	case m.Method == "initialize" && m.ID != nil:
		h.initialize(w, m, text) //nolint:contextcheck // the client stays when its request is over
	default:
		if c := h.client(w, r); c != nil {
			defer h.release(c)
			defer c.posts.Done()
			c.answer(w, r, m, text)
		}
	}
}

// initialize admits a client.
func (h *httpServer) initialize(w http.ResponseWriter, m message, text []byte) {
	c, err := h.admit(clientOf(text))
	if err != nil {
		_ = writeJSON(w, http.StatusServiceUnavailable, errorLine(m.ID, protocolError(codeInternal, "%v", err)))
		return
	}
	defer h.release(c)
	response := c.server.handle(c.ctx, c.peer, text)
	if answer, bad := parseMessage(response); bad != nil || answer.Error != nil {
		h.end("the client could not be initialized", c)
	} else {
		w.Header().Set(sessionHeader, c.id)
	}
	_ = writeJSON(w, http.StatusOK, response) // a client that went away needs nothing
}

// admit makes the connection of a client that came. It is busy.
func (h *httpServer) admit(client string) (*httpClient, error) {
	if !h.enter() {
		return nil, errEnding
	}
	defer h.moving.Done()
	server, leave, err := h.open(h.ctx, client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(h.ctx)
	known, part, err := server.connect(ctx, "http")
	if err != nil {
		cancel()
		return nil, errors.Join(err, leave("it could not be served"))
	}
	c := &httpClient{conn: known, id: rand.Text(), ctx: ctx, told: make(chan outLine), busy: 1}
	c.leave = func(reason string) {
		server.wakes.leave(c.peer)
		c.drain(ctx, cancel)
		cancel()
		c.out.close()
		c.await()
		part()
		if err := leave(reason); err != nil {
			server.log.Error("the end of a client", "error", err)
		}
	}
	go c.out.hand(c.told, ctx.Done())
	silent, ok := h.add(c)
	if !ok {
		c.leave("signalled")
		return nil, errEnding
	}
	h.end("the client was silent", silent...)
	return c, nil
}

var errEnding = errors.New("the server is ending")

// enter begins to let a client in, unless the server ends.
func (h *httpServer) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.moving.Add(1)
	}
	return !h.over
}

// add makes the client known, and says which have to make room. It is not ok
// when the server ends.
func (h *httpServer) add(c *httpClient) (silent []*httpClient, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return nil, false
	}
	if len(h.clients) >= maxClients {
		for _, c := range h.clients {
			if c.busy == 0 && (silent == nil || c.silent.Before(silent[0].silent)) {
				silent = []*httpClient{c}
			}
		}
	}
	h.clients[c.id] = c
	return silent, true
}

// client is the one that sends the request, and is busy with it until release;
// nil if it was refused.
func (h *httpServer) client(w http.ResponseWriter, r *http.Request) *httpClient {
	versions := mcpgo.LegacyProtocolVersions()
	if v := r.Header.Get(mcpgo.HeaderProtocolVersion); v != "" && !slices.Contains(versions, v) {
		refuseHTTP(w, http.StatusBadRequest, "the protocol version %s is not served: %s are", quoteShort(v), strings.Join(versions, ", "))
		return nil
	}
	id := r.Header.Get(sessionHeader)
	if id == "" {
		refuseHTTP(w, http.StatusBadRequest, "this needs the %s header that initialize was answered with", sessionHeader)
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.clients[id]
	if c == nil {
		refuseHTTP(w, http.StatusNotFound, "there is no such session: it ended, or an earlier server had it. Initialize another")
		return nil
	}
	c.busy++
	if r.Method == http.MethodPost {
		c.posts.Add(1)
	}
	return c
}

func (h *httpServer) release(c *httpClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.busy--
	c.silent = time.Now()
}

// silentSince lists the clients of which nothing was heard since then.
func (h *httpServer) silentSince(then time.Time) (list []*httpClient) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.clients {
		if c.busy == 0 && c.silent.Before(then) {
			list = append(list, c)
		}
	}
	return list
}

// close ends all clients, and lets none in any more. It returns when all have
// ended, also those that were about to.
func (h *httpServer) close(reason string) {
	h.mu.Lock()
	h.over = true
	clients := slices.Collect(maps.Values(h.clients))
	h.mu.Unlock()
	h.end(reason, clients...)
	h.moving.Wait()
}

// end ends the clients that did not end yet, and returns when they have.
func (h *httpServer) end(reason string, clients ...*httpClient) {
	var left sync.WaitGroup
	defer left.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range clients {
		if h.clients[c.id] != nil {
			delete(h.clients, c.id)
			h.moving.Add(1)
			left.Go(func() {
				defer h.moving.Done()
				c.leave(reason)
			})
		}
	}
}

// answer answers a message: with JSON, or once it tells of its progress with a
// stream. A client that goes away meanwhile does not cancel its call by that, as
// the protocol has it.
func (c *httpClient) answer(w http.ResponseWriter, r *http.Request, m message, text []byte) {
	out := newOutbox()
	answer := c.take(c.ctx, m, text, out) //nolint:contextcheck // see above
	if m.ID == nil || m.Method == "" {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	go func() {
		if answer != nil {
			answer()
		}
		out.close()
	}()
	lines := make(chan outLine)
	go out.hand(lines, nil)
	first, ok := <-lines
	switch {
	case !ok: // it was cancelled
		w.WriteHeader(http.StatusAccepted)
	case first.note:
		stream(w, r, base64.RawURLEncoding.EncodeToString(m.ID), lines, first)
		for line := range lines {
			line.finish(false) // the client went away
		}
	default:
		gone := r.Context().Err() != nil // afterwards it may go, with the answer
		first.finish(writeJSON(w, http.StatusOK, first.data) == nil && !gone)
	}
}

// failBroken answers a client that comes back for the answer of a call whose
// stream broke. Most likely its server died, and the session with it.
func failBroken(w http.ResponseWriter, r *http.Request, event string) {
	if event == lastEvent { // the SDK does not know an error for an answer, and takes this for an end
		w.Header().Set("Allow", "POST, DELETE")
		refuseHTTP(w, http.StatusMethodNotAllowed, "nothing comes behind this event")
		return
	}
	id, err := base64.RawURLEncoding.DecodeString(event)
	m, bad := parse(responseLine(id, "result", json.RawMessage("{}")))
	if err != nil || bad != nil {
		refuseHTTP(w, http.StatusBadRequest, "there is no such event")
		return
	}
	none := make(chan outLine)
	close(none)
	stream(w, r, lastEvent, none, outLine{data: errorLine(m.ID, protocolError(codeInternal,
		"the connection broke before the answer, as when a server dies: what was lost is in the mailbox, what still runs in ps"))})
}

// await blocks while answers are written, unless the client does not read them:
// what they tell counts as told only once it is written, and the session is open.
func (c *httpClient) await() {
	written := make(chan struct{})
	go func() { c.posts.Wait(); close(written) }()
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}

// stream writes messages as server-sent events until there are no more, or the
// client goes away. id, if any, is what the client may come back with for an answer.
func stream(w http.ResponseWriter, r *http.Request, id string, lines <-chan outLine, first ...outLine) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	send := func(line outLine) {
		gone := r.Context().Err() != nil // afterwards it may go, with the message
		if id != "" {
			if !line.note {
				id = lastEvent
			}
			_, _ = fmt.Fprintf(w, "id: %s\n", id)
		}
		_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", line.data) // flush reports the error
		line.finish(flush() == nil && !gone)
	}
	for _, line := range first {
		send(line)
	}
	idle := time.NewTicker(streamIdle)
	defer idle.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				if id != "" && id != lastEvent { // it was cancelled
					_, _ = fmt.Fprintf(w, "id: %s\ndata: \n\n", lastEvent)
				}
				return
			}
			send(line)
		case <-idle.C:
			_, _ = io.WriteString(w, ":\n\n")
			_ = flush()
		case <-r.Context().Done():
			return
		}
	}
}

// writeJSON writes a message as all of a response.
func writeJSON(w http.ResponseWriter, status int, message []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(message)))
	w.WriteHeader(status)
	if _, err := w.Write(message); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// refuseHTTP answers a request that was not looked into.
func refuseHTTP(w http.ResponseWriter, status int, format string, args ...any) {
	_ = writeJSON(w, status, errorLine(nil, protocolError(codeInvalidRequest, format, args...)))
}
