package ledger

import (
	"maps"
	"slices"
)

// left is what a host leaves behind when it stops in good order: the blocks of
// each stream and their sizes. A reader who finds them so need not look into
// them. It is a cache: without it, or when anything differs, the blocks are
// inspected.
type left struct {
	Version int                    `json:"version"`
	Blocks  map[string][]leftBlock `json:"blocks"` // by stream, ascending
}

// A leftBlock is the number of a block and its size in bytes.
type leftBlock [2]int64

// blocksOf lists the blocks of the marker's streams as they are.
func blocksOf(d stateDir, m *marker) (map[string][]leftBlock, error) {
	all := map[string][]leftBlock{}
	for _, name := range m.Streams {
		paths, err := blocks(d.stream(name))
		if err != nil {
			return nil, err
		}
		all[name] = make([]leftBlock, len(paths))
		for i, p := range paths {
			size, err := readable(p)
			if err != nil {
				return nil, err
			}
			all[name][i] = leftBlock{int64(blockNumber(p)), size}
		}
	}
	return all, nil
}

// writeLeft notes the blocks of a store whose server was stopped.
func writeLeft(d stateDir, m *marker) error {
	all, err := blocksOf(d, m)
	if err != nil {
		return err
	}
	return writeJSON(d.left(), left{Version: 1, Blocks: all}, false)
}

// readLeft returns the blocks if they are as the last host left them.
func readLeft(d stateDir, m *marker) (map[string][]restBlock, bool) {
	var was left
	if err := readJSON(d.left(), &was); err != nil || was.Version != 1 {
		return nil, false
	}
	now, err := blocksOf(d, m)
	if err != nil || !maps.EqualFunc(was.Blocks, now, slices.Equal) || gaps(now, m) {
		return nil, false
	}
	found := map[string][]restBlock{}
	for name, list := range now {
		found[name] = make([]restBlock, len(list))
		for i, b := range list {
			found[name][i] = restBlock{path: blockPath(d.stream(name), int(b[0])), size: b[1]}
		}
	}
	return found, true
}

// gaps reports whether a block is missing that no repair has noted.
func gaps(all map[string][]leftBlock, m *marker) bool {
	for name, list := range all {
		for i := 1; i < len(list); i++ {
			for n := list[i-1][0] + 1; n < list[i][0]; n++ {
				if !slices.Contains(m.Missing, missingBlock(name, int(n))) {
					return true
				}
			}
		}
	}
	return false
}
