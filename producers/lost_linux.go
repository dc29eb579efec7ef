package producers

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/yieldlog/yieldlog/projections"
)

// lostGrace bounds the wait for processes of dead sessions to go.
const lostGrace = 2 * time.Second

// endLost kills what is left of executions whose server died: processes whose
// environment names such an execution, and shells that are, by pid, start time
// and boot, still the ones that were recorded. Nobody else is touched.
func endLost(unsettled []projections.Unsettled) {
	dead := map[string]bool{}
	shells := map[int]uint64{}
	for _, u := range unsettled {
		dead[u.Execution] = true // forked perhaps, and not recorded yet
		if u.Spawned.PID != 0 && u.Spawned.Boot == bootID() {
			shells[u.Spawned.PID] = u.Spawned.Start
		}
	}
	if len(dead) == 0 {
		return
	}
	spared := ancestors()
	for deadline := time.Now().Add(lostGrace); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		left := remains(dead, shells, spared)
		if len(left) == 0 {
			return
		}
		for _, k := range left {
			k.signal(syscall.SIGKILL)
		}
	}
}

// remains is the live processes of dead executions.
func remains(dead map[string]bool, shells map[int]uint64, spared map[int]bool) []kinsman {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var left []kinsman
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
		token, _ := tokenOf(pid)
		start, recorded := shells[pid]
		if dead[token] || recorded && start == r.start {
			left = append(left, r.kinsman)
		}
	}
	return left
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
