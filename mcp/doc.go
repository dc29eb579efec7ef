// Package mcp serves yieldlog to agents over the Model Context Protocol.
//
// A tool call is decoded ([arguments]), handed to the session that owns the
// executions, and answered from the projections once they have reached the last
// appended sequence: what an agent saw is what a replay shows.
//
// # Transports
//
// Over stdio the package runs a loop of its own ([Server.ServeStdio]): a cancel
// is never lost, a response never overtakes a notification that was sent before
// it, and calls in flight are answered after the end of the input. Tool calls go
// straight to their handlers; mcp-go answers everything else. Over HTTP
// ([ServeHTTP]) all this holds for each client, but that answers come each on
// its own request and what is told unasked on the client's stream.
//
// # Goroutines
//
//	stdio reader     reads lines, registers calls, answers pings, cancels
//	stdio writer     the only one that writes to the client, in queue order
//	one per call     from its registration to its queued response
//	progress         one per call with a progress token, ends before its response
//	HTTP requests    answered by net/http's goroutines, which are the writers there
//	HTTP client      hands on what the client is told unasked, until it has left
package mcp
