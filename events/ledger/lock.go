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

// A hostLock is the right to run the server on a state directory. It lives as
// long as it is reachable.
type hostLock struct{ file, dir *os.File }

// lockHost takes the right, if nobody has it. The directory is locked beside the
// file: should somebody remove the file, a second server must not come up.
func (d stateDir) lockHost(create bool) (*hostLock, error) {
	f, err := lockFile(d.hostLock(), create)
	if err != nil {
		return nil, err
	}
	dir, err := lockDir(string(d), lockAlone)
	if errors.Is(err, errLocked) {
		return nil, errors.Join(err, f.Close())
	}
	return &hostLock{file: f, dir: dir}, nil // some file systems lock no directories
}

// root is a name of the locked directory that follows it wherever it is moved, if
// the system has one: the server, which opens files by name, so never writes to a
// directory that took the place of its own.
func (l *hostLock) root(dir stateDir) stateDir {
	if l.dir == nil {
		return dir
	}
	name := fmt.Sprintf("/proc/self/fd/%d", l.dir.Fd())
	at, err := os.Stat(name)
	was, statErr := l.dir.Stat()
	if err != nil || statErr != nil || !os.SameFile(at, was) {
		return dir
	}
	return stateDir(name)
}

// Close gives the right back.
func (l *hostLock) Close() error {
	if l.dir == nil {
		return l.file.Close()
	}
	return errors.Join(l.dir.Close(), l.file.Close())
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
