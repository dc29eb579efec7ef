package producers

import (
	"maps"
	"slices"
	"strings"
)

const (
	// executionVar names the execution that a process belongs to.
	executionVar = "YIELDLOG_EXECUTION"
	// guardianVar names the guardian that ends what outlives the server; see
	// package guardian. The server has it, and its commands inherit it.
	guardianVar = "YIELDLOG_GUARDIAN"
)

// isMark reports whether the variable is ours: no caller may set it.
func isMark(name string) bool { return name == executionVar || name == guardianVar }

// stableEnv makes output the same wherever the server runs: UTF-8, no colour,
// no cursor movement, no pager that waits for a key.
var stableEnv = map[string]string{
	"NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "COLORTERM": "",
	"PAGER": "cat", "GIT_PAGER": "cat", "GH_PAGER": "cat",
}

// environment makes the environments of commands: the server's own, captured
// once, below the deterministic defaults, below the request's overlay. It is
// immutable and safe for concurrent use.
type environment struct {
	// base is sorted by name, without duplicates, and without what differs
	// from one execution to the next.
	base []variable
	// secret are the values in base to redact.
	secret  []string
	matches func(name string) bool
}

type variable struct {
	name string
	// text is NAME=value.
	text string
}

// newEnvironment captures the parent environment, as [os.Environ] gives it.
func newEnvironment(c *Config, parent []string) *environment {
	vars := make(map[string]string, len(parent)+len(stableEnv))
	for _, kv := range parent {
		// A leading '=' belongs to the name on Windows.
		if i := strings.IndexByte(kv[min(1, len(kv)):], '='); i >= 0 {
			vars[kv[:i+1]] = kv[i+2:]
		}
	}
	if !c.InheritEnv {
		maps.Copy(vars, stableEnv)
	}
	delete(vars, executionVar)
	delete(vars, "PWD")
	e := &environment{matches: func(string) bool { return false }}
	if c.RedactEnv != nil {
		e.matches = c.RedactEnv.MatchString
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		e.base = append(e.base, variable{name, name + "=" + vars[name]})
		if e.matches(name) {
			e.secret = append(e.secret, vars[name])
		}
	}
	e.secret = secretValues(e.secret)
	return e
}

// of is the environment of an execution that runs in dir, as NAME=value. The
// overlay wins over everything but our own marks.
func (e *environment) of(execution, dir string, overlay map[string]string) []string {
	env := make([]string, 0, len(e.base)+len(overlay)+2)
	for _, v := range e.base {
		if _, over := overlay[v.name]; !over || isMark(v.name) {
			env = append(env, v.text)
		}
	}
	if _, over := overlay["PWD"]; !over {
		env = append(env, "PWD="+dir)
	}
	for _, name := range names(overlay) {
		if !isMark(name) {
			env = append(env, name+"="+overlay[name])
		}
	}
	return append(env, executionVar+"="+execution)
}

// secrets is the values to redact from the execution's output and command,
// the longest first.
func (e *environment) secrets(overlay map[string]string) []string {
	var more []string
	for name, value := range overlay {
		if e.matches(name) {
			more = append(more, value)
		}
	}
	if more == nil {
		return e.secret
	}
	return secretValues(slices.Concat(e.secret, more))
}

// names is the overlay's variable names, sorted: all that is recorded of it.
func names(overlay map[string]string) []string {
	return slices.Sorted(maps.Keys(overlay))
}
