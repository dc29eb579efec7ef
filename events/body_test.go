package events

import "testing"

func TestFollows(t *testing.T) {
	opened := func(program, cwd, client string) Opened {
		return Opened{Program: program, Cwd: cwd, Client: client}
	}
	own := opened("mcp", "/a", "a client 2")
	for _, c := range []struct {
		before Opened
		want   bool
	}{
		{opened("mcp", "/a", "a client 2"), true},
		{opened("mcp", "/a", "a client 1.9"), true},
		{opened("mcp", "/a", ""), true}, // recorded before clients were, or by a client that did not say
		{opened("mcp", "/a", "a 2"), false},
		{opened("mcp", "/a", "another 2"), false},
		{opened("mcp", "/b", "a client 2"), false},
		{opened("exec", "/a", "a client 2"), false},
	} {
		if got := own.Follows(c.before); got != c.want {
			t.Errorf("after %+v: %v", c.before, got)
		}
		if got := c.before.Follows(own); got != c.want {
			t.Errorf("before %+v: %v", c.before, got)
		}
	}
}
