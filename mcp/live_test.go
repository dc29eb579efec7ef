package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay"
)

// facts is an answer of any tool.
type facts struct {
	observation
	Processes []listed
	Stopped   bool
	OK        bool
	Removed   int
	Reason    string
	Matches   []match
}

func TestExecCompletes(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	got := c.exec("echo out; echo err >&2; exit 3")
	if got.Status != "completed" || *got.ExitCode != 3 || *got.Stdout != "out\n" || *got.Stderr != "err\n" ||
		got.Signal != nil || got.Truncated || got.NextSeq != 9 || got.LatestSeq != 9 || got.StartSeq != 1 {
		t.Errorf("got %+v", got)
	}
	if got.Outcome != events.OutcomeFailure || got.Termination != events.TermExited || got.ProcessID == "" {
		t.Errorf("got %+v", got)
	}
}

// A shell that leaves its work behind has not done it, whatever its exit code.
func TestExecTellsWhatWasEnded(t *testing.T) {
	c := newCaller(t, liveServer(t, func(cfg *producers.Config) { cfg.AllowBackground = true }))
	if got := c.exec("sleep 600 & echo done"); got.Status != "completed" || !strings.Contains(got.Message, "ended") || strings.Contains(got.Message, "&>") {
		t.Errorf("got %+v", got)
	}
	if got := c.exec("sleep 600 & echo '&>'"); !strings.Contains(got.Message, "&>") {
		t.Errorf("got %+v", got)
	}
	for _, clean := range []string{"echo done", "sleep 600 & kill $!; wait $!"} {
		if got := c.exec(clean); got.Message != "" {
			t.Errorf("%s: %s", clean, got.Message)
		}
	}
	if got := c.exec("sleep 600; true", "timeout_ms", 50); got.Status != "timed_out" || got.Message != "" {
		t.Errorf("got %+v", got)
	}
}

func TestM03_M110_ExecYieldsThenEverythingElse(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	got := c.exec("echo start; read x; echo got:$x", "yield_ms", 0)
	if got.Status != "backgrounded" || got.PID == nil || got.Message == "" || got.ExitCode != nil {
		t.Fatalf("got %+v", got)
	}
	id := map[string]any{"process_id": got.ProcessID}
	for *c.call("read", id).Stdout != "start\n" { // The first output is on its way.
		c.call("wait", map[string]any{"process_id": got.ProcessID, "timeout_ms": 50})
	}
	if w := c.call("write", map[string]any{"process_id": got.ProcessID, "input": "hi", "newline": true}); !w.OK {
		t.Errorf("write: %+v", w)
	}
	end := c.call("wait", id)
	if end.Status != "completed" || *end.Stdout != "start\ngot:hi\n" {
		t.Errorf("wait: %+v", end)
	}
	page := c.call("read", map[string]any{"process_id": got.ProcessID, "since_seq": 7})
	if *page.Stdout != "got:hi\n" || page.NextSeq != 14 || page.StartSeq != 7 {
		t.Errorf("read: %+v", page)
	}
	if s := c.call("stop", id); s.Stopped || s.Error == "" || s.ProcessID != got.ProcessID {
		t.Errorf("stop of a finished one: %+v", s)
	}
	if ps := c.call("ps", nil); len(ps.Processes) != 1 || ps.Processes[0].ProcessID != got.ProcessID {
		t.Errorf("ps: %+v", ps.Processes)
	}
	if r := c.call("cleanup", map[string]any{"completed_older_than_ms": 0}); r.Removed != 1 {
		t.Errorf("cleanup: %+v", r)
	}
	if r := c.call("read", id); r.Error != "Unknown process_id: "+got.ProcessID {
		t.Errorf("read after cleanup: %+v", r)
	}
}

// A position beyond the end is answered with the end, from which reading goes on.
func TestReadBeyondTheEnd(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	for command, length := range map[string]int64{"true": 0, "echo hi": 3} {
		id := c.exec(command).ProcessID
		for _, seq := range []int64{length + 1, length + 2, 1 << 60} {
			got := c.call("read", map[string]any{"process_id": id, "since_seq": seq})
			if got.NextSeq != length+1 || *got.Stdout != "" || got.Truncated {
				t.Errorf("%s from %d: %+v", command, seq, got)
			}
		}
	}
}

func TestReadRendered(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec(`printf '1%%\r50%%\r100%%\n\033[31mred\033[0m\n'`).ProcessID
	if got := c.call("read", map[string]any{"process_id": id}); *got.Stdout != "1%\r50%\r100%\n\x1b[31mred\x1b[0m\n" {
		t.Errorf("raw: %q", *got.Stdout)
	}
	if got := c.call("read", map[string]any{"process_id": id, "rendered": true}); *got.Stdout != "100%\nred\n" {
		t.Errorf("rendered: %q", *got.Stdout)
	}
}

