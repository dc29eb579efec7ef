//go:build unix

package ledger

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// The ways to hold a lock.
const lockAlone, lockTogether = syscall.LOCK_EX, syscall.LOCK_SH

// locked is the file, locked, or closed with an error.
func locked(f *os.File, how int) (*os.File, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
}

// lockDir locks a directory itself.
func lockDir(path string, how int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	return locked(f, how)
}
