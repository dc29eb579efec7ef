//go:build unix

package ledger

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeBytes is what an ordinary user may still write to the file system of dir.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("reading free space: %w", err)
	}
	return int64(uint64(st.Bavail) * uint64(st.Bsize)), nil //nolint:unconvert // the types differ by system
}
