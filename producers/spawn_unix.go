//go:build unix

package producers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/yieldlog/yieldlog/events"
)

// native is what this system needs to know of a process beside its pid.
type native struct {
	gone atomic.Bool // the shell was seen to have exited
	raw  []rawStream // our ends of the pipes, until attach
	pipe string      // what /proc calls standard input, if that is a pipe
}

// A stage is a launch with all that can be had ready before it.
type stage struct {
	launch
	program string
	process *process
	theirs  []*os.File // its ends of the pipes
	attr    *syscall.SysProcAttr
}

// prepare makes the stage. The caller must start or drop it.
func prepare(l launch) (*stage, error) {
	defaultSignals()
	program, err := exec.LookPath(l.argv[0])
	if err != nil {
		return nil, err
	}
	plumb := pipes
	if l.tty != nil {
		plumb = terminal(*l.tty)
	}
	s := &stage{launch: l, program: program, process: &process{token: l.token, signaled: map[kinsman]bool{}}}
	if s.theirs, s.attr, err = plumb(s.process); err != nil {
		s.drop()
		return nil, err
	}
	return s, nil
}

// drop gives up what was prepared, if anything was.
func (s *stage) drop() {
	if s == nil {
		return
	}
	closeAll(s.theirs)
	s.process.attach()
	closeAll(s.process.files())
}

// start starts the program in a session, and so a process group, of its own. The
// caller must await and release it, and close its files.
func (s *stage) start() (*process, error) {
	fds := make([]uintptr, len(s.theirs))
	for i, f := range s.theirs {
		fds[i] = f.Fd() // which makes it blocking, as programs expect
	}
	err := family.start(s.process, func() (int, error) {
		return syscall.ForkExec(s.program, s.argv, &syscall.ProcAttr{Dir: s.dir, Env: s.env, Files: fds, Sys: s.attr})
	})
	if err != nil {
		s.drop()
		return nil, fmt.Errorf("starting %s in %s: %w", s.program, s.dir, err)
	}
	s.process.attach() // while the shell starts
	closeAll(s.theirs)
	return s.process, nil
}

// pipes connects the process by three pipes, and returns its ends.
func pipes(p *process) (theirs []*os.File, attr *syscall.SysProcAttr, err error) {
	for _, kind := range []events.Kind{"", events.KindStdout, events.KindStderr} { // standard input first
		ours := 0
		if kind == "" {
			ours = 1
		}
		fds, err := pipe(ours)
		if err != nil {
			return theirs, nil, err
		}
		p.raw = append(p.raw, rawStream{kind, fds[ours]})
		theirs = append(theirs, os.NewFile(uintptr(fds[1-ours]), "|"))
	}
	var input unix.Stat_t
	if unix.Fstat(p.raw[0].fd, &input) == nil {
		p.pipe = fmt.Sprintf("pipe:[%d]", input.Ino)
	}
	return theirs, &syscall.SysProcAttr{Setsid: true}, nil
}

// pipe makes a pipe of which one end does not block: that is ours.
func pipe(ours int) (fds [2]int, err error) {
	syscall.ForkLock.RLock()
	if err = syscall.Pipe(fds[:]); err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err == nil {
		if err = syscall.SetNonblock(fds[ours], true); err != nil {
			err = errors.Join(err, syscall.Close(fds[0]), syscall.Close(fds[1]))
		}
	}
	if err != nil {
		return fds, fmt.Errorf("making a pipe: %w", err)
	}
	return fds, nil
}

// A rawStream is our end of a pipe before the runtime's poller knows of it: that
// costs more than the pipe, and can be done while the shell starts. Standard
// input has no kind.
type rawStream struct {
	kind events.Kind
	fd   int
}

// attach makes files of our ends.
func (p *process) attach() {
	for _, r := range p.raw {
		f := os.NewFile(uintptr(r.fd), "|")
		if r.kind == "" {
			p.stdin = f
			continue
		}
		p.streams = append(p.streams, stream{kind: r.kind, file: f})
	}
	p.raw = nil
}

// terminal connects the process by a terminal of that size.
func terminal(size events.Size) func(*process) ([]*os.File, *syscall.SysProcAttr, error) {
	return func(p *process) ([]*os.File, *syscall.SysProcAttr, error) {
		ours, theirs, err := pty.Open()
		if err != nil {
			return nil, nil, fmt.Errorf("opening a terminal: %w", err)
		}
		input, err := duplicate(ours) // closing the input must not end the output
		if err != nil {
			closeAll([]*os.File{ours})
			return []*os.File{theirs}, nil, err
		}
		p.stdin = input
		p.streams = []stream{{kind: events.KindTTY, file: ours}}
		attr := &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
		if err := setSize(ours, size); err != nil {
			return []*os.File{theirs}, nil, err
		}
		return []*os.File{theirs, theirs, theirs}, attr, nil
	}
}

// setSize sets a terminal's size; the zero size is 24 by 80.
func setSize(f *os.File, s events.Size) error {
	if s.Rows <= 0 {
		s.Rows = 24
	}
	if s.Cols <= 0 {
		s.Cols = 80
	}
	if err := pty.Setsize(f, &pty.Winsize{Rows: uint16(min(s.Rows, 1<<15)), Cols: uint16(min(s.Cols, 1<<15))}); err != nil {
		return fmt.Errorf("setting the terminal's size: %w", err)
	}
	return nil
}

// duplicate is the file under a descriptor of its own.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("duplicating a terminal: %w", err)
	}
	fd, dup := -1, error(nil)
	err = raw.Control(func(old uintptr) { fd, dup = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dup); err != nil {
		return nil, fmt.Errorf("duplicating a terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// files is our ends.
func (p *process) files() []*os.File {
	var fs []*os.File
	if p.stdin != nil {
		fs = append(fs, p.stdin)
	}
	for _, s := range p.streams {
		fs = append(fs, s.file)
	}
	return fs
}

func closeAll(fs []*os.File) {
	for _, f := range fs {
		_ = f.Close() // nothing was written to them; a terminal may be listed twice
	}
}

// release gives the pid back and returns how the shell ended. It waits for the end.
func (p *process) release() syscall.WaitStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.status, p.reaped = reap(p.pid), true
		family.forget(p)
	}
	return p.status
}

// signalTree signals the shell's group, and every descendant that left it.
func (p *process) signalTree(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped { // the numbers may be somebody else's by now
		return
	}
	tree := family.descendants(p)
	err := syscall.Kill(-p.pid, sig)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		_ = syscall.Kill(p.pid, sig)
	}
	for _, k := range tree {
		p.signaled[k.kinsman] = true
		if k.group != p.pid {
			k.signal(sig)
		}
	}
}

// descendants is what is left of the tree, without the shell.
func (p *process) descendants() []kinsman {
	return kinsmen(family.descendants(p))
}

// signalEach signals descendants one by one. Without again, those that took a
// signal before are left alone: they are on their way out.
func (p *process) signalEach(ks []kinsman, sig syscall.Signal, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range ks {
		if again || !p.signaled[k] {
			p.signaled[k] = true
			k.signal(sig)
		}
	}
}

// reap takes the exit status of a child of ours, and waits for it.
func reap(pid int) syscall.WaitStatus {
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); !errors.Is(err, syscall.EINTR) {
			return ws
		}
	}
}
