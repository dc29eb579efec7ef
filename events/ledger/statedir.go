package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// stateDir is the state directory and knows the files in it:
//
//	host.lock         locked, like the directory, by the process that hosts the server
//	running           there while a host runs; found at an open, the last stop was unclean
//	left.json         the blocks as the last host left them, a cache
//	endpoint.json     where the host listens (0600)
//	credentials.json  port and keys, kept over restarts (0600)
//	seen.json         how far each stream was, as the host noted a moment ago
//	streams.json      the streams that exist: the marker
//	store/            JetStream's own
//	sessions/ID.lock  locked by the process that writes session ID
//	recovery.lock     locked by the process that looks for dead sessions
//	pack.lock         locked by the process that packs
//	cursors/NAME.json where the reader NAME goes on; its .lock is locked by it
//	aside-TIME/       copies of the streams during a careful open (copying-TIME/
//	                  before they are whole, retired-TIME/ when the open was good)
//	refused-TIME/     what a refused open left behind
//	damaged-TIME/     blocks as they were before a repair
type stateDir string

func (d stateDir) file(name string) string  { return filepath.Join(string(d), name) }
func (d stateDir) hostLock() string         { return d.file("host.lock") }
func (d stateDir) running() string          { return d.file("running") }
func (d stateDir) left() string             { return d.file("left.json") }
func (d stateDir) seen() string             { return d.file("seen.json") }
func (d stateDir) endpoint() string         { return d.file("endpoint.json") }
func (d stateDir) credentials() string      { return d.file("credentials.json") }
func (d stateDir) marker() string           { return d.file("streams.json") }
func (d stateDir) store() string            { return d.file("store") }
func (d stateDir) sessions() string         { return d.file("sessions") }
func (d stateDir) cursors() string          { return d.file("cursors") }
func (d stateDir) packLock() string         { return d.file("pack.lock") }
func (d stateDir) recoveryLock() string     { return d.file("recovery.lock") }
func (d stateDir) session(id string) string { return filepath.Join(d.sessions(), id+".lock") }

// matching is the files in the directory that match a pattern, which must be good.
// The directory's own name may hold what would be one.
func (d stateDir) matching(pattern string) []string {
	names, _ := fs.Glob(os.DirFS(string(d)), pattern)
	for i, n := range names {
		names[i] = d.file(n)
	}
	return names
}

// streams is where JetStream keeps the streams of the ledger's account.
func (d stateDir) streams() string {
	return filepath.Join(d.store(), "jetstream", ledgerAccount, "streams")
}

func (d stateDir) stream(name string) string { return filepath.Join(d.streams(), name) }

// marker names the streams that exist. It is written after a stream was
// created and before one is deleted, so that a missing stream is a loss.
type marker struct {
	Version int      `json:"version"`
	Streams []string `json:"streams"`
	// Missing names the blocks, as STREAM/N, that a repair found missing: an
	// open does not refuse for them again.
	Missing []string `json:"missing,omitempty"`
	// Dense names the sealed segments that stay as they are: packing would not
	// make them smaller, or found that they are not sound.
	Dense []string `json:"dense,omitempty"`
}

func (m *marker) clone() *marker {
	c := *m
	c.Streams, c.Dense = slices.Clone(m.Streams), slices.Clone(m.Dense)
	return &c
}

// drop takes a stream out.
func (m *marker) drop(name string) {
	is := func(s string) bool { return s == name }
	m.Streams, m.Dense = slices.DeleteFunc(m.Streams, is), slices.DeleteFunc(m.Dense, is)
}

func (m *marker) has(name string) bool { return slices.Contains(m.Streams, name) }

// segments lists the output segments, oldest first: of each the raw stream or
// the packed twin, whichever counts. The last one is active.
func (m *marker) segments() []string {
	var s []string
	for _, n := range m.Streams {
		if isSegment(n) {
			s = append(s, n)
		}
	}
	slices.SortFunc(s, func(a, b string) int { return segmentNumber(a) - segmentNumber(b) })
	return s
}

// segments lists the output segments, oldest first.
func (d stateDir) segments() []string {
	m, err := d.readMarker()
	if err != nil {
		return nil
	}
	return m.segments()
}

// counts reports whether a segment holds its output still: it was not pruned,
// and its packed twin did not take its place.
func (d stateDir) counts(segment string) bool {
	m, err := d.readMarker()
	return err != nil || m.has(segment)
}

// readMarker reads the marker; without one the ledger is new, and it is empty.
func (d stateDir) readMarker() (*marker, error) {
	m := &marker{Version: 1}
	err := readJSON(d.marker(), m)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if unread := (*fs.PathError)(nil); errors.As(err, &unread) {
		return nil, fmt.Errorf("reading the list of streams: %w", err)
	}
	if err != nil {
		return nil, damaged("the list of streams cannot be read (restore it, or run `yieldlog doctor --repair`, which keeps a copy and lists what is in %s): %v", d.streams(), err)
	}
	return m, nil
}

func (d stateDir) writeMarker(m *marker) error {
	slices.Sort(m.Streams)
	if err := writeJSON(d.marker(), m, true); err != nil {
		return fmt.Errorf("writing the list of streams: %w", err)
	}
	return nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file whole, for the user only. Durable also syncs it and
// its directory.
func writeJSON(path string, v any, durable bool) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(append(b, '\n'))
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if durable {
		return syncPath(dir)
	}
	return nil
}

// syncPath makes a file or a directory's entries durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := f.Sync(); err != nil && !syncUnsupported(err) {
		return err
	}
	return nil
}

// syncUnsupported: Windows cannot sync a directory.
func syncUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid)
}

// syncTree makes everything below dir durable: the new files of a stream.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncPath(p)
	})
}
