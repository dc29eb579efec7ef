package ledger

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// freeBytes is what the user may still write to the volume of dir.
func freeBytes(dir string) (int64, error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, fmt.Errorf("reading free space: %w", err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(p, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("reading free space: %w", err)
	}
	return int64(free), nil
}
