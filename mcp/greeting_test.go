package mcp

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestGreeting(t *testing.T) {
	const before, after = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":`, "}}\n"
	long := strings.Repeat("x", 2*greetingMost)
	for in, want := range map[string]string{
		before + `{"name":"codex","version":"0.1"}` + after:                   "codex 0.1",
		"\n\n" + before + `{"name":" Some \n Code ","version":"1 b"}` + after: "Some Code 1-b",
		before + `{"name":"x"}` + after + `{"method":"x"}`:                    "x -",
		before + `{"name":"x","version":"` + long[:200] + `"}` + after:        "x " + long[:clientNameMost] + "…",
		before + `{"version":"1"}` + after:                                    "",
		before + `{"name":"` + long + `"}` + after:                            "",
		before + `{"name":7}` + after:                                         "",
		`{"id":"probe","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/clientInfo":` +
			`{"name":"claude-code","version":"2.1"}` + "}}}\n": "claude-code 2.1",
		`{"id":1,"method":"ping"}` + "\n":            "",
		before + `{"name":"x","version":"1"}` + "}}": "x 1", // no newline
		"not JSON\n": "",
		"":           "",
	} {
		rest, client := Greeting(iotest.HalfReader(strings.NewReader(in)))
		if client != want {
			t.Errorf("%.200q: client %q, want %q", in, client, want)
		}
		if b, err := io.ReadAll(rest); string(b) != in || err != nil {
			t.Errorf("%.200q: reading went on with %.200q, %v", in, b, err)
		}
	}
}

// The greeting is looked at as soon as it is there, not when more comes.
func TestGreetingWaitsForNothingElse(t *testing.T) {
	in, out := io.Pipe()
	defer func() { _ = out.Close() }()
	go func() {
		_, _ = io.WriteString(out, `{"method":"initialize","params":{"clientInfo":`)
		_, _ = io.WriteString(out, `{"name":"x","version":"1"}}}`+"\n")
	}()
	if _, client := Greeting(in); client != "x 1" {
		t.Errorf("client %q", client)
	}
}
