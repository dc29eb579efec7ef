package events

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden files anew; bytes on disk must never change, so this is for new kinds")

func ptr[T any](v T) *T { return &v }

// samples is one event of each kind, every field set.
func samples() []Event {
	const session, execution, record = "01JE0000000000000000000001", "01JE0000000000000000000002", "01JE0000000000000000000003"
	request := Requested{
		Command: "grep <x> & echo \"µ\"", Name: "Find x", Cwd: "/src", Shell: "bash", SideEffects: []string{"NONE"},
		Env: []string{"A", "B"}, StdinBytes: 3, YieldMS: 5000, TimeoutMS: 60000, OutputLimit: 64 << 20,
		TTY: &Size{Rows: 24, Cols: 80}, Monitor: true, Client: map[string]string{"claudecode/toolUseId": "t1"},
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	sum := StreamSum{Bytes: 5, Raw: 6, SHA256: strings.Repeat("ab", 32)}
	bodies := []struct {
		id   string
		body Body
	}{
		{session, Opened{Program: "mcp", Version: "1.0.0", Client: "claude-code 2.1", Cwd: "/src", Host: "h", PID: 7, Start: 99, Boot: "b", Name: "night"}},
		{session, Closed{Reason: "end of input"}},
		{session, Lost{Reason: "its process died", By: "01JE0000000000000000000009"}},
		{session, Forked{From: "01JE0000000000000000000008", At: 12}},
		{session, Rewound{To: 11}},
		{execution, request},
		{execution, Refused{Reason: "side_effects", Message: "stopped by policy", Request: &request}},
		{execution, Queued{Ahead: 2}},
		{execution, Admitted{WaitedMS: 12}},
		{execution, Spawned{PID: 8, PGID: 8, Start: 100, Boot: "b"}},
		{execution, Yielded{Offset: 5, ElapsedMS: 5001}},
		{execution, Input{Bytes: 4, Close: true, Resize: &Size{Rows: 30, Cols: 90}, Offset: 5, Error: "closed"}},
		{execution, Stopping{Cause: TermStopped, Signal: "SIGTERM", ForceAfterMS: 3000, Offset: 5}},
		{execution, Settled{
			Status: StatusStopped, Termination: TermStopped, Outcome: OutcomeFailure, ExitCode: ptr(-15), Signal: "SIGTERM",
			DurationMS: 6000, Offset: 15, Stdout: sum, Stderr: sum, TTY: sum, CutOff: true,
			Descendants: []Descendant{{PID: 9, Name: "sleep", Killed: true, Left: true}}, Error: "why",
		}},
		{execution, Pruned{From: 0, To: 15, Reason: "size"}},
		{execution, Output{Stream: KindStdout, Offset: 5, Data: []byte("a\x00\xff\n")}},
		{execution, Output{Stream: KindStderr, Offset: 9, Data: []byte("oops\n")}},
		{execution, Output{Stream: KindTTY, Offset: 0, Data: []byte("\x1b[31m\r\n")}},
		{record, Posted{Mail: MailCompletion, Execution: execution, From: 1, To: 15, Count: 3, Executions: []string{execution}, Notice: "● Background command \"x\" completed (exit code 0)"}},
		{record, Acknowledged{Execution: execution, By: "wait", Redelivered: true, Offered: time.Date(2026, 12, 1, 1, 2, 3, 0, time.UTC)}},
		{execution, Unknown{UnknownKind: "frozen", UnknownClass: ClassExecution, ContentType: "text/plain", Data: []byte("later\n")}},
	}
	var list []Event
	for i, b := range bodies {
		e := Event{
			ID: fmt.Sprintf("01JE00000000000000000001%02d", i), Time: time.Date(2026, 11, 30, 21, 14, 13, 120000000, time.UTC),
			Session: session, Subject: b.id, Body: b.body,
		}
		if c := e.Class(); c != ClassSession {
			e.Owner = "/root/reviewer"
		}
		if e.Class() != ClassOutput {
			e.Prev = strings.Repeat("0f", 32)
		}
		list = append(list, e)
	}
	return list
}

// text shows a message: its subject, its headers by name, and its data.
func text(m Message) string {
	var b strings.Builder
	fmt.Fprintln(&b, m.Subject)
	for _, k := range slices.Sorted(maps.Keys(m.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", k, strings.Join(m.Header[k], ", "))
	}
	fmt.Fprintf(&b, "\n%s\n", escape(m.Data))
	return b.String()
}

func escape(data []byte) string {
	if bytes.ContainsFunc(data, func(r rune) bool { return r < ' ' || r == 0xfffd || r == 0x7f }) {
		return "hex:" + hex.EncodeToString(data)
	}
	return string(data)
}

// TestGoldenBytes holds the bytes of every kind as they are on disk.
func TestGoldenBytes(t *testing.T) {
	seen := map[Kind]bool{}
	for _, e := range samples() {
		seen[e.Kind()] = true
		m, err := Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "golden", string(e.Class())+"."+string(e.Kind()))
		if *update {
			if err := os.WriteFile(path, []byte(text(m)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text(m)); diff != "" {
			t.Errorf("%s has other bytes (-golden +now):\n%s", e.Kind(), diff)
		}
		back, err := Decode(m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, back); diff != "" {
			t.Errorf("%s came back different (-sent +decoded):\n%s", e.Kind(), diff)
		}
	}
	for k := range decoders {
		if !seen[k] {
			t.Errorf("kind %s has no golden bytes", k)
		}
	}
}

func TestChunksAreCompressedFrom4KiB(t *testing.T) {
	noise := make([]byte, 8<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for name, tc := range map[string]struct {
		data       []byte
		compressed bool
	}{
		"short":    {bytes.Repeat([]byte("x"), CompressFrom-1), false},
		"long":     {bytes.Repeat([]byte("line\n"), 4000), true},
		"noise":    {noise, false},
		"greatest": {bytes.Repeat([]byte{0}, MaxChunk), true},
	} {
		t.Run(name, func(t *testing.T) {
			e := Event{ID: "x", Time: time.Unix(0, 0).UTC(), Session: "S", Subject: "E", Body: Output{Stream: KindStdout, Offset: 7, Data: tc.data}}
			m, err := Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(m.Data) < len(tc.data); got != tc.compressed {
				t.Errorf("stored %d bytes for %d", len(m.Data), len(tc.data))
			}
			if from, to, ok := OutputSpan(m); !ok || from != 7 || to != 7+int64(len(tc.data)) {
				t.Errorf("span is [%d,%d) %v", from, to, ok)
			}
			back, err := Decode(m)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(back.Body.(Output).Data, tc.data) {
				t.Error("the bytes differ")
			}
		})
	}
}

// TestCompressedBytesStayReadable decodes a chunk as it was stored once: a
// newer compressor may write other bytes, but must read these.
func TestCompressedBytesStayReadable(t *testing.T) {
	path := filepath.Join("testdata", "golden", "chunk.zst")
	want := []byte(strings.Repeat("a line of output\n", 300))
	if *update {
		if err := os.WriteFile(path, compressed(t, want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := inflate(data, len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("inflated %d bytes, %v", len(got), err)
	}
}

func TestDecodeRefusesWhatIsNoEvent(t *testing.T) {
	good, err := Encode(samples()[5])
	if err != nil {
		t.Fatal(err)
	}
	bomb, err := Encode(Event{ID: "x", Session: "S", Subject: "E", Body: Output{Stream: KindStdout, Data: make([]byte, MaxChunk)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		from   Message
		change func(*Message)
		want   string
	}{
		"a short subject": {good, func(m *Message) { m.Subject = "yieldlog.S.execution" }, "is not yieldlog."},
		"a wildcard":      {good, func(m *Message) { m.Subject = "yieldlog.*.execution.E.requested" }, "bad token"},
		"no id":           {good, func(m *Message) { delete(m.Header, headerID) }, "no ce-id"},
		"no time":         {good, func(m *Message) { delete(m.Header, headerTime) }, "ce-time"},
		"another version": {good, func(m *Message) { m.Header[headerSpec] = []string{"0.3"} }, "ce-specversion"},
		"a broken body":   {good, func(m *Message) { m.Data = []byte("{") }, "reading the body"},
		"a wrong type":    {good, func(m *Message) { m.Data = []byte(`{"command":5}`) }, "reading the body"},
		"a lying length":  {bomb, func(m *Message) { m.Header[headerLength] = []string{"10"} }, "inflat"},
		"a huge length":   {bomb, func(m *Message) { m.Header[headerLength] = []string{"1073741824"} }, "ce-length"},
		"no offset":       {bomb, func(m *Message) { delete(m.Header, headerOffset) }, "ce-offset"},
		"a new encoding":  {bomb, func(m *Message) { m.Header[headerEncoding] = []string{"br"} }, "content-encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			m := tc.from
			m.Header = maps.Clone(m.Header)
			tc.change(&m)
			if _, err := Decode(m); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error about %q", err, tc.want)
			}
		})
	}
}

// TestHashCoversEveryPart changes one part at a time.
func TestHashCoversEveryPart(t *testing.T) {
	m, err := Encode(samples()[5])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{Hash(m): "nothing"}
	check := func(what string, m Message) {
		if same, ok := seen[Hash(m)]; ok {
			t.Errorf("the hash after changing %s is that after changing %s", what, same)
		}
		seen[Hash(m)] = what
	}
	for _, k := range []string{headerID, headerType, headerSource, headerTime, headerOwner, headerPrev, headerContentType} {
		c := m
		c.Header = maps.Clone(m.Header)
		c.Header[k] = []string{"x"}
		check(k, c)
	}
	c := m
	c.Subject += "x"
	check("the subject", c)
	c = m
	c.Data = append(slices.Clone(m.Data), ' ')
	check("the data", c)
}

func FuzzDecode(f *testing.F) {
	for _, e := range append(samples(), packedSample()) {
		m, err := Encode(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(m.Subject, text(Message{Header: m.Header}), m.Data)
	}
	f.Fuzz(func(t *testing.T, subject, headers string, data []byte) {
		m := Message{Subject: subject, Header: map[string][]string{}, Data: data}
		for line := range strings.Lines(headers) {
			if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok {
				m.Header[k] = []string{v}
			}
		}
		e, err := Decode(m)
		if err != nil {
			return
		}
		again, err := Encode(e)
		if err != nil {
			t.Fatalf("an event that was decoded does not encode: %v", err)
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("an event that was encoded does not decode: %v", err)
		}
		if diff := cmp.Diff(e, back, cmpopts.EquateEmpty()); diff != "" { // JSON drops empty lists
			t.Errorf("not the same event (-first +second):\n%s", diff)
		}
	})
}

func FuzzInflate(f *testing.F) {
	f.Add(compressed(f, []byte(strings.Repeat("x", 5000))), 5000)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if n < 0 || n > MaxChunk {
			return
		}
		out, err := inflate(data, n)
		if err == nil && len(out) != n {
			t.Errorf("inflated %d bytes, want %d", len(out), n)
		}
	})
}

func TestLocalizedRewind(t *testing.T) {
	m, err := Encode(Event{ID: "x", Session: "S", Subject: "S", Body: Rewound{To: 11}})
	if err != nil {
		t.Fatal(err)
	}
	moved := Localize(m, 4)
	if Hash(moved) != Hash(m) {
		t.Error("the hash changed")
	}
	e, err := Decode(moved)
	if err != nil || e.Body != (Rewound{To: 4}) {
		t.Errorf("decoded %+v, %v", e.Body, err)
	}
	if e, err := Decode(m); err != nil || e.Body != (Rewound{To: 11}) {
		t.Errorf("the original says %+v, %v", e.Body, err)
	}
	m, err = Encode(Event{ID: "x", Session: "S", Subject: "S", Body: Forked{From: "R", At: 11}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := Decode(Localize(m, 4)); err != nil || e.Body != (Forked{From: "R", At: 4}) {
		t.Errorf("decoded %+v, %v", e.Body, err)
	}
}

func TestOwnerPath(t *testing.T) {
	for name, want := range map[string]string{
		"/root": "/root", "/root/a": "/root/a", "/other": "/other", "a": "/root/a", "a/b": "/root/a/b", "root": "/root", "root/a": "/root/a", "roots": "/root/roots",
	} {
		if got, err := OwnerPath(name); got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "/root/", "/root//a", "a/", "a/../b", "..", ".", "/root/./a", " a", "a\n", strings.Repeat("x", 251)} {
		if got, err := OwnerPath(name); err == nil {
			t.Errorf("%q is %q", name, got)
		}
	}
}

func TestOwnersThatAHeaderWouldChangeAreRefused(t *testing.T) {
	for _, owner := range []string{" /root", "/root ", "a\r\nce-type: x", "a\tb", "\x00", "/root/\x1b[31m", strings.Repeat("x", 257)} {
		if _, err := Encode(Event{ID: "x", Session: "S", Subject: "S", Owner: owner, Body: Closed{}}); err == nil {
			t.Errorf("%q was encoded", owner)
		}
	}
	for _, owner := range []string{"", RootOwner, "/root/é", "two words", strings.Repeat("x", 256)} {
		if err := CheckOwner(owner); err != nil {
			t.Error(err)
		}
	}
}
