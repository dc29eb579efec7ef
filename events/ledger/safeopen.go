package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// JetStream deletes a stream that it cannot recover, and destroys what follows a
// damaged byte when it rebuilds an index. So before a server may touch the store
// it is inspected, and copies of the streams are set aside; after it has opened
// the store, every stream must be there with nothing lost, or the copies are put
// back and the open is refused.

// inspect fails when opening the store would lose events. It changes nothing.
// It returns the streams to expect, and the blocks with a torn end.
func inspect(dir stateDir, m *marker) (names, torn []string, err error) {
	names, err = streamNames(dir, m)
	if err != nil {
		return nil, nil, err
	}
	_, statErr := os.Stat(dir.running())
	unclean := statErr == nil
	segments := m.segments()
	for _, name := range names {
		sealed := isSegment(name) && len(segments) > 0 && name != segments[len(segments)-1]
		t, err := inspectStream(dir, name, unclean && !sealed)
		if err != nil {
			return nil, nil, err
		}
		torn = append(torn, t...)
	}
	return names, torn, nil
}

// streamNames joins the streams of the marker with those on disk. A stream that
// the marker names must be on disk.
func streamNames(dir stateDir, m *marker) ([]string, error) {
	names := append([]string(nil), m.Streams...)
	for _, n := range names {
		if _, err := os.Stat(dir.stream(n)); err != nil {
			return nil, damaged("stream %s is listed in %s, but its folder %s is missing; put the folder back from a backup or from the newest aside-* or refused-* folder in %s",
				n, dir.marker(), dir.stream(n), string(dir))
		}
	}
	ents, err := os.ReadDir(dir.streams())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing streams: %w", err)
	}
	for _, e := range ents {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !m.has(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// inspectStream checks that every block can be read and, when JetStream is going
// to rebuild the index or all is set, that no block is damaged before its end.
func inspectStream(dir stateDir, name string, all bool) (torn []string, err error) {
	folder := dir.stream(name)
	paths, err := blocks(folder)
	if err != nil {
		return nil, damaged("the blocks of stream %s cannot be listed (%v); make them readable", name, err)
	}
	scan := all || !indexFresh(folder, name)
	for i, p := range paths {
		if !scan {
			if err := readable(p); err != nil {
				return nil, damaged("block %s cannot be read (%v); make it readable, or put it back from a backup", p, err)
			}
			continue
		}
		r, err := scanBlock(p, name)
		if err != nil {
			return nil, damaged("block %s cannot be read (%v); make it readable, or put it back from a backup", p, err)
		}
		switch last := i == len(paths)-1; {
		case r.damage == "":
		case r.torn && last:
			torn = append(torn, p)
		default:
			return nil, damaged("block %s has a %s, after %d good records; put it back from a backup, or run `yieldlog doctor --repair`, which keeps a copy of the block and drops the damaged records alone",
				p, r.damage, r.records)
		}
	}
	return torn, nil
}

func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err != nil || st.IsDir() {
		return errors.Join(err, errors.New("it is no file"))
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// setAside copies the streams: whole blocks as hard links, which cost nothing,
// and everything else, torn blocks too, as real copies. It returns the folder,
// or "" when there is nothing to protect.
func setAside(dir stateDir, names, torn []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	aside := dir.file("aside-" + time.Now().UTC().Format("20060102T150405.000000"))
	for _, n := range names {
		if err := copyStream(dir.stream(n), filepath.Join(aside, n), torn); err != nil {
			return "", fmt.Errorf("setting a copy of stream %s aside: %w", n, errors.Join(err, os.RemoveAll(aside)))
		}
	}
	return aside, nil
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
		if strings.HasSuffix(p, ".blk") && !contains(torn, p) {
			if os.Link(p, q) == nil {
				return nil // a file system without links gets a real copy
			}
		}
		return copyFile(p, q)
	})
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
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
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, in)
	return err
}

// checkStreams fails unless every stream came back with nothing lost.
func checkStreams(ctx context.Context, js jetstream.JetStream, names []string) error {
	for _, n := range names {
		s, err := js.Stream(ctx, n)
		if err != nil {
			return damaged("stream %s did not come back: %v", n, err)
		}
		// Lost is filled in only with the details.
		i, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
		if err != nil {
			return damaged("stream %s does not answer: %v", n, err)
		}
		if l := i.State.Lost; l != nil && len(l.Msgs) > 0 {
			return damaged("stream %s lost %d events, from sequence %d on", n, len(l.Msgs), l.Msgs[0])
		}
	}
	return nil
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
