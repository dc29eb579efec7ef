package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// history is the transcript's rows, without those of the session itself.
func (c *caller) history() (rows []projections.Row) {
	c.t.Helper()
	all, err := c.server.opts.Transcript(c.t.Context(), c.server.opts.Session.ID(), "")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range all {
		if r.Kind != projections.RowSession {
			rows = append(rows, r)
		}
	}
	return rows
}

func TestM09_M112_EmptyPollsAddNoRow(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := map[string]any{"process_id": c.yields("true"), "timeout_ms": 1}
	before := len(c.history())
	for range 5 {
		c.call("wait", id)
		c.call("read", map[string]any{"process_id": id["process_id"]})
	}
	if after := len(c.history()); before != 1 || after != before {
		t.Errorf("%d rows became %d", before, after)
	}
}

func TestM10_ControlsStayVisible(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("sleep 600", "yield_ms", 0).ProcessID
	c.goOn(id)
	if got := c.call("write", map[string]any{"process_id": id, "input": "late"}); got.OK {
		t.Errorf("written to a closed input: %+v", got)
	}
	c.call("stop", map[string]any{"process_id": id})
	if got := c.call("write", map[string]any{"process_id": id, "input": "too late"}); got.OK || got.Error != "process has already ended" {
		t.Errorf("written to what has ended: %+v", got)
	}
	eventually(t, "the last input is recorded", func() bool { return len(c.history()) == 5 })
	var got []string
	for _, r := range c.history()[1:] {
		text, _, _ := strings.Cut(r.Text, "failed:")
		got = append(got, string(r.Kind)+" "+text)
	}
	want := "input Input: end of input|input Input: 4 bytes |stop Stop: SIGTERM|input Input: 8 bytes "
	if strings.Join(got, "|") != want {
		t.Errorf("the rows are %q", got)
	}
}

// However often and in whatever way output is looked at, it is recorded once.
func TestM08_M118_LookingRecordsNothing(t *testing.T) {
	l := newLedger(t)
	s, _ := serverOn(t, l, producers.DefaultConfig())
	c := newCaller(t, s)
	const token = "swordfish"
	id := c.yields("printf 'sword'; printf 'fish\\n'")
	c.goOn(id)
	c.arrives("/root", id)
	answers := map[string]map[string]bool{}
	for range 10 {
		for _, look := range []struct {
			tool      string
			arguments map[string]any
		}{
			{"mailbox", nil},
			{"read", map[string]any{"process_id": id}},
			{"wait", map[string]any{"process_id": id}},
			{"read", map[string]any{"process_id": id, "tail_lines": 1}},
			{"ps", nil},
			{"search", map[string]any{"pattern": token}},
			{"stop", map[string]any{"process_id": id}},
		} {
			name := look.tool + string(encode(look.arguments))
			if answers[name] == nil {
				answers[name] = map[string]bool{}
			}
			answers[name][string(c.raw(look.tool, look.arguments).StructuredContent)] = true
		}
	}
	for name, different := range answers {
		want := 1
		if name == "mailboxnull" {
			want = 2 // what is told, and then nothing
		}
		if len(different) != want {
			t.Errorf("%s has %d different answers: %v", name, len(different), different)
		}
	}
	kinds := map[events.Kind]int{}
	for e, err := range l.Read(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Kind()]++
		m, err := events.Encode(e)
		if err != nil || strings.Contains(string(m.Data), token) {
			t.Errorf("%s holds the output: %s, %v", e.Kind(), m.Data, err)
		}
	}
	for _, kind := range []events.Kind{events.KindSettled, events.KindPosted, events.KindAcknowledged} {
		if kinds[kind] != 1 {
			t.Errorf("%d events of kind %s", kinds[kind], kind)
		}
	}
}

