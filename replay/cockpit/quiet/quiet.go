// Package quiet keeps the terminal libraries from asking the terminal for its
// colours as soon as a program starts: every command of yieldlog would print
// the question, take the user's first keys for its answer, and wait for seconds
// where nothing answers.
//
// Bubble Tea (until v2) asks in an init function, and does not where TERM is
// "dumb". So TERM is that while packages initialise. Go initialises the first
// package by import path whose imports are ready; this one imports os alone,
// hence comes before os/exec, which Bubble Tea imports.
package quiet

import "os"

var term, wasSet = os.LookupEnv("TERM")

func init() {
	if wasSet {
		_ = os.Setenv("TERM", "dumb") // without it the question is asked, no more
	}
}

// Restore gives TERM its value back. Whoever imports Bubble Tea calls it in an
// init function, which runs after that of Bubble Tea.
func Restore() {
	if wasSet {
		_ = os.Setenv("TERM", term) // a name that is set can be set again
	}
}
