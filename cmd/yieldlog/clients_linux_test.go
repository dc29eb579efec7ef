package main

import (
	"strings"
	"syscall"
	"testing"
)

// Clients that share a ledger and a directory: what one's server left when it was
// killed is told to that client, and to no other.
func TestMailIsForTheClientThatWasLost(t *testing.T) {
	dir := t.TempDir()
	mailbox := func(k *killed) string {
		return string(k.request("tools/call", map[string]any{"name": "mailbox", "arguments": map[string]any{}}))
	}
	one := connectAs(t, dir, "one")
	result := one.request("tools/call", map[string]any{"name": "exec", "arguments": map[string]any{
		"command": "sleep 600", "side_effects": []string{"NONE"}, "yield_ms": 1,
	}})
	if !strings.Contains(string(result), "backgrounded") {
		t.Fatalf("exec: %s", result)
	}
	if err := syscall.Kill(one.server().pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = one.cmd.Wait()

	other := connectAs(t, dir, "other")
	if got := mailbox(other); strings.Contains(got, "Session resumed") {
		t.Errorf("the other client was told: %s", got)
	}
	again := connectAs(t, dir, "one")
	if got := mailbox(again); !strings.Contains(got, "Session resumed") {
		t.Errorf("the client was not told: %s", got)
	}
	out := runYieldlog(t, dir, nil, "sessions")
	if strings.Count(out, " one 1 ") != 2 || strings.Count(out, " other 1 ") != 1 {
		t.Errorf("the sessions:\n%s", out)
	}
}
