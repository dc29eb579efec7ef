package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// JetStream deletes a stream that it cannot recover, and destroys what follows a
// damaged byte when it rebuilds an index. So before a server may touch the store
// it is inspected, and copies of the streams are set aside; after it has opened
// the store, every stream must be there with nothing lost, or the copies are put
// back and the open is refused.

// An inspection is what was found before an open.
type inspection struct {
	names  []string // the streams to expect
	torn   []string // the blocks with a torn end
	faults []fault
	scans  map[string]blockScan // by path, of the blocks that were scanned
	seen   map[string]uint64    // the sequence that a stream had reached
}

// A fault is damage that an open must not touch.
type fault struct {
	stream, block string // block is a path, or "" when it is the stream's
	text          string
}

func (f fault) Error() string { return f.text }

// inspect looks for what would make an open lose events. It changes nothing.
// relaxed says that a power cut may have taken the end of a stream.
func inspect(dir stateDir, m *marker, relaxed bool) (inspection, error) {
	in := inspection{scans: map[string]blockScan{}, seen: readSeen(dir)}
	var err error
	if in.names, err = streamNames(dir, m); err != nil {
		return in, err
	}
	_, statErr := os.Stat(dir.running())
	unclean := statErr == nil
	segments := m.segments()
	for _, name := range in.names {
		sealed := isSegment(name) && len(segments) > 0 && name != segments[len(segments)-1]
		in.stream(dir, m, name, unclean && !sealed, relaxed)
	}
	return in, nil
}

func (in *inspection) fault(stream, block, format string, args ...any) {
	in.faults = append(in.faults, fault{stream: stream, block: block, text: fmt.Sprintf(format, args...)})
}

// err joins the faults into the refusal of an open.
func (in *inspection) err() error {
	if len(in.faults) == 0 {
		return nil
	}
	errs := make([]error, len(in.faults))
	for i, f := range in.faults {
		errs[i] = f
	}
	return fmt.Errorf("%w; nothing was changed: %w", ErrDamaged, errors.Join(errs...))
}

