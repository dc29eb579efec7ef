package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kept is a folder of the state directory with copies that a refused open or a
// repair kept. Nothing needs it any more; people may want to look into it.
type Kept struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	// Blocks are the damaged blocks, as STREAM/N.blk, of a folder that holds no more.
	Blocks []string `json:"blocks,omitempty"`
}

// Kept lists the copies that were kept.
func (l *Ledger) Kept() ([]Kept, error) {
	entries, err := os.ReadDir(l.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("looking for kept copies: %w", err)
	}
	var kept []Kept
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "refused-") && !strings.HasPrefix(e.Name(), damagedPrefix) {
			continue
		}
		k := Kept{Path: filepath.Join(l.opts.Dir, e.Name())}
		if k.Bytes, err = treeBytes(k.Path); err != nil {
			return nil, fmt.Errorf("looking for kept copies: %w", err)
		}
		if strings.HasPrefix(e.Name(), damagedPrefix) {
			k.Blocks, _ = fs.Glob(os.DirFS(k.Path), "*/*.blk") // the pattern is good
		}
		kept = append(kept, k)
	}
	return kept, nil
}

func treeBytes(root string) (sum int64, err error) {
	err = filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// A CursorInfo describes a cursor.
type CursorInfo struct {
	Name string `json:"name"`
	Next uint64 `json:"next"`
	// Taken says that a process goes on from it now.
	Taken bool `json:"taken"`
}

// Cursors lists the cursors.
func (l *Ledger) Cursors() ([]CursorInfo, error) {
	dir := l.dir().cursors()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the cursors: %w", err)
	}
	var list []CursorInfo
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(name, ".") {
			continue
		}
		var f cursorFile
		if err := readJSON(filepath.Join(dir, e.Name()), &f); err != nil {
			return nil, fmt.Errorf("listing the cursors: %w", err)
		}
		c := CursorInfo{Name: name, Next: f.Next}
		lock, err := lockFile(filepath.Join(dir, name+".lock"), false)
		if err == nil {
			_ = lock.Close() // it only asked
		}
		c.Taken = errors.Is(err, errLocked)
		list = append(list, c)
	}
	return list, nil
}
