package ledger

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// The ways to hold a lock.
const lockAlone, lockTogether = windows.LOCKFILE_EXCLUSIVE_LOCK, 0

// locked is the file, locked, or closed with an error.
func locked(f *os.File, how uint32) (*os.File, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
}

// lockDir locks a directory itself, which Windows cannot.
func lockDir(string, uint32) (*os.File, error) { return nil, errors.ErrUnsupported }
