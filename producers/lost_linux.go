package producers

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yieldlog/yieldlog/projections"
)

// lostGrace bounds the wait for processes of dead sessions to go.
const lostGrace = 2 * time.Second

// A process says nothing of itself in the middle of an exec: its environment is
// empty, or still that of the server which forked it. One so young is looked at
// again for a while, in case it turns into a command.
const (
	youngFor   = 3 * time.Second
	unsureFor  = 500 * time.Millisecond
	looksAfter = 5                     // looks that find nothing after one that did: a fork may have slipped through
	tickLength = 10 * time.Millisecond // of the start times in /proc
)

// endLost kills what is left of executions whose server died: processes whose
// environment or mark names such an execution, shells that are, by pid, start time
// and boot, still the ones that were recorded, and what descends from these.
// Nobody else is touched.
func endLost(ctx context.Context, unsettled []projections.Unsettled) {
	dead, marks := map[string]bool{}, map[uint64]bool{}
	shells := map[int]uint64{}
	for _, u := range unsettled {
		dead[u.Execution] = true // forked perhaps, and not recorded yet
		marks[markFor(u.Execution)] = true
		if u.Spawned.PID != 0 && u.Spawned.Boot == bootID() {
			shells[u.Spawned.PID] = u.Spawned.Start
		}
	}
	if len(dead) == 0 {
		return
	}
	spared := ancestors()
	began := time.Now()
	for hurry, clean := false, 0; time.Since(began) < lostGrace && ctx.Err() == nil; time.Sleep(2 * time.Millisecond) {
		left, unsure := remains(dead, marks, shells, spared, hurry)
		if clean++; len(left) > 0 {
			clean = -looksAfter
		}
		if clean > 0 && (!unsure || time.Since(began) > unsureFor) {
			return
		}
		hurry = true
		for _, k := range left {
			k.signal(syscall.SIGKILL)
		}
	}
}

// remains is the live processes of dead executions. unsure says that there are
// processes which may turn out to be such. In a hurry it kills them as it finds
// them: what forks and exits all the time is gone by the end of the look. The first
// look is not, since it goes by who descends from whom.
func remains(dead map[string]bool, marks map[uint64]bool, shells map[int]uint64, spared map[int]bool, hurry bool) (left []kinsman, unsure bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, false
	}
	now, own := sinceBoot(), executable("self")
	doomed, others := map[int]kinsman{}, []relative{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || spared[pid] {
			continue
		}
		// Looked at first: what the environment says is then true of this
		// start time, or the signal, which compares it, goes to nobody.
		r, ok := look(pid)
		if !ok || r.zombie {
			continue
		}
		token, named := tokenOf(pid)
		start, recorded := shells[pid]
		marked := false
		if !named { // it may have cleared its environment
			mark, ok := markOf(pid)
			marked = ok && marks[mark]
		}
		if dead[token] || marked || recorded && start == r.start {
			doomed[pid] = r.kinsman
			if hurry {
				r.signal(syscall.SIGKILL)
			}
			continue
		}
		others = append(others, r)
		young := now-time.Duration(r.start)*tickLength < youngFor
		unsure = unsure || young && !named && midExec(r, own)
	}
	addChildren(doomed, others)
	return slices.Collect(maps.Values(doomed)), unsure
}

// addChildren adds the processes that descend from the doomed ones, whatever
// they made of their environment.
func addChildren(doomed map[int]kinsman, others []relative) {
	for added := true; added; {
		added = false
		for _, r := range others {
			parent, ok := doomed[r.parent]
			if _, known := doomed[r.pid]; !ok || known {
				continue
			}
			// Still the one that was looked at first, and so the parent then.
			if start, ok := startTime(parent.pid); ok && start == parent.start {
				doomed[r.pid], added = r.kinsman, true
			}
		}
	}
}

// midExec reports whether a process without a token may be about to get one. One
// that was forked by a server has a single thread, which no server has.
func midExec(r relative, own string) bool {
	pid := strconv.Itoa(r.pid)
	if exe := executable(pid); exe == "" || exe == own {
		return exe != "" && r.threads == 1 // the kernel's own have none
	}
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	return err == nil && len(environ) == 0
}

func executable(pid string) string {
	exe, _ := os.Readlink("/proc/" + pid + "/exe") // gone, or not ours to see
	return exe
}

// sinceBoot is the time that start times count in.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// ancestors is this process and those above it: one of them may itself run in
// an execution that was lost.
func ancestors() map[int]bool {
	above := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !above[pid]; {
		above[pid] = true
		r, ok := look(pid)
		if !ok {
			break
		}
		pid = r.parent
	}
	return above
}