func TestTerminal(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	got := c.exec("stty size; printf 'a\\033[2Jb'", "tty", true, "rows", 10, "cols", 40)
	if got.Status != "completed" || got.TTY == nil || !strings.HasPrefix(*got.TTY, "10 40\r\n") {
		t.Fatalf("got %+v", got)
	}
	if ps := c.call("ps", nil).Processes[0]; ps.TTYBytes != int64(len(*got.TTY)) || ps.StdoutBytes != 0 {
		t.Errorf("ps: %+v", ps)
	}
	screen := c.call("read", map[string]any{"process_id": got.ProcessID, "rendered": true})
	if screen.TTY == nil || strings.TrimSpace(*screen.TTY) != "b" {
		t.Errorf("the screen is %+v", screen)
	}
}

// A terminal is shown in the size that it has now, and keeps what a resize does not name.
func TestTerminalIsResized(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("trap 'stty size; printf %090d; echo' WINCH; while :; do sleep .02; done", "tty", true, "rows", 10, "cols", 40, "yield_ms", 200).ProcessID
	for _, to := range []struct {
		arguments map[string]any
		want      string
	}{
		{map[string]any{"cols": 100}, "10 100\n" + strings.Repeat("0", 90)},
		{map[string]any{"rows": 30, "input": ""}, "30 100\n" + strings.Repeat("0", 90)},
	} {
		to.arguments["process_id"] = id
		if r := c.call("write", to.arguments); !r.OK {
			t.Fatalf("%v: %+v", to.arguments, r)
		}
		deadline := time.Now().Add(patience)
		for screen := ""; !strings.Contains(screen, to.want); screen = *c.call("read", map[string]any{"process_id": id, "rendered": true}).TTY {
			if time.Now().After(deadline) {
				t.Fatalf("%v: the screen is %q", to.arguments, screen)
			}
		}
	}
}

// What an earlier session left can be read, and nothing else.
func TestHandlesOfAnEarlierSession(t *testing.T) {
	l := newLedger(t)
	before, end := serverOn(t, l, producers.DefaultConfig())
	first := newCaller(t, before)
	id := first.exec("echo good; exit 4").ProcessID
	mailed := first.yields("true", "name", "unread build")
	first.goOn(mailed)
	first.arrives("/root", mailed)
	after, _ := serverOn(t, l, producers.DefaultConfig())
	c := newCaller(t, after)
	handle := map[string]any{"process_id": id}
	if got := c.call("read", handle); got.Error != "Unknown process_id: "+id {
		t.Errorf("while its session lives: %+v", got)
	}
	end()
	for _, tool := range []string{"read", "wait"} {
		if got := c.call(tool, handle); got.Status != "completed" || *got.Stdout != "good\n" || *got.ExitCode != 4 {
			t.Errorf("%s: %+v", tool, got)
		}
	}
	if got := c.call("search", map[string]any{"process_id": id, "pattern": "^good"}); len(got.Matches) != 1 {
		t.Errorf("search: %+v", got)
	}
	if got := c.call("stop", handle); got.Stopped || got.Error == "" || got.Status != "completed" {
		t.Errorf("stop: %+v", got)
	}
	if got := c.call("write", map[string]any{"process_id": id, "input": "x"}); got.OK || got.Error == "" {
		t.Errorf("write: %+v", got)
	}
	if got := c.call("read", map[string]any{"process_id": id, "owner": "/root/other"}); got.Error != "Unknown process_id: "+id {
		t.Errorf("another owner: %+v", got)
	}
	if got := c.call("ps", nil); len(got.Processes) != 0 {
		t.Errorf("ps: %+v", got.Processes)
	}
	var output, mailbox resourceContents
	c.ask("resources/read", `{"uri":"`+outputURI(id)+`"}`, &output)
	if len(output.Contents) != 2 || output.Contents[0].Text != "good\n" {
		t.Errorf("its output: %+v", output)
	}
	heir, _ := serverOn(t, l, producers.DefaultConfig())
	newCaller(t, heir).ask("resources/read", `{"uri":"`+mailboxURI("/root")+`"}`, &mailbox)
	if text := mailbox.Contents[0].Text; !strings.HasSuffix(text, "● Background command \"unread build\" completed (exit code 0)  unread, of an earlier session\n") {
		t.Errorf("its mail: %q", text)
	}
}

