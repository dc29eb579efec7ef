package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// inspectAll scans every block of a ledger that nobody has open. It changes nothing.
func inspectAll(d stateDir) (inspection, *marker, error) {
	m, err := d.readMarker()
	if err != nil {
		return inspection{}, nil, err
	}
	in := inspection{scans: map[string]blockScan{}, seen: readSeen(d)}
	if in.names, err = streamNames(d, m); err != nil {
		return in, nil, err
	}
	for _, n := range in.names {
		in.stream(d, m, n, true, false)
	}
	return in, m, nil
}

// Repair makes a damaged ledger openable, which nobody may have open. It keeps
// each damaged block in a damaged-TIME folder and drops nothing but the records
// whose checksum is wrong: all others stay. It says what it did, one line each.
// A block that cannot be read, or a folder that is missing, it cannot repair.
func Repair(dir string) ([]string, error) {
	d := stateDir(dir)
	lock, err := d.lockHost(false)
	if err != nil {
		return nil, fmt.Errorf("repairing the ledger (it must not be in use): %w", err)
	}
	defer func() { _ = lock.Close() }()
	kept := d.damagedNow()
	done, err := repairMarker(d, kept)
	for err == nil {
		// One fault of a stream can hide the next: inspect until there is none.
		in, m, err := inspectAll(d)
		if err != nil || len(in.faults) == 0 {
			return done, err
		}
		for _, f := range in.faults {
			line, err := repairFault(d, m, f, kept)
			if err != nil {
				return done, fmt.Errorf("repairing: %w", errors.Join(err, f))
			}
			done = append(done, line)
		}
	}
	return done, err
}

// repairMarker makes the list of streams anew, of those that are there, if it
// cannot be read.
func repairMarker(d stateDir, kept string) ([]string, error) {
	if _, err := d.readMarker(); !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	copied := filepath.Join(kept, filepath.Base(d.marker()))
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return nil, err
	}
	if err := os.Rename(d.marker(), copied); err != nil {
		return nil, err
	}
	m := &marker{Version: 1}
	var err error
	if m.Streams, err = streamNames(d, m); err != nil {
		return nil, err
	}
	line := fmt.Sprintf("made the list of streams anew: %s; one that is missing here was lost; the list as it was is %s", strings.Join(m.Streams, ", "), copied)
	return []string{line}, d.writeMarker(m)
}

var errBeyondRepair = errors.New("this cannot be repaired here")

func repairFault(d stateDir, m *marker, f fault, kept string) (string, error) {
	if f.block == "" {
		return "", errBeyondRepair
	}
	if err := os.Remove(d.seen()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.Remove(indexFile(d.stream(f.stream))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	_, err := os.Stat(f.block)
	if errors.Is(err, fs.ErrNotExist) {
		m.Missing = append(m.Missing, missingBlock(f.stream, blockNumber(f.block)))
		return fmt.Sprintf("noted that block %s is missing", f.block), d.writeMarker(m)
	}
	if _, err := readable(f.block); err != nil {
		return "", errBeyondRepair
	}
	r, err := scanBlock(f.block, f.stream)
	if err != nil {
		return "", err
	}
	if r.damage == "" {
		return fmt.Sprintf("made the index of stream %s anew, which ended beyond %s", f.stream, f.block), nil
	}
	copied, err := keepDamaged(f.block, f.stream, kept)
	if err != nil {
		return "", err
	}
	dropped, err := dropDamage(f.block, f.stream)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(f.block); err == nil && st.Size() == 0 { // an open would miss what it began with
		if err := os.Remove(f.block); err != nil {
			return "", err
		}
		m.Missing = append(m.Missing, missingBlock(f.stream, blockNumber(f.block)))
		if err := d.writeMarker(m); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("dropped %d damaged bytes from block %s; the block as it was is %s", dropped, f.block, copied), nil
}

// dropDamage rewrites a block with nothing but its good records, and returns
// the number of bytes dropped.
func dropDamage(path, stream string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var good []byte
	end := 0
	for _, s := range damage(b, blockHash(path, stream)) {
		good = append(good, b[end:s.from]...)
		end = s.to
	}
	good = append(good, b[end:]...)
	tmp := path + ".repair"
	if err := os.WriteFile(tmp, good, 0o600); err != nil {
		return 0, err
	}
	if err := syncPath(tmp); err != nil {
		return 0, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return 0, err
	}
	return len(b) - len(good), syncPath(filepath.Dir(path))
}
