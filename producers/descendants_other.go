//go:build unix && !linux

package producers

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/yieldlog/yieldlog/projections"
)

// family knows, where there is no subreaper, only what stays in its shell's
// process group. What left the group with setsid is not found.
var family = &kin{}

type kin struct{ mu sync.Mutex }

type relative struct {
	kinsman
	group int
}

func (k *kin) join()                                    {}
func (k *kin) leave()                                   {}
func (k *kin) forget(*process)                          {}
func (k *kin) strays(func(token string) bool) []kinsman { return nil }

// start forks a shell.
func (k *kin) start(p *process, fork func() (int, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	pid, err := fork()
	p.pid = pid
	return err
}

// descendants is the group, as one relative, while somebody is in it besides
// the shell. The kernel gives the number of a group to nobody while it has members.
func (k *kin) descendants(p *process) []relative {
	if syscall.Kill(-p.pid, 0) != nil {
		return nil
	}
	return []relative{{kinsman: kinsman{pid: -p.pid, name: "process group"}, group: p.pid}}
}

func kinsmen(rs []relative) []kinsman {
	var ks []kinsman
	for _, r := range rs {
		ks = append(ks, r.kinsman)
	}
	return ks
}

// isReader is not known here.
func (p *process) isReader(kinsman) bool { return false }

func (k kinsman) signal(sig syscall.Signal) { _ = syscall.Kill(k.pid, sig) }

// await returns once the shell has exited, and takes its status.
func (p *process) await() {
	ws := reap(p.pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.reaped = ws, true
}

// exited reports whether the shell has exited.
func (p *process) exited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped || errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH)
}

func startTime(int) (uint64, bool) { return 0, false }

func bootID() string { return "" }

func widen(*os.File) {}

func endLost(context.Context, []projections.Unsettled) {}
