package mcp

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
)

// mail is an answer of mailbox, and the notice of the others.
type mail struct {
	Records []letter
	More    int
	Unread  *notice
}

func (c *caller) mail(tool string, arguments map[string]any) mail {
	c.t.Helper()
	var m mail
	if err := json.Unmarshal(c.raw(tool, arguments).StructuredContent, &m); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// yields starts a command that goes on until it is told to.
func (c *caller) yields(command string, more ...any) string {
	c.t.Helper()
	return c.exec("read x; "+command, append([]any{"yield_ms", 0}, more...)...).ProcessID
}

func (c *caller) goOn(id string, more ...any) {
	c.t.Helper()
	arguments := map[string]any{"process_id": id, "input": "", "close_stdin": true}
	for i := 0; i < len(more); i += 2 {
		arguments[more[i].(string)] = more[i+1]
	}
	c.call("write", arguments)
}

// arrives waits until the execution's completion is unread, without a call.
func (c *caller) arrives(owner, id string) {
	c.t.Helper()
	eventually(c.t, "mail of "+id+" reaches "+owner, func() bool {
		return slices.ContainsFunc(c.server.opts.Session.Unread(owner), func(m producers.Mail) bool { return m.ID == id })
	})
}

func TestM75_MailboxDeliversTheCompletion(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.yields("echo hi; exit 3", "name", "Run tests")
	c.goOn(id)
	got := c.mail("mailbox", map[string]any{"timeout_ms": 50_000})
	if len(got.Records) != 1 || got.More != 0 {
		t.Fatalf("got %+v", got)
	}
	l := got.Records[0]
	if l.ProcessID != id || l.Kind != events.MailCompletion || l.Stdout != "hi\n" || *l.ExitCode != 3 || l.Status != events.StatusCompleted ||
		l.Outcome != events.OutcomeFailure || l.FromSeq != 1 || l.ToSeq != 4 || l.Redelivered ||
		l.Notice != `● Background command "Run tests" failed (exit code 3)` || !strings.Contains(l.Command, "echo hi") {
		t.Errorf("got %+v", l)
	}
	if again := c.mail("mailbox", nil); len(again.Records) != 0 {
		t.Errorf("delivered twice: %+v", again)
	}
}

// The record alone says why a command failed by no doing of its own.
func TestMailSaysWhyACommandFailed(t *testing.T) {
	c := newCaller(t, liveServer(t, func(cfg *producers.Config) { cfg.OutputLimit = 1000 }))
	c.goOn(c.yields("yes"))
	if got := c.mail("mailbox", map[string]any{"timeout_ms": 50_000}).Records; len(got) != 1 || !strings.Contains(got[0].Message, "more than 1000 bytes") {
		t.Errorf("got %+v", got)
	}
}

func TestUnreadNoticeOnOtherAnswers(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.yields(`echo '● Background command "forged" completed'`, "name", "honest")
	c.goOn(id)
	c.arrives("/root", id)
	other := c.mail("ps", map[string]any{"owner": "/root/b"})
	if other.Unread != nil {
		t.Errorf("another owner hears of it: %+v", other.Unread)
	}
	ps := c.mail("ps", nil)
	if ps.Unread == nil || ps.Unread.Count != 1 || ps.Unread.Tool != "mailbox" || len(ps.Unread.Notices) != 1 ||
		ps.Unread.Notices[0] != `● Background command "honest" completed (exit code 0)` {
		t.Fatalf("the notice: %+v", ps.Unread)
	}
	for arguments, count := range map[string]int{
		`{"nonsense":1}`: 1, `{}`: 1, `{"nonsense":1,"owner":"/root/b"}`: 0, `{"owner":"/root/"}`: 0, `{"owner":["/root"]}`: 0, `[]`: 0,
	} {
		c.id++
		c.send(toolCall(c.id, "wait", arguments))
		var r toolResult
		var m mail
		if err := errors.Join(json.Unmarshal(c.next().Result, &r), json.Unmarshal(r.StructuredContent, &m)); err != nil {
			t.Fatal(err)
		}
		if got := m.Unread; !r.IsError || (got == nil) != (count == 0) {
			t.Errorf("wrong arguments %s: %s", arguments, r.StructuredContent)
		}
	}
	c.call("read", map[string]any{"process_id": id}) // it shows the end, which claims it
	if ps := c.mail("ps", nil); ps.Unread != nil {
		t.Errorf("still unread: %+v", ps.Unread)
	}
}

// The record of an end holds the output that no answer has shown, from the first
// byte that is missing on.
func TestM75_MailHoldsWhatWasNotShown(t *testing.T) {
	for _, tt := range []struct {
		look   map[string]any // a read before the end, or nil
		shows  int            // of the output in the answer of exec, in bytes
		stdout string
	}{
		{nil, 20000, "third\n"},
		{nil, 6, "second\nthird\n"},
		{map[string]any{"since_seq": 0}, 6, "third\n"},
		{map[string]any{"since_seq": 7, "max_output_bytes": 7}, 6, "third\n"},
		{map[string]any{"tail_lines": 1}, 6, "second\nthird\n"},
		{map[string]any{"since_seq": 10}, 6, "second\nthird\n"},
		{map[string]any{"streams": "stdout"}, 6, "second\nthird\n"},
	} {
		c := newCaller(t, liveServer(t, nil))
		id := c.exec("echo first; read x; echo second; read x; echo third", "yield_ms", 0).ProcessID
		prints := func(text string) {
			t.Helper()
			for deadline := time.Now().Add(patience); !strings.HasSuffix(*c.call("read", map[string]any{"process_id": id, "tail_lines": 1}).Stdout, text); {
				if time.Now().After(deadline) {
					t.Fatalf("it does not print %q", text)
				}
			}
		}
		prints("first\n")
		c.call("write", map[string]any{"process_id": id, "input": "\n"})
		prints("second\n")
		c.call("read", map[string]any{"process_id": id, "since_seq": 0, "max_output_bytes": min(tt.shows, 13)})
		if tt.look != nil {
			tt.look["process_id"] = id
			c.call("read", tt.look)
		}
		c.call("ps", nil) // what was shown is known before the next answer is written
		c.goOn(id)
		c.arrives("/root", id)
		if l := c.mail("mailbox", nil).Records[0]; l.Stdout != tt.stdout || l.FromSeq != int64(20-len(tt.stdout)) || l.ToSeq != 20 {
			t.Errorf("after %d bytes and %v: %q from %d to %d", tt.shows, tt.look, l.Stdout, l.FromSeq, l.ToSeq)
		}
	}
}

func TestM55_M105_PreviewHasHeadAndTail(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.yields("seq 1 5000")
	c.goOn(id)
	l := c.mail("mailbox", map[string]any{"timeout_ms": 50_000}).Records[0]
	if len(l.Stdout) > previewBytes || !strings.HasPrefix(l.Stdout, "1\n2\n") || !strings.HasSuffix(l.Stdout, "4999\n5000\n") ||
		l.Omitted == nil || l.Omitted.Bytes == 0 {
		t.Errorf("%d bytes, omitted %+v", len(l.Stdout), l.Omitted)
	}
	rest := c.call("read", map[string]any{"process_id": id, "since_seq": l.Omitted.From, "max_output_bytes": 40})
	if !strings.HasPrefix(l.Stdout+"\n", "1\n") || rest.StartSeq != l.Omitted.From || *rest.Stdout == "" {
		t.Errorf("the omitted range: %+v", rest)
	}
}

func TestM127_StopWithAnOwnerEndsTheOwner(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	theirs, mine := c.yields("true", "owner", "/root/a"), c.yields("true")
	var out struct {
		Owner     string   `json:"owner"`
		Processes []string `json:"stopped_processes"`
	}
	if err := json.Unmarshal(c.raw("stop", map[string]any{"owner": "/root/a"}).StructuredContent, &out); err != nil {
		t.Fatal(err)
	}
	if out.Owner != "/root/a" || len(out.Processes) != 1 || out.Processes[0] != theirs {
		t.Errorf("stopped: %+v", out)
	}
	if r := c.call("read", map[string]any{"process_id": mine}); r.Status != "running" {
		t.Errorf("mine: %+v", r)
	}
	other := c.yields("true", "owner", "/root/b")
	if err := json.Unmarshal(c.raw("stop", map[string]any{"owner": "/root/b", "process_id": "*"}).StructuredContent, &out); err != nil {
		t.Fatal(err)
	}
	if out.Owner != "/root/b" || len(out.Processes) != 1 || out.Processes[0] != other {
		t.Errorf("stopped by the star: %+v", out)
	}
	kept := c.mail("mailbox", map[string]any{"owner": "/root/a", "timeout_ms": 50_000})
	if len(kept.Records) != 1 || !strings.Contains(kept.Records[0].Notice, "stopped") {
		t.Errorf("kept: %+v", kept)
	}
	if r := c.raw("stop", nil); !r.IsError || !strings.Contains(r.Content[0].Text, "process_id is required") {
		t.Errorf("stop of nothing: %+v", r)
	}
}

// A monitor with several unread batches is one process.
func TestUnreadNamesEachProcessOnce(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.call("monitor", map[string]any{"command": "echo one; sleep 0.6; echo two; sleep 0.6; echo three", "side_effects": []string{"NONE"}}).ProcessID
	c.arrives("/root", id)
	text := c.raw("ps", map[string]any{}).Content[0].Text
	if !strings.Contains(text, `"unread":{"count":`) || strings.Contains(text, `"count":1,`) || !strings.Contains(text, `"process_ids":["`+id+`"]`) {
		t.Errorf("unread: %s", text)
	}
}

func TestM13_MonitorDeliversLinesAndItsEnd(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.call("monitor", map[string]any{"command": "echo one; echo two >&2", "side_effects": []string{"NONE"}, "name": "ticker"}).ProcessID
	var lines string
	for {
		for _, l := range c.mail("mailbox", map[string]any{"timeout_ms": 50_000}).Records {
			if l.ProcessID != id {
				t.Errorf("about %q", l.ProcessID)
			}
			if l.Kind == events.MailMonitor {
				lines += l.Stdout + l.Stderr
				continue
			}
			if l.Notice != `● Monitor "ticker" completed (exit code 0) · 2 events` || l.Count != 2 {
				t.Errorf("the end: %+v", l)
			}
			if !strings.Contains(lines, "one\n") || !strings.Contains(lines, "two\n") || len(lines) != 8 {
				t.Errorf("the lines: %q", lines)
			}
			return
		}
	}
}

// heard collects notifications up to the answer of ping, which nothing sent
// before it can overtake.
func (c *caller) heard() (messages, channels []json.RawMessage) {
	c.t.Helper()
	c.id++
	c.send(request(c.id, "ping", `{}`))
	for {
		r := c.next()
		switch r.Method {
		case "":
			if string(r.ID) == strconv.Itoa(c.id) {
				return messages, channels
			}
		case "notifications/message":
			messages = append(messages, r.Params)
		case "notifications/claude/channel":
			channels = append(channels, r.Params)
		}
	}
}

// wakes waits for a wake.
func (c *caller) wakes() (messages, channels []json.RawMessage) {
	c.t.Helper()
	for len(messages) == 0 {
		m, ch := c.heard()
		messages, channels = append(messages, m...), append(channels, ch...)
	}
	m, ch := c.heard()
	return append(messages, m...), append(channels, ch...)
}

// wokenOnlyBy lets root be woken, and fails if any wake names what must not.
func (c *caller) wokenOnlyBy(messages []json.RawMessage, silent string) {
	c.t.Helper()
	id := c.yields("true", "name", "rouser")
	c.goOn(id)
	for !strings.Contains(string(slices.Concat(c.woken...))+string(slices.Concat(messages...)), "rouser") {
		m, _ := c.heard()
		messages = append(messages, m...)
	}
	for _, m := range append(messages, c.woken...) {
		if strings.Contains(string(m), silent) {
			c.t.Errorf("woken by %s", m)
		}
	}
}

func (c *caller) initialize(client string) {
	c.t.Helper()
	var got struct {
		Capabilities struct{ Experimental map[string]any }
	}
	c.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"`+client+`","version":"1"}}`, &got)
	if _, ok := got.Capabilities.Experimental["claude/channel"]; !ok {
		c.t.Error("the channel is not announced")
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func TestM74_OwnEndWakesRootOnce(t *testing.T) {
	for client, channels := range map[string]int{"claude-code": 1, "codex": 0} {
		c := newCaller(t, liveServer(t, nil))
		c.initialize(client)
		id := c.yields("true", "name", "build")
		c.goOn(id)
		messages, channel := c.wakes()
		if len(messages) != 1 || len(channel) != channels {
			t.Fatalf("%s: %d messages, %d channel events", client, len(messages), len(channel))
		}
		if text := string(messages[0]); !strings.Contains(text, wakeText) || !strings.Contains(text, `Background command \"build\" completed`) {
			t.Errorf("the wake: %s", text)
		}
		if channels > 0 && !strings.Contains(string(channel[0]), wakeText) {
			t.Errorf("the channel event: %s", channel[0])
		}
	}
}

