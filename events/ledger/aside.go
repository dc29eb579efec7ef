package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// setAside copies the streams: whole blocks as hard links, which cost nothing,
// and everything else, torn blocks too, as real copies. It returns the folder,
// or "" when there is nothing to protect.
func setAside(dir stateDir, names, torn []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	at := time.Now().UTC().Format("20060102T150405.000000")
	copying, aside := dir.file("copying-"+at), dir.file("aside-"+at)
	for _, n := range names {
		if err := copyStream(dir.stream(n), filepath.Join(copying, n), torn); err != nil {
			return "", fmt.Errorf("setting a copy of stream %s aside: %w", n, errors.Join(err, os.RemoveAll(copying)))
		}
	}
	if err := os.Rename(copying, aside); err != nil {
		return "", fmt.Errorf("setting copies of the streams aside: %w", err)
	}
	return aside, nil
}

// retire says that the copies are not needed any more: the open was good. From
// then on they must not be put back, since there will be new events.
func retire(aside string) error {
	if aside == "" {
		return nil
	}
	if err := os.Rename(aside, strings.Replace(aside, "aside-", "retired-", 1)); err != nil {
		return fmt.Errorf("retiring the copies of the streams: %w", err)
	}
	return nil
}

// removeRetired removes copies that are not needed, or never were whole.
func removeRetired(dir stateDir) {
	for _, old := range []string{"retired-*", "copying-*"} {
		for _, p := range dir.matching(old) {
			_ = os.RemoveAll(p) // the next open tries again
		}
	}
}

// finishOpens puts the streams back after an open whose process was killed
// before it had checked them.
func finishOpens(dir stateDir) error {
	for _, p := range dir.matching("aside-*") {
		kept, err := putBack(dir, p)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(kept); err != nil {
			return fmt.Errorf("removing what a killed open left: %w", err)
		}
	}
	return nil
}

func copyStream(from, to string, torn []string) error {
	return filepath.WalkDir(from, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		q := filepath.Join(to, rel)
		if e.IsDir() {
			return os.MkdirAll(q, 0o700)
		}
		if strings.HasSuffix(p, ".blk") && !slices.Contains(torn, p) {
			if os.Link(p, q) == nil {
				return nil // a file system without links gets a real copy
			}
		}
		return copyFile(p, q)
	})
}

func copyFile(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, os.Remove(to)) // what is there in part is no copy
		}
	}()
	_, err = io.Copy(out, in)
	return err
}

// putBack restores the streams from the copies after a refused open, and keeps
// what the server made of them. It returns where that is.
func putBack(dir stateDir, aside string) (string, error) {
	if aside == "" {
		return "", nil
	}
	kept := dir.file(strings.Replace(filepath.Base(aside), "aside-", "refused-", 1))
	if err := os.Rename(dir.streams(), kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("moving the refused streams away: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir.streams()), 0o700); err != nil {
		return "", fmt.Errorf("putting the streams back: %w", err)
	}
	if err := os.Rename(aside, dir.streams()); err != nil {
		return "", fmt.Errorf("putting the streams back: %w", err)
	}
	return kept, nil
}
