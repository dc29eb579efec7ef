//go:build unix

package producers

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The real-time signals as programs see them: the C library keeps the first two
// of the kernel's. Only Linux has signals with these numbers.
const firstRealtime, lastRealtime = 34, 64

// signalName is the signal's name, such as SIGTERM or SIGRTMIN+1.
func signalName(s syscall.Signal) string {
	name := unix.SignalName(s)
	switch {
	case name != "":
		return name
	case s == firstRealtime:
		return "SIGRTMIN"
	case s == lastRealtime:
		return "SIGRTMAX"
	case s > firstRealtime && s < lastRealtime:
		return fmt.Sprintf("SIGRTMIN+%d", s-firstRealtime)
	}
	return fmt.Sprintf("SIG%d", s)
}

// otherNames are second names of signals.
var otherNames = map[string]string{"SIGCLD": "SIGCHLD", "SIGIOT": "SIGABRT", "SIGPOLL": "SIGIO"}

// signalNamed is the signal of that name, which is in capitals.
func signalNamed(name string) (syscall.Signal, bool) {
	if other, ok := otherNames[name]; ok {
		name = other
	}
	if s := unix.SignalNum(name); s != 0 {
		return s, true
	}
	for s := syscall.Signal(firstRealtime); runtime.GOOS == "linux" && s <= lastRealtime; s++ {
		if name == signalName(s) {
			return s, true
		}
	}
	return 0, false
}

// defaultSignals makes children start with the default disposition of the
// signals that a parent may have left ignored: an ignored signal stays ignored
// over exec, and a handled one does not.
var defaultSignals = sync.OnceFunc(func() {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, unix.SIGPIPE)
	for _, s := range []os.Signal{unix.SIGINT, unix.SIGHUP} { // the runtime leaves these ignored
		if signal.Ignored(s) {
			signal.Notify(unread, s)
		}
	}
	signal.Notify(unread, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU) // and these untouched
})

// readNow reads what a file that does not block holds, and fails with EAGAIN
// when that is nothing yet.
func readNow(fd uintptr, p []byte) (int, error) {
	return unix.Read(int(fd), p)
}