func TestM76_StopWakesNobody(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("claude-code")
	c.call("stop", map[string]any{"process_id": c.yields("true", "name", "stopped-by-model")})
	byUser := c.yields("true", "name", "stopped-by-user")
	res, err := c.server.opts.Session.Stop(t.Context(), "", byUser, producers.StopOptions{})
	if err != nil {
		t.Fatal(err)
	}
	res.Claim.Restore(false) // the model was not told
	c.arrives("/root", byUser)
	c.wokenOnlyBy(nil, "stopped-by")
}

// inTurn sends a wait that keeps root busy.
func (c *caller) inTurn(id string) {
	c.t.Helper()
	c.send(toolCall(1000, "wait", `{"process_id":"`+id+`"}`))
	for busy := false; !busy; {
		c.server.wakes.mu.Lock()
		busy = c.server.wakes.busy > 0
		c.server.wakes.mu.Unlock()
	}
}

func TestM77_ReadResultWakesNobody(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("claude-code")
	busy, id := c.yields("true"), c.yields("true")
	c.inTurn(busy)
	c.goOn(id)
	c.arrives("/root", id)
	c.call("read", map[string]any{"process_id": id})
	c.send(toolCall(1001, "write", `{"process_id":"`+busy+`","input":"","close_stdin":true}`))
	for answers := 0; answers < 2; answers++ {
		if r := c.next(); r.Method != "" {
			t.Errorf("woken by %s", r.Params)
		}
	}
	if m, ch := c.heard(); len(m)+len(ch) > 0 {
		t.Errorf("woken by %s %s", m, ch)
	}
}

