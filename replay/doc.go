// Package replay drives the folds and makes things of them. One engine serves
// and does postmortem: live is a replay that never ends.
//
//   - [Engine] applies events to folds: to a sequence, to a time, or live.
//
//   - [ReadPage] is a page of an execution's output, what every answer about
//     output is made from.
//
//   - [Timeline] is a history as it looked, [Player] shows it with its timing, and
//     [TextWriter], [WriteAsciicast], [WriteMarkdown] and [WriteEventLines] write it.
//
//   - [Search] finds lines in commands and output.
//
//   - [Verify] proves a ledger, or names what is wrong with it.
//
// The package starts no goroutine that outlives a call.
package replay
