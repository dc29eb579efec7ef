package producers

import (
	"slices"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// DefaultDelay as a request's Yield or Timeout asks for the configured default.
const DefaultDelay time.Duration = -1

// Request asks for a command.
type Request struct {
	// Owner is who asks; "" is [events.RootOwner].
	Owner string
	// Command is the text for the shell.
	Command string
	// Name is a label for people.
	Name string
	// Cwd is the directory to run in: "" is the configured default, and a
	// relative path is relative to that.
	Cwd string
	// Shell is what the caller named. It is recorded and has no effect: the
	// operator chooses the shell.
	Shell string
	// SideEffects are the declared categories; at least one of [SideEffects].
	SideEffects []string
	// Env is laid over the environment. Its values are never recorded.
	Env map[string]string
	// Stdin is written to the command once it runs.
	Stdin string
	// CloseStdin closes the input after Stdin.
	CloseStdin bool
	// Yield is how long the call waits before it returns with a handle: 0
	// returns at once, [DefaultDelay] waits as long as configured.
	Yield time.Duration
	// Timeout ends the command: 0 is never, [DefaultDelay] as configured.
	Timeout time.Duration
	// TTY, if set, runs the command in a terminal of that size.
	TTY *events.Size
	// Monitor delivers the output's lines through the mailbox as they come.
	Monitor bool
	// Turn is the call's place in the order of calls; nil draws one now.
	Turn *Turn
	// Started, if set, is told the execution's id once it is recorded, before
	// the call returns. It must not block.
	Started func(execution string)
	// Client holds the caller's correlation ids.
	Client map[string]string
	// Trace is the caller's W3C traceparent.
	Trace string
}

// reads reports whether the request declares that it changes nothing, and so
// may overlap with others that do the same.
func (r Request) reads() bool {
	return len(r.SideEffects) > 0 && onlyReads(r.SideEffects)
}

// distinct is the list with each text once, in its first place.
func distinct(list []string) []string {
	seen := make(map[string]bool, len(SideEffects))
	var once []string
	for _, e := range list {
		if !seen[e] {
			seen[e] = true
			once = append(once, e)
		}
	}
	return once
}

// onlyReads reports whether nothing but NONE is declared.
func onlyReads(declared []string) bool {
	return !slices.ContainsFunc(declared, func(e string) bool { return e != sideEffectNone })
}
