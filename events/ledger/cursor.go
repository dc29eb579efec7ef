package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// ErrCursorTaken says that another process goes on from the cursor.
var ErrCursorTaken = errors.New("another process has this cursor")

// Cursor is where a named reader goes on, kept in the state directory over
// restarts. One process has it at a time. It is safe for concurrent use.
type Cursor struct {
	lock *os.File // reachable as long as the cursor is: a finalizer would release it
	path string

	mu   sync.Mutex
	next uint64
}

type cursorFile struct {
	Version int    `json:"version"`
	Next    uint64 `json:"next"`
}

// OpenCursor takes the cursor of a name, which must be a file name. A new one
// has no position: see [Cursor.Next]. It returns [ErrCursorTaken] when another
// process has it.
func (l *Ledger) OpenCursor(name string) (*Cursor, error) {
	if name == "" || name != filepath.Base(name) || name[0] == '.' {
		return nil, fmt.Errorf("%q is no name for a cursor", name)
	}
	dir := l.dir().cursors()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the cursor %s: %w", name, err)
	}
	lock, err := lockFile(filepath.Join(dir, name+".lock"), true)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("opening the cursor %s: %w", name, ErrCursorTaken)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the cursor %s: %w", name, err)
	}
	c := &Cursor{lock: lock, path: filepath.Join(dir, name+".json")}
	var f cursorFile
	if err := readJSON(c.path, &f); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("reading the cursor %s: %w", name, err), lock.Close())
	}
	c.next = f.Next
	return c, nil
}

// ForgetCursor removes the cursor of a name. It returns [fs.ErrNotExist] when
// there is none, and [ErrCursorTaken] when another process has it.
func (l *Ledger) ForgetCursor(name string) error {
	c, err := l.OpenCursor(name)
	if err != nil {
		return err
	}
	// The lock's file stays: whoever waits for it holds it, or a new one, alone.
	if err := errors.Join(os.Remove(c.path), c.Close()); err != nil {
		return fmt.Errorf("forgetting the cursor %s: %w", name, err)
	}
	return nil
}

// Next is the sequence to go on from, or 0 when there is none yet.
func (c *Cursor) Next() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// Save keeps the sequence to go on from. After a power cut an older one may be
// there.
func (c *Cursor) Save(next uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next == c.next {
		return nil
	}
	if err := writeJSON(c.path, cursorFile{Version: 1, Next: next}, false); err != nil {
		return fmt.Errorf("saving a cursor: %w", err)
	}
	c.next = next
	return nil
}

// Close lets go of the cursor.
func (c *Cursor) Close() error { return c.lock.Close() }
