// Package guardian keeps processes from outliving the server that started them.
//
// On Linux the process that a client starts as "yieldlog mcp" becomes the
// guardian: a child subreaper that starts the real server, the same program
// again, in a session of its own and over the same standard streams.
//
//	client ── guardian ── server ── commands ── whatever they start
//
// The guardian passes signals on and exits as the server does. When the server
// is gone, however it went, what it had started is reparented to the guardian,
// which kills it: every descendant, whatever it did to its session, name or
// environment, and whoever carries the guardian's mark in the environment.
// Nothing else is touched: a process is compared by number, kernel start time
// and ancestry before a signal goes to it, through a descriptor that cannot
// come to mean another process.
//
// When the guardian is gone instead, alone or with its process group, the
// server lives on in its own session and sees it: [Lost]. It then has to end
// its commands and record that.
//
// All this happens while this package is initialized: it imports next to
// nothing, so the runtime initializes it before the packages that make a
// server slow to start. A program gets a guardian by importing this package.
//
// On other systems there is no guardian: the server runs in the process that
// the client started, and ends its commands itself as long as it can.
package guardian

// Var is the environment variable that marks the server and everything that it
// starts with their guardian.
const Var = "YIELDLOG_GUARDIAN"

// serverVar tells the process that it is the server and not a new guardian. It
// is gone from the environment before main runs.
const serverVar = "YIELDLOG_GUARDED"
