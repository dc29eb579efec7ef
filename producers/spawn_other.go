//go:build !unix

package producers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// family is nothing here: only the shell itself is known and ended.
var family kin

type kin struct{}

func (kin) join()                                    {}
func (kin) leave()                                   {}
func (kin) strays(func(token string) bool) []kinsman { return nil }

func (kinsman) signal(syscall.Signal) {}

// native is what this system needs to know of a process.
type native struct{ handle *os.Process }

// A stage is a launch: nothing is made ready for it here.
type stage struct{ launch }

func prepare(l launch) (*stage, error) {
	if l.tty != nil {
		return nil, errors.New("terminals are not supported on this system")
	}
	return &stage{l}, nil
}

func (*stage) drop() {}

// start starts the program with three pipes.
func (l *stage) start() (*process, error) {
	p := &process{token: l.token, signaled: map[kinsman]bool{}}
	in, stdin, err1 := os.Pipe()
	outR, outW, err2 := os.Pipe()
	errR, errW, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	c := exec.Command(l.argv[0], l.argv[1:]...)
	c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr = l.dir, l.env, in, outW, errW
	err := c.Start()
	for _, f := range []*os.File{in, outW, errW} {
		_ = f.Close()
	}
	if err != nil {
		for _, f := range []*os.File{stdin, outR, errR} {
			_ = f.Close()
		}
		return nil, fmt.Errorf("starting %s: %w", l.argv[0], err)
	}
	p.pid, p.stdin, p.handle = c.Process.Pid, stdin, c.Process
	p.streams = []stream{{events.KindStdout, outR}, {events.KindStderr, errR}}
	return p, nil
}

// await returns once the shell has exited, and takes its status.
func (p *process) await() {
	state, err := p.handle.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	if err == nil {
		p.status, _ = state.Sys().(syscall.WaitStatus)
	}
}

func (p *process) exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

func (p *process) release() syscall.WaitStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// signalTree ends the shell: there are no signals here.
func (p *process) signalTree(syscall.Signal) { _ = p.handle.Kill() }

func (p *process) descendants() []kinsman { return nil }

func (p *process) isReader(kinsman) bool { return false }

func (p *process) signalEach([]kinsman, syscall.Signal, bool) {}

func setSize(*os.File, events.Size) error {
	return errors.New("terminals are not supported on this system")
}

// readNow reports that nothing is there: reads cannot be tried here.
func readNow(uintptr, []byte) (int, error) { return 0, syscall.EAGAIN }

func widen(*os.File) {}

func startTime(int) (uint64, bool) { return 0, false }

func bootID() string { return "" }

// signalNames is the signals that can be asked for; all end the shell.
var signalNames = map[syscall.Signal]string{
	syscall.SIGTERM: "SIGTERM", syscall.SIGKILL: "SIGKILL", syscall.SIGINT: "SIGINT", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT",
}

func signalName(s syscall.Signal) string { return signalNames[s] }

func signalNamed(name string) (syscall.Signal, bool) {
	for s, n := range signalNames {
		if strings.EqualFold(n, name) {
			return s, true
		}
	}
	return 0, false
}

func endLost(context.Context, []projections.Unsettled) {}