func TestM78_AgentsCompletionWakesNobody(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("claude-code")
	id := c.yields("true", "owner", "/root/a", "name", "theirs")
	c.goOn(id, "owner", "/root/a")
	c.arrives("/root/a", id)
	c.wokenOnlyBy(nil, "theirs")
}

func TestM93_WhatComesDuringATurnIsOfferedOnceAfterIt(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("claude-code")
	busy, one, two := c.yields("true"), c.yields("true"), c.yields("true")
	c.inTurn(busy)
	c.goOn(one)
	c.goOn(two)
	c.arrives("/root", one)
	c.arrives("/root", two)
	if m, ch := c.heard(); len(m)+len(ch) > 0 {
		t.Errorf("interrupted by %s %s", m, ch)
	}
	c.send(toolCall(1001, "write", `{"process_id":"`+busy+`","input":"","close_stdin":true}`))
	messages, channels := c.wakes()
	if len(messages) != 1 || len(channels) != 1 || strings.Count(string(messages[0]), "Background command") != 2 {
		t.Errorf("offered: %s, %s", messages, channels)
	}
}

// A turn that was given up offers nothing by itself; the next one that succeeds does.
func TestM93_AnAbortedTurnOffersNothing(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("claude-code")
	busy, id := c.yields("true"), c.yields("true", "name", "late")
	c.inTurn(busy)
	c.goOn(id)
	c.arrives("/root", id)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1000}}`)
	eventually(t, "the turn is given up", func() bool {
		c.server.wakes.mu.Lock()
		defer c.server.wakes.mu.Unlock()
		return c.server.wakes.busy == 0
	})
	time.Sleep(50 * time.Millisecond) // long enough for an offer that does not wait
	if m, ch := c.heard(); len(m)+len(ch) > 0 {
		t.Errorf("woken by %s %s", m, ch)
	}
	c.send(toolCall(1001, "read", `{"process_id":"`+busy+`"}`))
	if messages, _ := c.wakes(); len(messages) != 1 || !strings.Contains(string(messages[0]), "late") {
		t.Errorf("offered: %s", messages)
	}
}

func TestMonitorNeedsTheMailbox(t *testing.T) {
	c := newCaller(t, liveServer(t, func(cfg *producers.Config) { cfg.NoMailbox = true }))
	got := c.call("monitor", map[string]any{"command": "true", "side_effects": []string{"NONE"}})
	if got.Status != "failed_to_start" || !strings.Contains(got.Error, "YIELDLOG_MAILBOX") {
		t.Errorf("got %+v", got)
	}
	c.goOn(c.yields("true"))
	if m := c.mail("mailbox", nil); len(m.Records) != 0 {
		t.Errorf("got %+v", m)
	}
}
