package producers

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// family is the processes of this program's executions. There is one, because
// the kernel knows one: this process is the subreaper of its descendants, so an
// orphan of an execution, wherever setsid or a double fork took it, becomes a
// child of ours in the instant in which its parent dies. What descends from us
// is all there is to look at, and nobody else's process ever is.
var family = &kin{shells: map[int]*process{}, session: mySession()}

// kin is a family of processes. Its zero value is not usable.
type kin struct {
	session int // ours: children in it were started by other code of this program

	mu     sync.Mutex
	shells map[int]*process // started and not released, by pid
	users  int              // open sessions
	chld   chan os.Signal
	done   chan struct{}
}

// A relative is a live process and where it stands.
type relative struct {
	kinsman
	parent, group, session int
	threads                int
	zombie                 bool
}

// environmentToken is the variable that names a process's execution.
const environmentToken = "YIELDLOG_EXECUTION="

func mySession() int {
	sid, err := unix.Getsid(0)
	if err != nil {
		return 0
	}
	return sid
}

// join makes this process the subreaper, while sessions are open.
func (k *kin) join() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.users++; k.users > 1 {
		return
	}
	// An old kernel refuses; then only what stays in its group is found.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	k.chld, k.done = make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(k.chld, unix.SIGCHLD)
	go k.reapOrphans(k.chld, k.done)
}

// leave ends what join began, with the last session.
func (k *kin) leave() {
	k.mu.Lock()
	if k.users--; k.users > 0 {
		k.mu.Unlock()
		return
	}
	chld, done := k.chld, k.done
	k.mu.Unlock()
	signal.Stop(chld)
	close(chld)
	<-done
}

// start forks a shell. No child is reaped meanwhile: one that exits at once is
// not mistaken for an orphan.
func (k *kin) start(p *process, fork func() (int, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	unmark := mark(p.token)
	pid, err := fork()
	unmark()
	if err != nil {
		return err
	}
	p.pid = pid
	p.start, _ = startTime(pid)
	k.shells[pid] = p
	return nil
}

// A command may clear its environment, and with it the token. What it hands on to
// its children all the same, and nobody looks at, is its limit of file locks, which
// Linux has not enforced since 2.6. It is a mark made of the token.
const leastMark = 1 << 62

func markFor(token string) uint64 {
	sum := sha256.Sum256([]byte(token))
	return leastMark + binary.LittleEndian.Uint64(sum[:])>>2
}

// mark makes this process hand the token's mark on to what it forks, until unmark
// is called. Where a limit forbids it, the token alone must do.
func mark(token string) (unmark func()) {
	var was unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_LOCKS, &was) != nil ||
		unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: markFor(token), Max: was.Max}) != nil {
		return func() {}
	}
	return func() { _ = unix.Setrlimit(unix.RLIMIT_LOCKS, &was) } // it was allowed before
}

// markOf is the mark that a process bears.
func markOf(pid int) (mark uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return 0, false
	}
	_, line, _ := bytes.Cut(b, []byte("\nMax file locks"))
	f := bytes.Fields(line)
	if len(f) == 0 {
		return 0, false
	}
	mark, err = strconv.ParseUint(string(f[0]), 10, 64) // or it is unlimited
	return mark, err == nil && mark >= leastMark && mark < 2*leastMark
}

func (k *kin) forget(p *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.shells, p.pid)
}

// reapPause is how long the exits of children are gathered: most are of shells,
// whose ends are being recorded at that moment.
const reapPause = 10 * time.Millisecond

// reapOrphans takes the exit statuses of orphans, so that none stays a zombie.
func (k *kin) reapOrphans(chld <-chan os.Signal, done chan<- struct{}) {
	defer close(done)
	for range chld {
		time.Sleep(reapPause)
		k.mu.Lock()
		for _, r := range k.orphans() {
			if r.zombie {
				_, _ = syscall.Wait4(r.pid, nil, syscall.WNOHANG, nil)
			}
		}
		k.mu.Unlock()
	}
}

// descendants is the live processes of the shell's tree, without the shell.
func (k *kin) descendants(p *process) []relative {
	k.mu.Lock()
	defer k.mu.Unlock()
	var tree []relative
	if !p.gone.Load() { // an exited shell's children are ours by now
		tree = offspring(p.pid, tree)
	}
	for _, r := range k.orphans() {
		if !r.zombie && k.belongs(r, p) {
			tree = offspring(r.pid, append(tree, r))
		}
	}
	return tree
}

// strays is the live processes that outlived the shells of the executions that
// mine takes. The last session takes them all.
func (k *kin) strays(mine func(token string) bool) []kinsman {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []relative
	for _, r := range k.orphans() {
		if r.zombie {
			continue
		}
		if token, _ := tokenOf(r.pid); k.users == 1 || mine(token) {
			found = offspring(r.pid, append(found, r))
		}
	}
	return kinsmen(found)
}

func kinsmen(rs []relative) []kinsman {
	ks := make([]kinsman, len(rs))
	for i, r := range rs {
		ks[i] = r.kinsman
	}
	return ks
}

