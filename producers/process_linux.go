package producers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/yieldlog/yieldlog/events"
)

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

// pipeSize is what the output pipe of a busy command may hold, in bytes: as much as
// a chunk, since each costs a sync. The kernel's default is 64 KiB.
const pipeSize = events.MaxChunk

// widen lets the pipe hold more, if the system allows it.
func widen(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeSize) })
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
