package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lockFile opens and locks a file, creating it when create is set. The lock
// lives as long as the returned file does: keep it reachable, a finalizer would
// close it. It fails with errLocked when someone else holds the lock.
func lockFile(path string, create bool) (*os.File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	return locked(f, lockAlone)
}

// lockShared locks a file against [lockFile], together with others who only
// read. It is nil for a file that is not there. It fails with errLocked when
// someone else holds the lock alone.
func lockShared(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	return locked(f, lockTogether)
}
