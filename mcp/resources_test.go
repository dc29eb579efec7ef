package mcp

import (
	"context"
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

// ask sends a request and returns its result, into v.
func (c *caller) ask(method, params string, v any) {
	c.t.Helper()
	c.id++
	c.send(request(c.id, method, params))
	r := c.next()
	for r.Method != "" { // a notification
		r = c.next()
	}
	if r.Error != nil {
		c.t.Fatalf("%s: %+v", method, r.Error)
	}
	if err := json.Unmarshal(r.Result, v); err != nil {
		c.t.Fatal(err)
	}
}

type resourceContents struct {
	Contents []struct{ URI, Text string }
}

func TestResources(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("seq 1 100000; echo oops >&2", "name", "count", "max_output_bytes", 100).ProcessID

	var list struct {
		Resources []struct{ URI, Name string }
	}
	c.ask("resources/list", `{}`, &list)
	var uris []string
	for _, r := range list.Resources {
		uris = append(uris, r.URI)
	}
	if len(uris) != 4 || !slices.Contains(uris, outputURI(id)) {
		t.Fatalf("listed: %v", list)
	}
	var output resourceContents
	c.ask("resources/read", `{"uri":"`+outputURI(id)+`"}`, &output)
	if len(output.Contents) != 2 || len(output.Contents[0].Text) != 588895 || output.Contents[1].Text != "oops\n" {
		t.Errorf("the output: %d parts, %d bytes", len(output.Contents), len(output.Contents[0].Text))
	}
	var transcript resourceContents
	c.ask("resources/read", `{"uri":"`+transcriptURI(c.server.opts.Session.ID())+`"}`, &transcript)
	if len(transcript.Contents) != 1 || !strings.Contains(transcript.Contents[0].Text, "count") {
		t.Errorf("the transcript: %+v", transcript)
	}
	for _, unknown := range []string{
		outputURI("x"), transcriptURI("x"), "yieldlog://nothing", mailboxURI(""), mailboxURI("root"), mailboxURI("/root/"),
	} {
		c.id++
		c.send(request(c.id, "resources/read", `{"uri":"`+unknown+`"}`))
		if r := c.next(); r.Error == nil || r.Error.Code != -32002 {
			t.Errorf("%s: %s, %+v", unknown, r.Result, r.Error)
		}
	}
}

// Output that was pruned is not taken for output that never was.
func TestPrunedOutputIsToldOf(t *testing.T) {
	l := newLedger(t)
	server, _ := serverOn(t, l, producers.DefaultConfig())
	c := newCaller(t, server)
	id := c.exec("echo out").ProcessID
	note := func(ctx context.Context, session, owner, execution string, p events.Pruned) error {
		return producers.NotePruned(ctx, l, session, owner, execution, p)
	}
	if _, err := l.PruneBefore(t.Context(), time.Now().Add(time.Second), "asked", note); err != nil {
		t.Fatal(err)
	}
	for e, err := range l.Read(t.Context(), events.Filter{Kind: events.KindPruned}, 1, 0) {
		if err = errors.Join(err, server.opts.Facts.WaitFor(t.Context(), e.Seq)); err != nil {
			t.Fatal(err)
		}
	}
	var output resourceContents
	c.ask("resources/read", `{"uri":"`+outputURI(id)+`"}`, &output)
	if n := len(output.Contents); n != 3 || output.Contents[0].Text != "" || output.Contents[2].Text != "4 bytes of the output were pruned" {
		t.Errorf("the output: %+v", output)
	}
}

func TestResourcesAreListedNewestFirst(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	var want []string
	for range 20 {
		want = append(want, outputURI(c.exec("true").ProcessID))
	}
	slices.Reverse(want)
	for range 3 {
		var list struct{ Resources []struct{ URI string } }
		c.ask("resources/list", `{}`, &list)
		var got []string
		for _, r := range list.Resources {
			got = append(got, r.URI)
		}
		if len(got) != 23 || !slices.Equal(got[3:], want) {
			t.Errorf("listed: %q", got)
		}
	}
}

func TestSubscribersHearOfChanges(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("read x; echo $x", "yield_ms", 0).ProcessID
	c.ask("resources/subscribe", `{"uri":"`+outputURI(id)+`"}`, new(struct{}))
	c.send(toolCall(99, "write", `{"process_id":"`+id+`","input":"hello\n"}`))
	for {
		r := c.next()
		if r.Method == "notifications/resources/updated" && strings.Contains(string(r.Params), outputURI(id)) {
			return
		}
	}
}

func TestUnsubscribedClientsHearNothing(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.yields("true")
	transcript := transcriptURI(c.server.opts.Session.ID())
	for _, uri := range []string{outputURI(id), transcript} {
		c.ask("resources/subscribe", `{"uri":"`+uri+`"}`, new(struct{}))
	}
	c.ask("resources/unsubscribe", `{"uri":"`+outputURI(id)+`"}`, new(struct{}))
	c.send(toolCall(1000, "write", `{"process_id":"`+id+`","input":"","close_stdin":true}`))
	for asked := false; ; {
		r := c.next()
		switch {
		case strings.Contains(string(r.Params), outputURI(id)):
			t.Errorf("told of %s", r.Params)
		case strings.Contains(string(r.Params), transcript) && !asked:
			asked = true // what changed at the same time comes before the answer
			c.send(request(2000, "ping", `{}`))
		case string(r.ID) == "2000":
			return
		}
	}
}

// A transcript can be read as an owner sees it.
func TestM19_OwnedTranscripts(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	for _, owner := range []string{"/root/a b", "/alone"} {
		for range 2 {
			id := c.yields("true", "owner", owner)
			c.goOn(id, "owner", owner)
			c.arrives(owner, id)
		}
	}
	read := func(uri string) string {
		var got resourceContents
		c.ask("resources/read", string(encode(map[string]string{"uri": uri})), &got)
		if len(got.Contents) != 1 {
			t.Fatalf("%s has %d parts", uri, len(got.Contents))
		}
		return got.Contents[0].Text
	}
	session := c.server.opts.Session.ID()
	if got := read(ownedTranscriptURI(session, "/root")); !strings.HasSuffix(got, "● 4 completions of other owners: 4 completed\n") {
		t.Errorf("root sees %q", got)
	}
	own := read(ownedTranscriptURI(session, "/root/a b"))
	if strings.Count(own, "● Background command") != 2 || strings.Count(own, "read x; true\n") != 2 {
		t.Errorf("the owner sees %q", own)
	}
	if got := read(transcriptURI(session) + "?owner=a%20b"); got != own {
		t.Errorf("without its path the owner sees %q", got)
	}
	var list struct{ Resources []struct{ URI string } }
	c.ask("resources/list", `{}`, &list)
	mailboxes := 0
	for _, r := range list.Resources {
		if strings.HasPrefix(r.URI, mailboxURI("")) {
			mailboxes++
		}
		if !strings.HasSuffix(r.URI, "/output") {
			read(r.URI)
		}
	}
	if mailboxes != 3 {
		t.Errorf("%d mailboxes are listed", mailboxes)
	}
}

func TestMailboxResource(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	uri := mailboxURI("/root")
	c.ask("resources/subscribe", `{"uri":"`+uri+`"}`, new(struct{}))
	id := c.yields("true", "name", "build")
	c.send(toolCall(1000, "write", `{"process_id":"`+id+`","input":"","close_stdin":true}`))
	for {
		if r := c.next(); r.Method == "notifications/resources/updated" && strings.Contains(string(r.Params), uri) {
			break
		}
	}
	c.arrives("/root", id)
	read := func() string {
		var got resourceContents
		c.id++
		c.send(request(c.id, "resources/read", `{"uri":"`+uri+`"}`))
		for {
			r := c.next()
			if string(r.ID) == strconv.Itoa(c.id) {
				if err := json.Unmarshal(r.Result, &got); err != nil {
					t.Fatal(err)
				}
				return got.Contents[0].Text
			}
		}
	}
	for range 2 { // looking acknowledges nothing
		if text := read(); !strings.Contains(text, `Background command "build" completed`) || !strings.HasSuffix(text, "unread\n") {
			t.Errorf("the mailbox: %q", text)
		}
	}
	if n := len(c.server.opts.Session.Unread("/root")); n != 1 {
		t.Errorf("%d unread", n)
	}
}
