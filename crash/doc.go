// Package crash holds the crash suite: tests, and nothing else.
//
// Real processes of the built binary work on one ledger (MCP clients, yieldlog
// exec, yieldlog serve) and are killed with SIGKILL at named windows, which the
// suite finds by following the ledger's events live and by looking at the
// process table. The product has no hooks for it. Afterwards a checker reads
// the ledger and holds it to the rules of package events, and to what the
// clients were told: see [TestCrash] and its flags.
//
//	go test ./crash -run TestCrash -rounds 500 -seed 1    # make crash
//	go test ./crash -run TestCrash -seed 42 -rounds 1 -v  # one round again
//	go test ./crash -run TestCrash -window takeover
//
// A round that fails keeps its ledger and prints the command that plays it
// again. The seed decides what is run and where it is killed, not how the
// machine schedules it: a failure may take some rounds to come back.
//
// Power cuts are proven beside what they hurt, in events/ledger.
package crash