// A call that is given up while its command waits for its turn never runs it, and
// lets those behind it in.
func TestM49b_ACancelledCallLeavesTheQueue(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	ran := filepath.Join(t.TempDir(), "ran")
	writes := func(id int, command string) string {
		return toolCall(id, "exec", string(encode(map[string]any{"command": command, "side_effects": []string{"OTHER"}, "yield_ms": 60000})))
	}
	first := c.exec("read x", "side_effects", []string{"OTHER"}, "yield_ms", 0).ProcessID
	c.call("stop", map[string]any{"process_id": first}) // the lane is free
	c.send(writes(1001, "until [ -e "+ran+".go ]; do sleep .01; done"), writes(1002, "touch "+ran), writes(1003, "echo behind"))
	for queued := 0; queued < 2; {
		queued = 0
		c.id++
		c.send(toolCall(c.id, "ps", `{}`))
		var r toolResult
		var f facts
		if err := errors.Join(json.Unmarshal(c.next().Result, &r), json.Unmarshal(r.StructuredContent, &f)); err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Processes {
			if p.State == projections.StateQueued {
				queued++
			}
		}
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1002}}`)
	if err := os.WriteFile(ran+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1001", "1003"} { // 1002 is not answered
		if r := c.next(); string(r.ID) != want {
			t.Errorf("answered %s, want %s: %s", r.ID, want, r.Result)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the cancelled command ran")
	}
}

// A call that is given up as it yields was never answered: its command ends with
// it. One that was answered, or whose client is slow to take it, goes on.
func TestM49_M04_ACallIsCancelledAsItYields(t *testing.T) {
	s := liveServer(t, nil)
	c := newCaller(t, s)
	for _, tt := range []struct{ cancelled, written, ends bool }{
		{true, false, true}, {true, true, false}, {false, false, false}, {false, true, false},
	} {
		for _, tool := range []string{"exec", "monitor"} {
			ctx, cancel := context.WithCancel(t.Context())
			arguments := map[string]any{"command": "sleep 600", "side_effects": []string{"NONE"}}
			if tool == "exec" {
				arguments["yield_ms"] = 0
			}
			r, err := s.call(ctx, s.tools[tool], &call{}, encode(arguments))
			var got facts
			if err := errors.Join(err, json.Unmarshal(r.structured, &got)); err != nil || got.Status != "backgrounded" {
				t.Fatalf("%+v, %v", got, err)
			}
			if tt.cancelled {
				cancel()
			}
			r.done(tt.written)
			cancel()
			wait := map[string]any{"process_id": got.ProcessID, "timeout_ms": 50}
			if tt.ends {
				wait["timeout_ms"] = 50_000
			}
			if w := c.call("wait", wait); (w.Termination == events.TermCancelled) != tt.ends || (w.Status == "running") == tt.ends {
				t.Errorf("%s, cancelled %v, answered %v: %s %s", tool, tt.cancelled, tt.written, w.Status, w.Termination)
			}
		}
	}
}

func TestM11_EveryCallIsInTheHistory(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	done := c.exec("exit 3").ProcessID
	c.exec("echo no", "side_effects", []string{"RUNS_INLINE_CODE"})
	yielded := c.yields("true")
	rows := c.history()
	if len(rows) != 3 {
		t.Fatalf("%d rows", len(rows))
	}
	if rows[0].Execution != done || *rows[0].ExitCode != 3 || !strings.Contains(rows[1].Refusal, "RUNS_INLINE_CODE") ||
		rows[2].Execution != yielded || !rows[2].Yielded {
		t.Errorf("the rows are %+v", rows)
	}
}

func TestM73_ProgressIsTransient(t *testing.T) {
	l := newLedger(t)
	s, _ := serverOn(t, l, producers.DefaultConfig())
	c := newCaller(t, s)
	c.send(request(1, "tools/call", string(encode(map[string]any{
		"name":      "exec",
		"arguments": map[string]any{"command": "echo line; read x", "side_effects": []string{"NONE"}, "yield_ms": 600000},
		"_meta":     map[string]any{"progressToken": "tok"},
	}))))
	if note := c.next(); note.Method != "notifications/progress" {
		t.Fatalf("got %s %s", note.Method, note.Result)
	}
	var kinds []string
	for e, err := range l.Read(t.Context(), events.Filter{Class: events.ClassExecution}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(e.Kind()))
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix("requested spawned", got) {
		t.Errorf("the ledger has %s", got)
	}
}

// Monitors wake the client as completions do, and only for root.
func TestM80_M95_MonitorsWakeByTheSamePath(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("codex")
	monitor := map[string]any{"command": "echo line", "side_effects": []string{"NONE"}, "name": "theirs", "owner": "/root/a"}
	c.arrives("/root/a", c.call("monitor", monitor).ProcessID)
	delete(monitor, "owner")
	monitor["name"] = "ticker"
	c.call("monitor", monitor)
	messages, _ := c.wakes()
	if text := string(messages[0]); !strings.Contains(text, wakeText) || !strings.Contains(text, `Monitor \"ticker\"`) {
		t.Errorf("the wake: %s", text)
	}
	c.wokenOnlyBy(messages, "theirs")
}

// A call that names a token gets at most four progress notifications a second, after two seconds.
func TestM116_ProgressIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes, feed := projections.NewProcesses(), NewFeed()
		engine := replay.NewEngine(processes, feed)
		s := newServer(Options{Facts: engine, Processes: processes, Feed: feed})
		var sent []time.Duration
		began := time.Now()
		c := &call{meta: callMeta{progressToken: json.RawMessage(`"tok"`)}, notify: func(string, any) { sent = append(sent, time.Since(began)) }}
		engine.Apply(events.Event{Seq: 1, Session: "s", Owner: "/root", Subject: "e", Body: events.Requested{Command: "chatty"}})
		engine.Apply(events.Event{Seq: 2, Session: "s", Owner: "/root", Subject: "e", Body: events.Spawned{PID: 1}})
		p := s.startProgress(t.Context(), c)
		p.of("e")
		for i := range 500 { // five seconds of a line every ten milliseconds
			time.Sleep(10 * time.Millisecond)
			engine.Apply(events.Event{Session: "s", Owner: "/root", Subject: "e", Body: events.Output{Stream: events.KindStdout, Offset: int64(i), Data: []byte("\n")}})
		}
		p.end()
		if len(sent) < 12 || len(sent) > 13 || sent[0] < progressAfter {
			t.Errorf("sent after %v", sent)
		}
		for i := 1; i < len(sent); i++ {
			if sent[i]-sent[i-1] < progressEvery {
				t.Errorf("%v follows %v", sent[i], sent[i-1])
			}
		}
	})
}

