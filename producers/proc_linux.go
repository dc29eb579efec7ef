package producers

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A relative is a live process and where it stands.
type relative struct {
	kinsman
	parent, group, session int
	threads                int
	zombie                 bool
}

// environmentToken is the variable that names a process's execution.
const environmentToken = executionVar + "="

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