// streamNames joins the streams of the marker with those on disk.
func streamNames(dir stateDir, m *marker) ([]string, error) {
	names := append([]string(nil), m.Streams...)
	found, err := streamFolders(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range found {
		if m.has(name) || givenUp(m, name) || unborn(dir, m, name) {
			continue
		}
		// A stream whose creation was cut off before its description was written holds nothing.
		if _, err := os.Stat(filepath.Join(dir.stream(name), "meta.inf")); err == nil {
			names = append(names, name)
		}
	}
	// A pack that nobody had marked yet does not count beside the raw segment.
	return slices.DeleteFunc(names, func(n string) bool {
		return !m.has(n) && strings.HasPrefix(n, packedPrefix) && slices.Contains(names, twinName(n))
	}), nil
}

// streamFolders lists the streams on disk, whether or not they count.
func streamFolders(dir stateDir) ([]string, error) {
	ents, err := os.ReadDir(dir.streams())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing streams: %w", err)
	}
	var names []string
	for _, e := range ents {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// givenUp reports whether a stream on disk does not count because its twin does:
// a pack was cut off before or after the marker named the packed one.
func givenUp(m *marker, name string) bool {
	return isSegment(name) && !m.has(name) && m.has(twinName(name))
}

// unborn reports whether the creation of a stream was cut off before its
// description was whole, so that it holds nothing: JetStream writes meta.inf and
// then meta.sum, and takes nothing before that.
func unborn(dir stateDir, m *marker, name string) bool {
	folder := dir.stream(name)
	if _, err := os.Stat(filepath.Join(folder, "meta.sum")); m.has(name) || !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	list, err := stillBlocks(folder)
	return (err == nil || errors.Is(err, fs.ErrNotExist)) && !slices.ContainsFunc(list, func(b restBlock) bool { return b.size > 0 })
}

// removeUnborn removes what is left of such streams: JetStream would make one of
// that name without its meta.sum, and then not find it again.
func removeUnborn(dir stateDir, m *marker) error {
	found, err := streamFolders(dir)
	if err != nil {
		return err
	}
	for _, name := range found {
		if unborn(dir, m, name) {
			if err := os.RemoveAll(dir.stream(name)); err != nil {
				return fmt.Errorf("removing a stream whose creation was cut off: %w", err)
			}
		}
	}
	return nil
}

// repairHint is what to do about damage inside a block.
const repairHint = "put the block back from a backup, or run `yieldlog doctor --repair`, which keeps a copy and drops nothing but the damaged records"

// stream checks that every block of a stream can be read and, when JetStream is
// going to rebuild the index or all is set, that none is damaged before its end.
func (in *inspection) stream(dir stateDir, m *marker, name string, all, relaxed bool) {
	folder := dir.stream(name)
	paths, err := blocks(folder)
	if err != nil {
		in.fault(name, "", "the blocks of stream %s, which %s lists, cannot be read (%v); make them readable, or put the folder back from a backup or from the newest refused-* folder in %s",
			name, dir.marker(), err, string(dir))
		return
	}
	ix := readIndex(folder, name, nil)
	scan := all || !ix.fresh
	var found []scanned
	if scan {
		found = scanAll(paths, name, scanInto)
	}
	if len(paths) > 0 {
		in.begins(m, name, paths[0])
	}
	var last uint64
	for i, p := range paths {
		if i > 0 {
			in.gap(m, name, paths[i-1], p)
		}
		if !scan {
			in.glance(name, p, ix)
			continue
		}
		r, ok := in.block(name, found[i], i == len(paths)-1)
		if !ok {
			return
		}
		last = max(last, r.last)
	}
	if !scan {
		in.frames(name, soonRead(paths), ix)
	}
	if had := max(ix.last, in.seen[name]); scan && last < had && !relaxed {
		in.cutOff(name, folder, paths, last, had)
	}
}

// cutOff tells of a stream that ends before the sequence which it had reached.
func (in *inspection) cutOff(stream, folder string, paths []string, last, had uint64) {
	if len(paths) > 0 {
		block := paths[len(paths)-1]
		in.fault(stream, block, "block %s was cut off, or one behind it is missing: it ends with sequence %d, and stream %s had %d; %s",
			block, last, stream, had, repairHint)
	} else {
		block := blockPath(folder, 1)
		in.fault(stream, block, "block %s is missing: stream %s had sequence %d; %s", block, stream, had, repairHint)
	}
}

// framesMost is how much of a stream is checked for its frames, in bytes: some
// milliseconds.
const framesMost = 32 << 20

// soonRead selects the blocks that JetStream is going to read: at once those that
// may hold messages of the duplicate window, and later most likely the newest.
func soonRead(paths []string) []string {
	var soon []string
	size := int64(0)
	for _, p := range slices.Backward(paths) {
		st, err := os.Stat(p)
		if err != nil {
			continue // glance tells of it
		}
		if size += st.Size(); size <= framesMost || time.Since(st.ModTime()) < duplicateWindow+time.Minute {
			soon = append(soon, p)
		}
	}
	return soon
}

// frames checks blocks that are not scanned and that JetStream is going to read:
// at a record that cannot be one it would cut the block, and its copy, which is a link.
func (in *inspection) frames(stream string, paths []string, ix index) {
	scan := func(buf *bytes.Buffer, path, stream string) (blockScan, error) {
		return framesInto(buf, path, stream, ix.firsts[blockNumber(path)])
	}
	for _, s := range scanAll(paths, stream, scan) {
		known := slices.ContainsFunc(in.faults, func(f fault) bool { return f.block == s.path })
		if s.err == nil && s.damage != "" && !known { // glance tells of errors
			in.fault(stream, s.path, "block %s has a %s, after %d good records; %s", s.path, s.damage, s.records, repairHint)
		}
	}
}

// glance checks a block that is not scanned: it can be read, begins with a
// record, the one that the index says, and is as long. JetStream cuts any other block.
func (in *inspection) glance(stream, path string, ix index) {
	size, err := readable(path)
	if err != nil {
		in.unreadable(stream, path, err)
		return
	}
	if !beginsWell(path, stream, size, ix.firsts[blockNumber(path)]) {
		in.fault(stream, path, "block %s begins with no record; %s", path, repairHint)
		return
	}
	if want := ix.sizes[blockNumber(path)]; size < want {
		in.fault(stream, path, "block %s was cut off: it has %d bytes of %d; %s", path, size, want, repairHint)
	}
}

// block judges the scan of one block. Only the last one may have a torn end.
func (in *inspection) block(stream string, s scanned, last bool) (blockScan, bool) {
	r, path := s.blockScan, s.path
	in.scans[path] = r
	switch {
	case s.err != nil:
		in.unreadable(stream, path, s.err)
		return r, false
	case r.damage == "":
	case r.torn && last:
		in.torn = append(in.torn, path)
	default:
		in.fault(stream, path, "block %s has a %s, after %d good records; %s", path, r.damage, r.records, repairHint)
		return r, false
	}
	return r, true
}

func (in *inspection) unreadable(stream, path string, err error) {
	in.fault(stream, path, "block %s cannot be read (%v); make it readable, or put it back from a backup", path, err)
}

// begins checks that no block is missing before the first. Without its first
// message, which holds nothing, a stream begins with the second.
func (in *inspection) begins(m *marker, stream, first string) {
	size, err := readable(first)
	if err != nil {
		return // which is told of it
	}
	if seq, err := firstSequence(restBlock{path: first, size: size}); err == nil && seq > 2 {
		in.missing(m, stream, filepath.Dir(filepath.Dir(first)), 1, blockNumber(first))
	}
}

// gap checks that no block is missing between two.
func (in *inspection) gap(m *marker, stream, before, after string) {
	in.missing(m, stream, filepath.Dir(filepath.Dir(after)), blockNumber(before)+1, blockNumber(after))
}

// missing tells of the blocks [from, to), which are missing.
func (in *inspection) missing(m *marker, stream, folder string, from, to int) {
	for n := from; n < to; n++ {
		path := blockPath(folder, n)
		if !slices.Contains(m.Missing, missingBlock(stream, n)) {
			in.fault(stream, path, "block %s is missing; %s", path, repairHint)
		}
	}
}

func blockPath(streamDir string, n int) string {
	return filepath.Join(streamDir, "msgs", strconv.Itoa(n)+".blk")
}

func missingBlock(stream string, n int) string { return stream + "/" + strconv.Itoa(n) }

// readable opens a file to see whether it can be read, and returns its size.
func readable(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = errors.New("it is no file")
	}
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// writable fails when what takes events next cannot be written to: the server
// would take none, and not say so.
func writable(dir stateDir, m *marker) error {
	names := []string{lifecycleStream}
	if segments := m.segments(); len(segments) > 0 {
		names = append(names, segments[len(segments)-1])
	}
	for _, name := range names {
		paths, _ := blocks(dir.stream(name)) // the inspection tells of errors
		if len(paths) == 0 {
			continue
		}
		f, err := os.OpenFile(paths[len(paths)-1], os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("looking whether stream %s can be written to: %w", name, err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// checkStreams fails unless every stream came back with nothing lost.
func checkStreams(ctx context.Context, js jetstream.JetStream, m *marker, names []string) error {
	for _, n := range names {
		s, err := js.Stream(ctx, n)
		if ctx.Err() != nil { // it was not waited for, which says nothing of the stream
			return fmt.Errorf("checking stream %s: %w", n, context.Cause(ctx))
		}
		if err != nil {
			return damaged("stream %s did not come back: %v", n, err)
		}
		// Lost is filled in only with the details.
		i, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
		if ctx.Err() != nil {
			return fmt.Errorf("checking stream %s: %w", n, context.Cause(ctx))
		}
		if err != nil {
			return damaged("stream %s does not answer: %v", n, err)
		}
		if first := i.State.FirstSeq; first > 2 && len(m.Missing) == 0 {
			return damaged("stream %s begins with sequence %d: its first blocks are missing", n, first)
		}
		if l := i.State.Lost; l != nil && len(l.Msgs) > 0 {
			return damaged("stream %s lost %d events, from sequence %d on", n, len(l.Msgs), l.Msgs[0])
		}
	}
	return nil
}