func TestSearch(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("echo first; printf 'ERR'; sleep 0.1; printf 'OR42 here\\n'").ProcessID
	c.exec("echo OTHER42", "owner", "/root/other")
	got := c.call("search", map[string]any{"pattern": "^[A-Z]+42 "})
	if len(got.Matches) != 1 || got.Matches[0].ProcessID != id || got.Matches[0].Line != 2 || got.Matches[0].Text != "ERROR42 here" {
		t.Fatalf("got %+v", got.Matches)
	}
	if page := c.call("read", map[string]any{"process_id": id, "since_seq": got.Matches[0].SinceSeq}); *page.Stdout != "ERROR42 here\n" {
		t.Errorf("read from there: %+v", page)
	}
	if got := c.call("search", map[string]any{"pattern": "echo|ERROR", "limit": 1}); len(got.Matches) != 1 || !got.Truncated {
		t.Errorf("limited: %+v", got)
	}
	for _, wrong := range []map[string]any{{"pattern": "("}, {"pattern": "x", "process_id": "*"}} {
		if got := c.call("search", wrong); got.Error == "" {
			t.Errorf("%v: %+v", wrong, got)
		}
	}
}

// A search that ran out of time says so, however its reading ended.
func TestSearchThatTakesTooLong(t *testing.T) {
	s := liveServer(t, nil)
	for name, end := range map[string]error{"silently": nil, "with an error": errors.New("the host did not answer")} {
		s.opts.Search = func(ctx context.Context, _ replay.Query) iter.Seq2[replay.Match, error] {
			return func(yield func(replay.Match, error) bool) {
				if <-ctx.Done(); end != nil {
					yield(replay.Match{}, end)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		var refused *refusal
		if r, err := s.search(ctx, &call{args: arguments{"pattern": "x"}}); !errors.As(err, &refused) {
			t.Errorf("%s: got %s, %v", name, r.text, err)
		}
		cancel()
	}
}

func TestStop(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("sleep 600", "yield_ms", 0).ProcessID
	got := c.call("stop", map[string]any{"process_id": id})
	if !got.Stopped || got.Status != "stopped" || *got.Signal != "SIGTERM" {
		t.Errorf("got %+v", got)
	}
	if named := c.call("stop", map[string]any{"process_id": c.exec("sleep 600", "yield_ms", 0).ProcessID, "signal": "int"}); !named.Stopped || *named.Signal != "SIGINT" {
		t.Errorf("a signal by its short name: %+v", named)
	}
	if bad := c.call("stop", map[string]any{"process_id": c.exec("sleep 600", "yield_ms", 0).ProcessID, "signal": "SIGNOPE"}); bad.Stopped || !strings.Contains(bad.Error, "SIGNOPE") {
		t.Errorf("an unknown signal: %+v", bad)
	}
}

// Another owner's handle is exactly as unknown as a wrong one.
func TestM111_M140_UnknownHandle(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	theirs := c.exec("sleep 600", "yield_ms", 0, "owner", "/root/other").ProcessID
	for tool, more := range map[string]map[string]any{
		"read": {}, "wait": {"timeout_ms": 10}, "write": {"input": "x"}, "stop": {}, "search": {"pattern": "x"},
	} {
		for _, id := range []string{theirs, "proc_nope", "01M8RHPRJZEGCDEXQ1Q9YZMCHH", "*"} {
			if id == everything && tool == "stop" {
				continue
			}
			more["process_id"] = id
			r := c.raw(tool, more)
			// Clients of YieldShell look whether the input was taken, or the process stopped.
			done := map[string]string{"write": `,"ok":false`, "stop": `,"stopped":false`}[tool]
			want := fmt.Sprintf(`{"process_id":%q,"error":"Unknown process_id: %s"%s}`, id, id, done)
			if string(r.StructuredContent) != want || r.IsError {
				t.Errorf("%s: %s", tool, r.StructuredContent)
			}
		}
	}
	if ps := c.call("ps", nil); len(ps.Processes) != 0 {
		t.Errorf("ps shows %+v", ps.Processes)
	}
	if ps := c.call("ps", map[string]any{"owner": "/root/other"}); len(ps.Processes) != 1 {
		t.Errorf("their ps shows %+v", ps.Processes)
	}
}

// One agent is one owner, however it writes its name.
func TestM02_AnOwnerHasOneName(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("sleep 600", "yield_ms", 0, "owner", "reviewer").ProcessID
	if r := c.call("stop", map[string]any{"process_id": id, "owner": "/root/reviewer"}); !r.Stopped {
		t.Errorf("by the path: %+v", r)
	}
	if ps := c.call("ps", map[string]any{"owner": "root/reviewer"}); len(ps.Processes) != 1 || ps.Processes[0].Owner != "/root/reviewer" {
		t.Errorf("ps shows %+v", ps.Processes)
	}
	for _, owner := range []string{"/root/reviewer/", "/root//reviewer", "reviewer/../x", " reviewer"} {
		if r := c.raw("ps", map[string]any{"owner": owner}); !r.IsError {
			t.Errorf("%q: %s", owner, r.StructuredContent)
		}
	}
}

// A wrong argument is answered in the shape of the tool, too.
func TestWrongArguments(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	for _, tt := range []struct{ tool, arguments, want string }{
		{"exec", `{"command":"ls"}`, `{"status":"failed_to_start","error":"side_effects is required: Everything that the command may do"}`},
		{"exec", `{"command":["ls"],"side_effects":["NONE"]}`, `{"status":"failed_to_start","error":"command must be a string, not the list [\"ls\"]"}`},
		{"read", `{"process_id":"x","since_seq":1.5}`, `{"process_id":"x","error":"since_seq must be a whole number, not 1.5"}`},
		{"read", `{"process_id":"x","streams":"sideways"}`, `{"process_id":"x","error":"streams must be one of both, stdout, stderr, not \"sideways\""}`},
		{"wait", `{"process_id":5}`, `{"process_id":"","error":"process_id must be a string, not 5"}`},
		{"write", `{"process_id":"x"}`, `{"process_id":"x","error":"input is required: Text"}`},
		{"stop", `[]`, `{"process_id":"","error":"arguments must be an object, not the list []"}`},
		{"ps", `{"limit":"many"}`, `{"error":"limit must be a whole number, not the string \"many\""}`},
		{"cleanup", `{"older":1}`, `{"error":"unknown argument \"older\": the arguments are completed_older_than_ms, stopped_older_than_ms, owner"}`},
	} {
		c.id++
		c.send(toolCall(c.id, tt.tool, tt.arguments))
		var r toolResult
		if err := json.Unmarshal(c.next().Result, &r); err != nil {
			t.Fatal(err)
		}
		if string(r.StructuredContent) != tt.want || !r.IsError {
			t.Errorf("%s %s: %s", tt.tool, tt.arguments, r.StructuredContent)
		}
		c.validate(tt.tool, r)
	}
}

func TestRefusedExec(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	got := c.exec("echo x", "side_effects", []string{"RUNS_INLINE_CODE"})
	if got.Status != "failed_to_start" || !strings.Contains(got.Error, "RUNS_INLINE_CODE") || got.Reason != "side_effects" {
		t.Errorf("got %+v", got)
	}
	if ps := c.call("ps", nil); len(ps.Processes) != 0 {
		t.Errorf("ps shows %+v", ps.Processes)
	}
	if r := c.raw("exec", map[string]any{"command": "  ", "side_effects": []string{"NONE"}}); !r.IsError {
		t.Errorf("an empty command: %+v", r)
	}
}

// Both forms together stay within what clients keep inline, whatever the output.
func TestAnswersStayInline(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	for _, command := range []string{
		"yes 'a line of text' | head -c 100000",
		"yes 'a line of text' | head -c 100000 | tee /dev/stderr",
		"head -c 100000 /dev/zero",
		`yes '"\' | head -c 100000`,
	} {
		r := c.raw("exec", map[string]any{"command": command, "side_effects": []string{"NONE"}, "yield_ms": 60000})
		if n := len(r.StructuredContent) + len(encode(r.Content[0].Text)); n > inlineBudget*11/10 {
			t.Errorf("%s: %d bytes", command, n)
		}
		var structured, text observation
		if err := json.Unmarshal(r.StructuredContent, &structured); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(r.Content[0].Text), &text); err != nil {
			t.Fatal(err)
		}
		if *structured.ExitCode != *text.ExitCode || structured.LatestSeq != text.LatestSeq || !text.Truncated || text.Omitted == nil {
			t.Errorf("%s: the text says %.1000s", command, r.Content[0].Text)
		}
	}
}

// A page of a large output can be followed to its end in either form.
func TestFollowingTheTextLosesNothing(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	r := c.raw("exec", map[string]any{"side_effects": []string{"NONE"}, "yield_ms": 60000, "command": `i=0; while [ $i -lt 3000 ]; do echo "line $i"; echo "error $i" >&2; i=$((i+1)); done`})
	var whole observation
	if err := json.Unmarshal(r.StructuredContent, &whole); err != nil {
		t.Fatal(err)
	}
	id := whole.ProcessID
	var out, errs strings.Builder
	for seq, latest := int64(0), int64(2); seq < latest; {
		r := c.raw("read", map[string]any{"process_id": id, "since_seq": seq})
		var page observation
		if err := json.Unmarshal([]byte(r.Content[0].Text), &page); err != nil {
			t.Fatal(err)
		}
		out.WriteString(*page.Stdout)
		errs.WriteString(*page.Stderr)
		if page.NextSeq <= seq {
			t.Fatalf("stuck at %d: %+v", seq, page)
		}
		seq, latest = page.NextSeq, page.LatestSeq
	}
	var wantOut, wantErr strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&wantOut, "line %d\n", i)
		fmt.Fprintf(&wantErr, "error %d\n", i)
	}
	if out.String() != wantOut.String() || errs.String() != wantErr.String() {
		t.Errorf("%d and %d bytes came back", out.Len(), errs.Len())
	}
}

