package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/yieldlog/yieldlog/events/ledger/internal/lazyfs"
)

// TestPowerCut cuts the power under load: only what was synced is left, with
// and without torn pages. What was acknowledged must be there.
func TestPowerCut(t *testing.T) {
	for _, c := range []lazyfs.Model{{}, {Strict: true}, {Torn: true}, {Strict: true, Torn: true}} {
		t.Run(fmt.Sprintf("strict=%v,torn=%v", c.Strict, c.Torn), func(t *testing.T) {
			base := t.TempDir()
			var dirs []string
			for _, d := range []string{"live", "shadow", "mnt", "image"} {
				d = filepath.Join(base, d)
				if err := os.Mkdir(d, 0o700); err != nil {
					t.Fatal(err)
				}
				dirs = append(dirs, d)
			}
			fs, err := lazyfs.Mount(dirs[0], dirs[1], dirs[2], c)
			if err != nil {
				t.Skip("no FUSE here:", err)
			}
			t.Cleanup(func() { _ = fs.Close() }) // closed already, unless the test failed
			w := startWriter(t, filepath.Join(dirs[2], "ledger"))
			select {
			case <-w.opened:
			case <-w.done:
				t.Fatal("the writer ended: ", w.errs)
			}
			w.progress(t, 600) // beyond the first segment
			w.mu.Lock()
			acked := map[string]int{"L": w.acked["L"], "O": w.acked["O"]}
			w.mu.Unlock()
			fs.Cut()
			if err := w.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-w.done
			_ = w.cmd.Wait()
			if err := fs.Image(dirs[3]); err != nil {
				t.Fatal(err)
			}
			if err := fs.Close(); err != nil {
				t.Fatal(err)
			}
			w.acked, w.errs = acked, nil
			checkWriter(t, open(t, filepath.Join(dirs[3], "ledger")), w)
		})
	}
}
