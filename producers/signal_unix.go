//go:build unix

package producers

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName is the signal's name, such as SIGTERM.
func signalName(s syscall.Signal) string { return unix.SignalName(s) }

// signalNamed is the signal of that name.
func signalNamed(name string) (syscall.Signal, bool) {
	s := unix.SignalNum(name)
	return s, s != 0
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