func TestM116_ProgressIsSent(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	c.send(request(1, "tools/call", string(encode(map[string]any{
		"name":      "exec",
		"arguments": map[string]any{"command": "for i in 1 2 3 4 5 6 7; do echo line$i; done; read x", "side_effects": []string{"NONE"}, "yield_ms": 600000},
		"_meta":     map[string]any{"progressToken": "tok"},
	}))))
	note := c.next()
	var got struct {
		ProgressToken string
		Message       string
	}
	if err := json.Unmarshal(note.Params, &got); err != nil || note.Method != "notifications/progress" {
		t.Fatalf("got %.2000s%.2000s", note.Params, note.Result)
	}
	if got.ProgressToken != "tok" || !strings.HasSuffix(got.Message, "7 lines, 42 bytes\nline3\nline4\nline5\nline6\nline7") {
		t.Errorf("got %+v", got)
	}
	c.id = 1
	list := c.call("ps", nil).Processes
	c.call("stop", map[string]any{"process_id": list[0].ProcessID})
}

func TestCancelledExecIsKilled(t *testing.T) {
	s := liveServer(t, nil)
	c := newCaller(t, s)
	c.send(toolCall(1, "exec", `{"command":"sleep 600","side_effects":["NONE"],"yield_ms":60000}`))
	c.id = 1
	eventually(t, "it runs", func() bool {
		list := c.call("ps", nil).Processes
		return len(list) > 0 && list[0].PID != nil // cancelled before that, it is refused
	})
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	id := c.call("ps", nil).Processes[0].ProcessID
	if got := c.call("wait", map[string]any{"process_id": id}); got.Termination != events.TermCancelled {
		t.Errorf("got %+v", got)
	}
}

