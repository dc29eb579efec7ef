//go:build unix

package ledger

import (
	"errors"
	"fmt"
	"os"
	"syscall"
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
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}