// belongs reports whether an orphan is the shell's: by group, by session, by
// the token in its environment, by its mark, or because there is no other shell
// whose it could be.
func (k *kin) belongs(r relative, p *process) bool {
	if r.group == p.pid || r.session == p.pid {
		return true
	}
	token, ok := tokenOf(r.pid)
	if ok {
		return token == p.token
	}
	if mark, ok := markOf(r.pid); ok {
		return mark == markFor(p.token)
	}
	return len(k.shells) == 1 && k.shells[p.pid] == p
}

// orphans is our children that descend from shells, and are none themselves. The
// kernel gives orphans to the first thread of their reaper. The caller holds the lock.
func (k *kin) orphans() []relative {
	var rs []relative
	pid := os.Getpid()
	for _, child := range childrenOf(pid, pid) {
		if k.shells[child] != nil {
			continue
		}
		if r, ok := look(child); ok && r.session != k.session {
			rs = append(rs, r)
		}
	}
	return rs
}

// isReader reports whether a descendant can read a pipe that is not the shell's
// input. It need not be its input yet: who was just forked has that before it.
func (p *process) isReader(k kinsman) bool {
	dir := fmt.Sprintf("/proc/%d/fd/", k.pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
		name, err := os.Readlink(dir + fd.Name())
		if err != nil || !strings.HasPrefix(name, "pipe:") || name == p.pipe {
			return false
		}
		end, err := os.Lstat(dir + fd.Name())
		return err == nil && end.Mode()&0o400 != 0
	})
}

// offspring appends the live descendants of a process.
func offspring(pid int, tree []relative) []relative {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return tree
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		for _, child := range childrenOf(pid, tid) {
			if r, ok := look(child); ok && !r.zombie {
				tree = append(tree, r)
			}
			tree = offspring(child, tree)
		}
	}
	return tree
}

func childrenOf(pid, tid int) []int {
	b, err := readProc(fmt.Sprintf("/proc/%d/task/%d/children", pid, tid))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range bytes.Fields(b) {
		if n, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// look reads what the kernel says of a process; false when there is none.
func look(pid int) (relative, bool) {
	b, err := readProc(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return relative{}, false
	}
	// pid (name) state ppid pgrp session ...: the name may hold anything.
	left, right := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if left < 0 || right < left {
		return relative{}, false
	}
	f := strings.Fields(string(b[right+1:]))
	if len(f) < 20 {
		return relative{}, false
	}
	r := relative{kinsman: kinsman{pid: pid, name: string(b[left+1 : right])}}
	r.zombie = f[0] == "Z" || f[0] == "X"
	r.parent, _ = strconv.Atoi(f[1])
	r.group, _ = strconv.Atoi(f[2])
	r.session, _ = strconv.Atoi(f[3])
	r.threads, _ = strconv.Atoi(f[17])
	r.start, err = strconv.ParseUint(f[19], 10, 64)
	return r, err == nil
}

// readProc reads a small file of the kernel's, which never waits: without the
// runtime's poller it takes a third of the system calls of [os.ReadFile].
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 1024)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		if n <= 0 || err != nil {
			return b, err
		}
		if b = b[:len(b)+n]; len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
	}
}

// startTime is when the process started, in clock ticks since boot.
func startTime(pid int) (uint64, bool) {
	r, ok := look(pid)
	return r.start, ok
}

// tokenOf is the execution that a process's environment names.
func tokenOf(pid int) (string, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return "", false
	}
	for v := range bytes.SplitSeq(b, []byte{0}) {
		if t, ok := bytes.CutPrefix(v, []byte(environmentToken)); ok {
			return string(t), true
		}
	}
	return "", false
}

// bootID names this boot of the machine.
var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// signal sends a signal to exactly this process: the descriptor holds on to it
// while its start time is compared, so a pid that was given away is left alone.
func (k kinsman) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(k.pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		if start, ok := startTime(k.pid); ok && start == k.start {
			_ = syscall.Kill(k.pid, sig)
		}
		return
	}
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if start, ok := startTime(k.pid); ok && start == k.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // fails only when it is gone, or not ours to signal
	}
}

// await returns once the shell has exited. Its pid stays taken until release.
func (p *process) await() {
	if !pollExit(p.pid) {
		exited(p.pid, 0)
	}
	p.gone.Store(true)
}

// pollExit waits for the end of a child of ours with the runtime's poller: a wait
// in the kernel would hold a thread, and keep a processor from the goroutines that
// record what the child does. It reports false where the system has no such poll.
func pollExit(pid int) bool {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { go f.Close() }() // an answer need not wait for that
	raw, err := f.SyscallConn()
	return err == nil && raw.Read(func(uintptr) bool { return exited(pid, unix.WNOHANG) }) == nil
}

// exited reports whether a child of ours has exited, for which it waits unless
// the options say otherwise. It leaves the child to be reaped.
func exited(pid, options int) bool {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|options, nil)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || info.Signo != 0
		}
	}
}

// exited reports whether the shell has exited.
func (p *process) exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return true
	}
	r, ok := look(p.pid)
	return !ok || r.zombie
}

// pipeSize is what the output pipe of a busy command may hold, in bytes; the
// kernel's default is 64 KiB.
const pipeSize = 256 << 10

// widen lets the pipe hold more, if the system allows it.
func widen(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
}
