package producers

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
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
