// Package cockpit is the page in a terminal: what runs and what ran, one
// inspector that opens in place, stop, follow, search and replay at a key. It
// is made of the same views as the page, and changes as little.
//
// Output reaches the terminal as text that package look made harmless, and a
// recording as the screen of a virtual terminal, of which only characters and
// colours are passed on: nothing that a command prints can steer the terminal
// of the person who looks.
//
// It draws at most eight times a second, whatever happens, so a flood costs no
// more than a quiet command.
//
// Goroutines: [Run] owns one that follows the ledger, and while a recording
// plays, the [recording] owns two.
package cockpit
