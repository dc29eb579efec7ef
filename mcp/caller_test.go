package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// liveServer is a whole server on a ledger of its own, in t.TempDir().
func liveServer(t *testing.T, change func(*producers.Config)) *Server {
	t.Helper()
	cfg := producers.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, _ := serverOn(t, newLedger(t), cfg)
	return s
}

func newLedger(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(context.Background(), ledger.Options{Dir: t.TempDir(), Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatalf("opening the ledger: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the ledger: %v", err)
		}
	})
	return l
}

// serverOn is a server with a session of its own on the ledger. end closes
// the session; the test's end does, too.
func serverOn(t *testing.T, l *ledger.Ledger, cfg producers.Config) (s *Server, end func()) {
	t.Helper()
	ctx := context.Background()
	processes, mailboxes, feed := projections.NewProcesses(), projections.NewMailbox(), NewFeed()
	engine := replay.NewEngine(processes, mailboxes, feed)
	t.Cleanup(l.Tap(engine.Apply))
	session, err := producers.OpenSession(ctx, l, cfg, events.Opened{Program: "mcp", Version: "test"})
	if err != nil {
		t.Fatalf("opening the session: %v", err)
	}
	end = func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := session.Close(ctx, "the test is over"); err != nil {
			t.Errorf("closing the session: %v", err)
		}
	}
	t.Cleanup(end)
	return New(Options{
		Version: "test", Session: session, Facts: engine, Processes: processes, Mailboxes: mailboxes, Feed: feed,
		Pages: func(ctx context.Context, session, execution string, r replay.PageRequest) (replay.Page, error) {
			return replay.ReadPage(ctx, l, session, execution, r)
		},
		Transcript: func(ctx context.Context, session, owner string) ([]projections.Row, error) {
			return replay.Transcript(ctx, l, session, owner, 0)
		},
		Earlier: replay.Earlier{Source: l, Session: session.ID()},
		Search: func(ctx context.Context, q replay.Query) iter.Seq2[replay.Match, error] {
			return replay.Search(ctx, l, q)
		},
		MaxOutputBytes: cfg.MaxOutputBytes,
	}), end
}

// toolResult is the result of a tools/call.
type toolResult struct {
	Content           []struct{ Type, Text string }
	StructuredContent json.RawMessage
	IsError           bool
}

// caller calls tools one after the other.
type caller struct {
	// woken are the wakes that came while an answer was waited for.
	woken []json.RawMessage

	*client
	server *Server
	id     int
}

func newCaller(t *testing.T, s *Server) *caller { return &caller{client: serve(t, s), server: s} }

func (c *caller) raw(tool string, arguments map[string]any) toolResult {
	c.t.Helper()
	c.id++
	c.send(toolCall(c.id, tool, string(encode(arguments))))
	for {
		r := c.next()
		if r.Method == "notifications/message" {
			c.woken = append(c.woken, r.Params)
		}
		if r.Method != "" {
			continue
		}
		if r.Error != nil {
			c.t.Fatalf("%s: protocol error %+v", tool, r.Error)
		}
		var result toolResult
		if err := json.Unmarshal(r.Result, &result); err != nil {
			c.t.Fatal(err)
		}
		c.validate(tool, result)
		return result
	}
}

// validate holds an answer, also one that reports an error, to the tool's
// output schema: clients do.
func (c *caller) validate(tool string, r toolResult) {
	c.t.Helper()
	parse := func(raw []byte) any {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			c.t.Fatalf("%s: %v", tool, err)
		}
		return v
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("tool.json", parse(encode(c.server.tools[tool].output))); err != nil {
		c.t.Fatal(err)
	}
	if err := compiler.MustCompile("tool.json").Validate(parse(r.StructuredContent)); err != nil {
		c.t.Errorf("%s: %v", tool, err)
	}
}

// call checks that both forms are the same JSON and returns it.
func (c *caller) call(tool string, arguments map[string]any) facts {
	c.t.Helper()
	r := c.raw(tool, arguments)
	if len(r.Content) != 1 || r.Content[0].Text != string(r.StructuredContent) {
		c.t.Errorf("%s: the text %q is not the structured content %s", tool, r.Content, r.StructuredContent)
	}
	var f facts
	if err := json.Unmarshal(r.StructuredContent, &f); err != nil {
		c.t.Fatal(err)
	}
	return f
}

func (c *caller) exec(command string, more ...any) facts {
	c.t.Helper()
	arguments := map[string]any{"command": command, "side_effects": []string{"NONE"}, "yield_ms": 60000}
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	return c.call("exec", arguments)
}