// Many records are no flood of wakes: what comes within a second of an offer is
// offered together, in a bounded line.
func TestM93_M95_OffersAreGathered(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.initialize("claude-code")
	began := time.Now()
	id := c.call("monitor", map[string]any{"command": "seq 1 5000", "side_effects": []string{"NONE"}, "name": "ticker"}).ProcessID
	c.arrives("/root", id)
	var messages []json.RawMessage
	for len(messages) < 2 {
		m, _ := c.heard()
		messages = append(messages, m...)
	}
	if most := 2 + int(time.Since(began)/wakeEvery); len(messages) > most {
		t.Errorf("%d wakes, at most %d", len(messages), most)
	}
	most := 0
	for _, m := range messages {
		most = max(most, strings.Count(string(m), "●"))
	}
	if most < 2 || most > wakeNotices+1 {
		t.Errorf("%d notices in one of %s", most, messages)
	}
}

func TestM83_M84_AFailedExitIsNoFailedControl(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.yields("echo why >&2; exit 3")
	if r := c.raw("write", map[string]any{"process_id": id, "input": "", "close_stdin": true}); r.IsError {
		t.Errorf("write: %s", r.StructuredContent)
	}
	for _, tool := range []string{"wait", "read"} {
		r := c.raw(tool, map[string]any{"process_id": id})
		var got facts
		if err := json.Unmarshal(r.StructuredContent, &got); err != nil {
			t.Fatal(err)
		}
		if r.IsError || got.Status != "completed" || *got.ExitCode != 3 || got.Outcome != events.OutcomeFailure || *got.Stderr != "why\n" {
			t.Errorf("%s: %s", tool, r.StructuredContent)
		}
	}
}

func TestM108_DefaultOfWait(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	var list struct {
		Tools []struct {
			Name        string
			InputSchema struct {
				Properties map[string]struct{ Default any }
			}
		}
	}
	c.ask("tools/list", `{}`, &list)
	for _, tool := range list.Tools {
		if tool.Name == "wait" {
			if got := tool.InputSchema.Properties["timeout_ms"].Default; got != 30000.0 {
				t.Errorf("the default is %v ms", got)
			}
			return
		}
	}
	t.Error("there is no wait")
}

// Calls that come at once take their turns in the order in which they came.
func TestM124_TurnsAreInTheOrderOfCalls(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	dir, want := t.TempDir(), ""
	const calls = 40
	for i := range calls {
		c.send(toolCall(1000+i, "exec", string(encode(map[string]any{
			"command": fmt.Sprintf("printf '%d ' >> order", i), "cwd": dir, "yield_ms": 50_000,
			"side_effects": []string{"MODIFIES_WORKSPACE_FILES"},
		}))))
		want += strconv.Itoa(i) + " "
	}
	for answers := 0; answers < calls; answers++ {
		c.next()
	}
	if got, err := os.ReadFile(filepath.Join(dir, "order")); err != nil || string(got) != want {
		t.Errorf("they ran in the order %s, %v", got, err)
	}
}

func TestM121_DetailsOfWhatIsLive(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.yields("true", "name", "build", "owner", "/root/a")
	live := map[string]any{"owner": "/root/a", "include_completed": false}
	ps := c.call("ps", live).Processes
	if len(ps) != 1 || ps[0].ProcessID != id || ps[0].PID == nil || *ps[0].Name != "build" || ps[0].Owner != "/root/a" ||
		ps[0].Command != "read x; true" || ps[0].StartedAt == nil || ps[0].State != "running" {
		t.Fatalf("live: %+v", ps)
	}
	c.goOn(id, "owner", "/root/a")
	c.call("wait", map[string]any{"process_id": id, "owner": "/root/a"})
	if ps := c.call("ps", live).Processes; len(ps) != 0 {
		t.Errorf("what has ended is listed as live: %+v", ps)
	}
}

// A clock that stepped back makes no time negative.
func TestNoTimeIsNegative(t *testing.T) {
	now := time.Unix(1000, 0)
	p := projections.Process{RequestedAt: now.Add(time.Hour), SpawnedAt: now.Add(time.Hour), LastOutputAt: now.Add(2 * time.Hour)}
	for range 2 {
		if l := list(p, now); l.DurationMS < 0 || *l.IdleMS < 0 {
			t.Errorf("took %d ms, idle for %d ms", l.DurationMS, *l.IdleMS)
		}
		p.SpawnedAt = time.Time{} // as while it is queued
	}
}

func TestM123_AnswersNameTheirCommand(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	got := c.exec("echo one")
	if got.Command != "echo one" {
		t.Errorf("exec: %q", got.Command)
	}
	if got := c.call("wait", map[string]any{"process_id": got.ProcessID}); got.Command != "echo one" {
		t.Errorf("wait: %q", got.Command)
	}
}
