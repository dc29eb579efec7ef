//go:build linux

package crash

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A process is one line of the process table.
type process struct {
	pid, parent int
	env, args   []byte // both empty where they cannot be read
}

func (p process) has(variable, value string) bool {
	return bytes.Contains(append([]byte{0}, p.env...), []byte("\x00"+variable+"="+value+"\x00"))
}

func (p process) String() string {
	return fmt.Sprintf("%d %s", p.pid, bytes.ReplaceAll(p.args, []byte{0}, []byte{' '}))
}

// processes is the living, those that only wait to be reaped left out.
func processes() []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var list []process
	for _, d := range dirs {
		p, ok := inspect(d)
		if ok {
			list = append(list, p)
		}
	}
	return list
}

func inspect(dir string) (process, bool) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, false
	}
	f := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if len(f) < 2 || f[0] == "Z" || f[0] == "X" {
		return process{}, false
	}
	var p process
	p.pid, _ = strconv.Atoi(filepath.Base(dir))
	p.parent, _ = strconv.Atoi(f[1])
	p.env, _ = os.ReadFile(dir + "/environ")
	p.args, _ = os.ReadFile(dir + "/cmdline")
	return p, true
}

func parentOf(pid int) int {
	p, _ := inspect("/proc/" + strconv.Itoa(pid))
	return p.parent
}

// servants are the processes of an execution.
func servants(execution string) []process {
	return slices.DeleteFunc(processes(), func(p process) bool { return !p.has("YIELDLOG_EXECUTION", execution) })
}

// left is whoever belongs to the round: its servers, and what they started.
func (r *round) left() []process {
	return slices.DeleteFunc(processes(), func(p process) bool {
		return !p.has("YIELDLOG_DIR", r.dir) && !bytes.Contains(p.args, []byte(r.plans.marker))
	})
}

// The locks of a ledger: the host has the first one from before it opens the
// store.
const (
	hostLock = "host.lock"
	packLock = "pack.lock"
)

// locker is the process that has a lock of the ledger, or 0.
func (r *round) locker(lock string) int {
	var st syscall.Stat_t
	if syscall.Stat(filepath.Join(r.dir, lock), &st) != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF
		if len(f) > 5 && f[1] == "FLOCK" && strings.HasSuffix(f[5], ":"+strconv.FormatUint(st.Ino, 10)) {
			pid, _ := strconv.Atoi(f[4])
			return pid
		}
	}
	return 0
}
