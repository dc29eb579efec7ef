//go:build linux

package crash

import (
	"slices"
	"syscall"
	"time"
)

// A window is a moment at which a kill is worth trying.
type window struct {
	name string
	// opens says which event opens it.
	opens func(sighting) bool
	// reach waits for what no event tells, and reports whether it came.
	reach func(*round, sighting) bool
	// targets are whom it may hit.
	targets []target
	// after is how often it opens before a kill.
	after int
	// jitter is how long after the event it hits at most.
	jitter time.Duration
}

// A target says whom a kill hits: one process, or a group if it is negative.
type target struct {
	name string
	pid  func(*round, sighting) int
}

// The targets. A process that is not there is 0, and the host is hit instead.
var (
	host     = target{"host", func(r *round, _ sighting) int { return r.locker(hostLock) }}
	owner    = target{"owner", func(r *round, s sighting) int { return r.watch.pid(s.session) }}
	guardian = target{"guardian", func(r *round, s sighting) int { return r.guardianOf(r.watch.pid(s.session)) }}
	group    = target{"group", func(r *round, s sighting) int { return -r.guardianOf(r.watch.pid(s.session)) }}
	joiner   = target{"joiner", func(r *round, _ sighting) int { return r.joiner() }}
	packer   = target{"packer", func(r *round, _ sighting) int { return r.locker(packLock) }}
	child    = target{"child", func(r *round, s sighting) int { return r.child(s.id) }}
)

var windows = []window{
	{name: "requested", opens: is("execution", "requested"), targets: []target{owner, host, guardian, group}},
	{name: "forked", opens: is("execution", "requested"), reach: started, targets: []target{owner, host, guardian, group, child}},
	{name: "spawned", opens: is("execution", "spawned"), targets: []target{owner, host, guardian, child}, jitter: 2 * time.Millisecond},
	{name: "output", opens: is("output", "stdout", "stderr"), targets: []target{owner, host, joiner, guardian, child}, jitter: time.Millisecond},
	{name: "unsettled", opens: is("output", "stdout", "stderr"), reach: ended, targets: []target{owner, host, guardian}},
	{name: "mail", opens: is("mailbox", "posted"), targets: []target{owner, host, guardian}, jitter: 2 * time.Millisecond},
	{name: "told", opens: is("mailbox", "acknowledged"), targets: []target{owner, host, guardian}, jitter: 2 * time.Millisecond},
	{name: "takeover", opens: anything, reach: takenOver, targets: []target{host}, jitter: 30 * time.Millisecond},
	{name: "prune", opens: is("execution", "pruned"), targets: []target{host, owner}, jitter: 10 * time.Millisecond},
	{name: "pack", opens: anything, reach: packing, targets: []target{host, packer}, jitter: 50 * time.Millisecond},
	{name: "any", opens: anything, targets: []target{owner, host, joiner, guardian, group}, jitter: 200 * time.Millisecond},
}

func windowNamed(name string) (window, bool) {
	i := slices.IndexFunc(windows, func(w window) bool { return w.name == name })
	if i < 0 {
		return window{}, false
	}
	return windows[i], true
}

func is(class string, kinds ...string) func(sighting) bool {
	return func(s sighting) bool { return s.class == class && slices.Contains(kinds, s.kind) }
}

func anything(sighting) bool { return true }

// started waits until the execution has a process.
func started(_ *round, s sighting) bool {
	return soon(time.Second, func() bool { return len(servants(s.id)) > 0 })
}

// ended waits until the execution has no process any more.
func ended(_ *round, s sighting) bool {
	return soon(100*time.Millisecond, func() bool { return len(servants(s.id)) == 0 })
}

// takenOver kills the host and waits until another process has its lock.
func takenOver(r *round, _ sighting) bool {
	before := r.locker(hostLock)
	if before == 0 {
		return false
	}
	if !r.kill(before) {
		return false
	}
	return soon(10*time.Second, func() bool { now := r.locker(hostLock); return now != 0 && now != before })
}

// packing waits until a segment is being packed.
func packing(r *round, _ sighting) bool {
	return soon(windowPatience, func() bool { return r.locker(packLock) != 0 })
}

// guardianOf is the process that a client started for this server.
func (r *round) guardianOf(server int) int {
	if server == 0 {
		return 0
	}
	parent := parentOf(server)
	if r.isGuardian(parent) {
		return parent
	}
	return server
}

// joiner is a server of a client that does not host.
func (r *round) joiner() int {
	at := r.locker(hostLock)
	for _, p := range processes() {
		if p.pid != at && p.has("YIELDLOG_DIR", r.dir) && r.isGuardian(p.parent) {
			return p.pid
		}
	}
	return 0
}

func (r *round) child(execution string) int {
	list := servants(execution)
	if len(list) == 0 {
		return 0
	}
	r.hurt(execution)
	return list[r.rng.IntN(len(list))].pid
}

// strike waits for the window and kills the target. It reports whether the
// window came; one that closed too soon is waited for again.
func (r *round) strike(w window, t target) bool {
	for deadline := time.Now().Add(windowPatience); time.Now().Before(deadline); {
		s, ok := r.watch.await(time.Until(deadline), w.opens)
		if w.after--; w.after >= 0 || !ok || w.reach != nil && !w.reach(r, s) {
			continue
		}
		if w.jitter > 0 {
			time.Sleep(time.Duration(r.rng.Int64N(int64(w.jitter)))) // the moment is what varies
		}
		pid := t.pid(r, s)
		if pid == 0 {
			pid = host.pid(r, s)
		}
		if pid != 0 && r.kill(pid) {
			r.logf("window %s: killed %s (%d) at %s of %s", w.name, t.name, pid, s.kind, s.id)
			return true
		}
	}
	return false
}

// kill kills a process or a group, and notes that whoever belongs to it may
// end. It spares a server whose guardian was killed, and a guardian whose server
// was: no more than one of both can be lost without leaving somebody behind.
func (r *round) kill(pid int) bool {
	one := max(pid, -pid)
	partners := []int{parentOf(one)}
	for _, p := range processes() {
		if p.parent == one {
			partners = append(partners, p.pid)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spared[one] {
		return false
	}
	r.killed[one] = true
	for _, p := range partners {
		if r.guardians[p] || r.guardians[one] {
			r.spared[p] = true
			r.killed[p] = true // it ends with its partner
		}
	}
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	return true
}

// soon polls until it is so.
func soon(d time.Duration, is func() bool) bool {
	for deadline := time.Now().Add(d); ; time.Sleep(time.Millisecond) {
		if is() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
