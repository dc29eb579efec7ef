//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// maxRSS is the most memory that the process held, in bytes.
func maxRSS(s *os.ProcessState) int64 {
	u, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" { // which counts bytes
		return u.Maxrss
	}
	return u.Maxrss << 10
}
