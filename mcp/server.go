package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"

	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// Server answers MCP clients. It is safe for concurrent use.
type Server struct {
	opts  Options
	log   *slog.Logger
	tools map[string]*tool
	// protocol answers everything but tool calls.
	protocol *mcpgoserver.MCPServer
	legacy   legacy
	wakes    *wakes
}

// Options says what a server works with.
type Options struct {
	// Version is yieldlog's version, as initialize tells it.
	Version string
	// Session runs the commands; its executions are the ones that the tools see.
	Session Session
	// Facts and Processes are the projections, the second driven by the first.
	Facts     Facts
	Processes *projections.Processes
	// Mailboxes, driven by Facts too, makes the mailbox resources; nil offers none.
	Mailboxes *projections.Mailbox
	// Feed, driven by Facts too, feeds what clients are told unasked: progress,
	// and that a resource changed. nil tells nothing.
	Feed *Feed
	// Pages reads output.
	Pages Pages
	// Transcript reads the rows of a session as the owner sees them, or with ""
	// people; nil offers no transcripts.
	Transcript func(ctx context.Context, session, owner string) ([]projections.Row, error)
	// Search finds lines; nil offers no search.
	Search func(ctx context.Context, q replay.Query) iter.Seq2[replay.Match, error]
	// Earlier finds what earlier sessions left behind; nil finds nothing.
	Earlier Earlier
	// MaxOutputBytes is the default and the most that an answer shows of a
	// stream, in bytes; 0 is 20000.
	MaxOutputBytes int
	// Logger is for what no client can be told; nil discards.
	Logger *slog.Logger
}

// New returns a server. It starts nothing.
func New(o Options) *Server {
	if o.MaxOutputBytes <= 0 {
		o.MaxOutputBytes = 20000
	}
	s := newServer(o)
	s.add(s.allTools()...)
	if o.Session != nil {
		o.Session.Mailed(s.wakes.mailed)
	}
	s.addResources()
	return s
}

// newServer is a server without tools.
func newServer(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, log: o.Logger, tools: map[string]*tool{}}
	s.wakes = &wakes{server: s, peers: map[*peer]bool{}, due: map[string]bool{}}
	s.legacy = legacy{earlier: o.Earlier, forgotten: map[string]bool{}}
	hooks := &mcpgoserver.Hooks{}
	hooks.AddAfterListResources(s.listResources)
	s.protocol = mcpgoserver.NewMCPServer("yieldlog", o.Version,
		mcpgoserver.WithHooks(hooks),
		mcpgoserver.WithTitle("yieldlog"),
		mcpgoserver.WithInstructions(instructions),
		mcpgoserver.WithToolCapabilities(false),
		mcpgoserver.WithResourceCapabilities(true, false),
		mcpgoserver.WithLogging(),
		mcpgoserver.WithExperimental(map[string]any{channelCapability: struct{}{}}),
		mcpgoserver.WithRecovery(),
	)
	return s
}

func (s *Server) add(tools ...*tool) {
	for _, t := range tools {
		s.tools[t.name] = t
		s.protocol.AddTool(t.listing(), nil) // it is called by callLine
	}
}

// join makes a client known to mcp-go.
func (s *Server) join(ctx context.Context, p *peer) (leave func(), err error) {
	if err := s.protocol.RegisterSession(ctx, p); err != nil {
		return nil, err
	}
	stop := make(chan struct{})
	go p.forward(stop)
	return func() {
		close(stop)
		s.protocol.UnregisterSession(context.WithoutCancel(ctx), p.id)
	}, nil
}

// handle lets mcp-go answer a line, and returns the response, or nil.
func (s *Server) handle(ctx context.Context, p *peer, line []byte) []byte {
	ctx = s.protocol.WithContext(ctx, p)
	// The stateless protocol would cost the clients' channels and sessions, and gain nothing.
	ctx = mcpgoserver.WithSupportedProtocolVersions(ctx, mcpgo.LegacyProtocolVersions())
	switch response := s.protocol.HandleMessage(ctx, line).(type) {
	case nil:
		return nil
	case mcpgo.JSONRPCError:
		// mcp-go takes every error of a resource's handler for an internal one.
		if strings.HasSuffix(response.Error.Message, mcpgoserver.ErrResourceNotFound.Error()) {
			response.Error.Code = mcpgo.RESOURCE_NOT_FOUND
		}
		return encode(response)
	default:
		return encode(response)
	}
}

// callParams are those of tools/call.
type callParams struct {
	Name      string                     `json:"name"`
	Arguments json.RawMessage            `json:"arguments"`
	Meta      map[string]json.RawMessage `json:"_meta"`
}

// callLine runs a tools/call and returns the response; its progress goes to out.
// bad says why its params are none. The turn, which may be nil, is passed on at
// the latest with that.
func (s *Server) callLine(ctx context.Context, out *outbox, id json.RawMessage, params callParams, bad error, turn *producers.Turn) outLine {
	defer turn.Pass()
	fail := func(code int, format string, args ...any) outLine {
		return outLine{data: errorLine(id, protocolError(code, format, args...))}
	}
	if bad != nil {
		return fail(codeInvalidParams, "tools/call needs params: an object with a name, and with arguments and _meta that are objects")
	}
	t, ok := s.tools[params.Name]
	if !ok {
		return fail(codeInvalidParams, "unknown tool %s: the tools are %s",
			quoteShort(params.Name), strings.Join(slices.Sorted(maps.Keys(s.tools)), ", "))
	}
	c := &call{meta: decodeMeta(params.Meta), turn: turn}
	c.notify = func(method string, params any) { out.offer(notificationLine(method, params)) }
	r, err := s.call(ctx, t, c, params.Arguments)
	switch {
	case err != nil && ctx.Err() != nil: // a call that its client cancelled is not answered
		return fail(codeInternal, "%s: the server is ending, and its commands with it; what they did is in the ledger. "+
			"Call again once there is a new server", t.name)
	case err != nil:
		return fail(codeInternal, "%s: %v", t.name, err)
	}
	return outLine{data: r.line(id), done: r.done}
}

// call decodes the arguments and runs the tool. A panic ends the call, not the server.
func (s *Server) call(ctx context.Context, t *tool, c *call, raw json.RawMessage) (r reply, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("tool panicked", "tool", t.name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal error: %v", p)
			c.end(false)
		}
	}()
	c.tool = t.name
	c.args, err = decodeArguments(t.params, raw)
	if err != nil {
		return s.withUnread(t.failure(err.Error(), raw), ownerIn(raw)), nil
	}
	defer func() {
		if err != nil {
			c.end(false)
		}
		r.done = c.end
	}()
	s.wakes.begin(c)
	r, err = t.run(ctx, c)
	var refused *refusal
	if errors.As(err, &refused) {
		r, err = t.failure(refused.text, raw), nil
	}
	if err == nil && t.name != "mailbox" {
		r = s.withUnread(r, c.args.owner())
	}
	return r, err
}

// refusal is an error of the caller: the text is for the model.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refuse(format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...)}
}
