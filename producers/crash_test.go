//go:build linux

package producers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

// storm runs commands of every kind, four at a time, for ever, and prints a
// line for each that it is told of.
func storm(ctx context.Context, s *Session, m string) {
	commands := []string{
		"true",
		"head -c 300000 /dev/urandom",
		"seq 1 20000; seq 1 20000 >&2; exit 3",
		"setsid sleep " + m + " & echo $!",
		"setsid sh -c 'trap \"\" TERM; sleep " + m + "; sleep " + m + "' >/dev/null 2>&1 & echo x",
		"i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); done; sleep " + m,
	}
	for range 4 {
		go func() {
			for {
				r := Request{Command: commands[rand.IntN(len(commands))], SideEffects: []string{"NONE"}}
				r.Timeout = 400_000_000
				if rand.IntN(2) == 0 {
					r.Yield = patience
				}
				res, err := s.Exec(ctx, r)
				fmt.Fprintln(os.Stdout, res.Execution, res.Outcome, err)
			}
		}()
	}
	select {}
}

// TestM44_M45_KillAtAnyMoment kills a busy server again and again, and holds what its
// successor finds to the rules. PRODUCERS_CRASH_ROUNDS makes it longer.
func TestM44_M45_KillAtAnyMoment(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("PRODUCERS_CRASH_ROUNDS")); err == nil {
		rounds = n
	}
	dir, m := t.TempDir(), marker()
	var sessions []string
	for range rounds {
		v := newVictim(t, dir)
		sessions = append(sessions, v.session)
		if _, err := fmt.Fprintln(v.in, "storm "+m); err != nil {
			t.Fatal(err)
		}
		for range 1 + rand.IntN(40) {
			v.line()
		}
		v.kill()
	}
	b := newBenchIn(t, dir)
	gone(t, m)
	ended := 0
	for _, session := range sessions {
		states := map[string][]events.Kind{}
		for _, e := range lifecycle(t, b.ledger, events.Filter{Session: session, Class: events.ClassExecution}) {
			states[e.Subject] = append(states[e.Subject], e.Kind())
		}
		for id, kinds := range states {
			if kinds[0] != events.KindRequested || kinds[len(kinds)-1] != events.KindSettled {
				t.Errorf("%s of %s: %v", id, session, kinds)
				continue
			}
			b.stored(session, id)
			ended++
		}
		last := lifecycle(t, b.ledger, events.Filter{Session: session, Class: events.ClassSession})
		if len(last) != 2 || last[1].Kind() != events.KindLost {
			t.Errorf("session %s: %d events", session, len(last))
		}
	}
	t.Logf("%d executions of %d killed servers", ended, rounds)
}
