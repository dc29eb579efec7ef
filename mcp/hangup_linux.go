package mcp

import (
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the other end of the input was closed, also while
// something that it sent before is not read.
func hungUp(in io.Reader) bool {
	file, ok := in.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0
	})
	return err == nil && gone
}
