package ledger

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

// TestReadWhereNothingCanBeWritten reads a ledger on a read-only file system,
// stopped in good order and killed.
func TestReadWhereNothingCanBeWritten(t *testing.T) {
	for name, leave := range map[string]func(*testing.T, stateDir){"stopped": func(*testing.T, stateDir) {}, "killed": crashed} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
				t.Skip("mounting needs privileges:", err)
			}
			t.Cleanup(func() {
				if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			d := stateDir(filepath.Join(dir, "ledger"))
			if err := os.CopyFS(string(d), os.DirFS(string(history(t, func(*testing.T, *Ledger) {})))); err != nil {
				t.Fatal(err)
			}
			leave(t, d)
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			r := reader(t, string(d))
			v := see(t, r, []events.Filter{{ID: "A"}})
			if v.Last != 44 || v.Ends["A"] == 0 || v.Ends["B"] == 0 || r.Alive("S") {
				t.Errorf("last %d, outputs %v, alive %v", v.Last, v.Ends, r.Alive("S"))
			}
		})
	}
}
