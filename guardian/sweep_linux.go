package guardian

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sweepFor bounds a sweep: what no SIGKILL ends by then (a process of another
// user, one in the middle of a kernel call) is left.
const sweepFor = 5 * time.Second

// process is one line of the process table.
type process struct {
	pid, parent int
	// start is when it started, in clock ticks since boot: with pid it names
	// one process until the next boot.
	start uint64
	over  bool // it only waits to be reaped
}

// sweep kills every descendant of this process, and every process that carries
// the mark, until there are none. New ones may appear while it works.
func sweep(mark string) {
	deadline := time.Now().Add(sweepFor)
	for clean, pause := 0, time.Millisecond; clean < 2 && time.Now().Before(deadline); {
		reap()
		left := victims(mark)
		if len(left) == 0 {
			clean++ // once more: a fork may have slipped through
			continue
		}
		clean = 0
		for _, p := range left {
			kill(p, mark)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != syscall.EINTR && pid <= 0 {
			return
		}
	}
}

// victims are the processes that must not outlive the server.
func victims(mark string) []process {
	table := processes()
	self := os.Getpid()
	var list []process
	for pid, p := range table {
		if pid != self && !p.over && (descends(table, p, self) || carries(pid, mark)) {
			list = append(list, p)
		}
	}
	return list
}

// descends reports whether p comes from the ancestor. A parent is older than
// its child: one that is not got its number later.
func descends(table map[int]process, p process, ancestor int) bool {
	for range len(table) {
		parent, ok := table[p.parent]
		if !ok || parent.start > p.start {
			return false
		}
		if parent.pid == ancestor {
			return true
		}
		p = parent
	}
	return false
}

// carries reports whether the process was started with the mark in its environment.
func carries(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // another user's, or gone
	}
	entry := Var + "=" + mark + "\x00"
	return strings.HasPrefix(string(env), entry) || strings.Contains(string(env), "\x00"+entry)
}

// kill ends the process if it still is the one that was looked at.
func kill(p process, mark string) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	// From here on fd means one process, whatever becomes of the number.
	now, ok := inspect(p.pid)
	moved := now.parent != p.parent && now.parent != os.Getpid()
	if !ok || now.start != p.start || moved && !carries(p.pid, mark) {
		return
	}
	if err != nil { // a kernel before 5.3
		_ = unix.Kill(p.pid, unix.SIGKILL)
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// processes is the process table.
func processes() map[int]process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	table := make(map[int]process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := inspect(pid); ok {
			table[pid] = p
		}
	}
	return table
}

// inspect reads one line of the process table; ok is false for a process that
// is not there.
func inspect(pid int) (p process, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// pid (name) state ppid ... starttime, and the name may hold anything.
	f := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if len(f) < 20 {
		return process{}, false
	}
	p = process{pid: pid, over: f[0] == "Z" || f[0] == "X"}
	if p.parent, err = strconv.Atoi(f[1]); err != nil {
		return process{}, false
	}
	if p.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return process{}, false
	}
	return p, true
}
