package main

import (
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a script waits for a fact. It is no measure of speed:
// the machine may be busy.
const patience = 60 * time.Second

// until PATTERN PROGRAM ARGS... runs the program until its standard output
// matches. With "!", until it does not match.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until pattern program [args...]")
	}
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	deadline := time.Now().Add(patience)
	for {
		// Exec's error is no matter: the program may fail until the fact is there.
		err := ts.Exec(args[1], args[2:]...)
		out := ts.ReadFile("stdout")
		if re.MatchString(out) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("until: no match for %q in %v; the last output (%v):\n%s\n%s", args[0], patience, err, out, ts.ReadFile("stderr"))
		}
		time.Sleep(20 * time.Millisecond) // between two looks, not instead of one
	}
}
