package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// The details of an execution name its terminal.
func TestM121_DetailsNameTheTerminal(t *testing.T) {
	p := projections.Process{
		Execution: "E", Requested: events.Requested{TTY: &events.Size{Rows: 24, Cols: 80}}, Size: events.Size{Rows: 50, Cols: 132},
		Settled: &events.Settled{Offset: 7, TTY: events.StreamSum{Bytes: 7}}, TTYBytes: 7,
	}
	var out bytes.Buffer
	a := &app{out: &out}
	if err := a.printFacts(p, true); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "terminal   132 x 50\n") || !strings.Contains(text, "output     7 B\n") {
		t.Errorf("the facts:\n%s", text)
	}
	line, err := json.Marshal(jsonProcess(p))
	if err != nil || !strings.Contains(string(line), `"tty":{"rows":50,"cols":132},"tty_bytes":7`) {
		t.Errorf("as JSON: %s, %v", line, err)
	}
}
