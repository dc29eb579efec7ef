package guardian

import (
	"os"
	"slices"
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

// is reports whether both are the same process.
func (p process) is(q process) bool { return p.pid == q.pid && p.start == q.start }

// ward is what the guardian answers for: its descendants, and whoever carries
// its mark, wherever it went.
type ward struct {
	mark string
	// spared are children that this process had before there was a server: a
	// script that starts something and then becomes the guardian leaves one.
	spared []process
}

// sweep kills the ward until there is nobody left. New ones may appear while it works.
func (w ward) sweep() {
	deadline := time.Now().Add(sweepFor)
	for clean, pause := 0, time.Millisecond; clean < 2 && time.Now().Before(deadline); {
		w.killChildren()
		reap()
		left := w.victims()
		if len(left) == 0 {
			clean++ // once more: a fork may have slipped through
			continue
		}
		clean = 0
		for _, p := range left {
			w.kill(p)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// killChildren kills what this process has adopted, until nothing is left or for
// some hundredths of a second. What forks and exits all the time moves on faster
// than the process table is read, but always comes here. A child keeps its number
// until it is reaped, so that nobody else is hit.
func (w ward) killChildren() {
	for range 1000 {
		alive := false
		for _, p := range children(os.Getpid()) {
			if !p.over && !slices.ContainsFunc(w.spared, p.is) {
				alive = true
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		if !alive {
			return
		}
		reap()
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
func (w ward) victims() []process {
	table := processes()
	self := os.Getpid()
	var list []process
	for pid, p := range table {
		if pid != self && !p.over && (w.descends(table, p) || carries(pid, w.mark)) {
			list = append(list, p)
		}
	}
	return list
}

// descends reports whether p comes from this process, by way of the server. A
// parent is older than its child: one that is not got its number later.
func (w ward) descends(table map[int]process, p process) bool {
	self := os.Getpid()
	for range len(table) {
		parent, ok := table[p.parent]
		if !ok || parent.start > p.start || slices.ContainsFunc(w.spared, p.is) {
			return false
		}
		if parent.pid == self {
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
func (w ward) kill(p process) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	// From here on fd means one process, whatever becomes of the number.
	now, ok := inspect(p.pid)
	moved := now.parent != p.parent && now.parent != os.Getpid()
	if !ok || !now.is(p) || moved && !carries(p.pid, w.mark) {
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

// children is the children of a process that has one thread.
func children(pid int) []process {
	id := strconv.Itoa(pid)
	text, err := os.ReadFile("/proc/" + id + "/task/" + id + "/children")
	if err != nil {
		return nil
	}
	var list []process
	for _, f := range strings.Fields(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			if p, ok := inspect(n); ok {
				list = append(list, p)
			}
		}
	}
	return list
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
