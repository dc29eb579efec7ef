//go:build linux

package crash

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A plan is a command whose output is known beforehand.
type plan struct {
	name    string
	command string
	// stdout and stderr are what it writes if nobody ends it.
	stdout, stderr string
	exit           int
	// endless says that it does not end by itself.
	endless bool
}

// planner makes the plans of one round. Marker is an argument that every
// process which may stay carries, so that it is found in the process table
// whatever became of its environment.
type planner struct {
	rng    *rand.Rand
	prefix string
	marker string
	made   int
}

// note makes a command tell that it started, in a file that the server names.
const note = `echo "$YIELDLOG_EXECUTION" >>"$CRASH_STARTED"; `

// quick is a command that ends by itself.
func (p *planner) quick() plan {
	n, m := 1+p.rng.IntN(400), p.rng.IntN(200)
	switch p.rng.IntN(4) {
	case 0:
		return p.plan("true", "", "", 0)
	case 1:
		return p.plan(fmt.Sprintf("seq 1 %d", n), seq(n), "", 0)
	case 2:
		return p.plan(fmt.Sprintf("seq 1 %d; seq 1 %d >&2; exit 3", n, m), seq(n), seq(m), 3)
	}
	size := 1000 * n
	return p.plan(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size), strings.Repeat("x", size), "", 0)
}

// endless is a command that goes on until it is ended, and tries to escape.
func (p *planner) endless() plan {
	n := 1 + p.rng.IntN(300)
	sleep := "sleep " + p.marker
	var made plan
	switch p.rng.IntN(4) {
	case 0:
		made = p.plan(fmt.Sprintf("seq 1 %d; %s", n, sleep), seq(n), "", 0)
	case 1:
		loop := fmt.Sprintf("i=1; while [ $i -le %d ]; do echo $i; i=$((i+1)); done; ", n)
		made = p.plan(loop+"exec "+sleep, seq(n), "", 0)
	case 2:
		made = p.plan("setsid sh -c 'trap \"\" TERM HUP; "+sleep+"; "+sleep+"' >/dev/null 2>&1 & echo gone; "+sleep, "gone\n", "", 0)
	case 3:
		made = p.plan("env -i setsid "+sleep+" </dev/null >/dev/null 2>&1 & echo gone; exec setsid "+sleep, "gone\n", "", 0)
	}
	made.endless = true
	return made
}

func (p *planner) plan(command, stdout, stderr string, exit int) plan {
	p.made++
	return plan{
		name: fmt.Sprintf("%s-%d", p.prefix, p.made), command: note + command,
		stdout: stdout, stderr: stderr, exit: exit,
	}
}

func seq(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