// A call that is given up before its command runs leaves nothing that seems to
// run or to wait, whenever somebody looks.
func TestCancelledExecSeemsNeitherToRunNorToWait(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	only := map[string]any{"include_completed": false}
	run := func(request int, more string) (listed, string) {
		known := len(c.call("ps", only).Processes)
		c.send(toolCall(request, "exec", `{"command":"read x","side_effects":["OTHER"],"yield_ms":60000`+more+`}`))
		for c.id = request; ; {
			if list := c.call("ps", only); len(list.Processes) > known {
				return list.Processes[0], fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, request)
			}
		}
	}
	ends := func(p listed, tool string) {
		t.Helper()
		got := c.call(tool, map[string]any{"process_id": p.ProcessID})
		if got.Status == "running" || got.State != "" {
			t.Errorf("%s: %+v", tool, got)
		}
		if list := c.call("ps", only); len(list.Processes) > 0 && list.Processes[0].ProcessID == p.ProcessID {
			t.Errorf("it is listed after %s: %+v", tool, list.Processes[0])
		}
	}
	for round := range 40 { // as soon as it is listed: its request may just be on its way
		p, cancel := run(1000*round+1000, "")
		c.send(cancel)
		ends(p, []string{"wait", "stop"}[round%2])
	}
	p, cancel := run(100_000, "")
	eventually(t, "it runs", func() bool { return c.call("ps", only).Processes[0].PID != nil })
	for round := range 10 { // while it is queued behind the first
		q, cancel := run(100_000+1000*(round+1), "")
		if round%2 == 0 {
			eventually(t, "it is queued", func() bool { return c.call("ps", only).Processes[0].State == "queued" })
		}
		c.send(cancel)
		ends(q, "wait")
	}
	c.send(cancel)
	ends(p, "wait")
	if m := c.mail("mailbox", nil); len(m.Records) > 0 {
		t.Errorf("mail: %+v", m)
	}
}
