package ledger

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile opens and locks a file, creating it when create is set. The lock
// lives as long as the returned file does. It fails with errLocked when someone
// else holds the lock.
func lockFile(path string, create bool) (*os.File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{})
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}
