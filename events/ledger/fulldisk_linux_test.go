package ledger

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// TestFullDisk fills a small file system under a running ledger and makes room
// again: nothing acknowledged is lost, and appends resume by themselves.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
		t.Skip("mounting needs privileges:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	l, err := Open(t.Context(), Options{Dir: filepath.Join(dir, "ledger"), FreeFloor: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	postOutput(t, l, "A", 0, 20, 60_000)
	if err := l.Writable(); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := fill(ballast); err != nil {
		t.Fatal(err)
	}
	if err := l.Writable(); !errors.Is(err, ErrNoSpace) {
		t.Errorf("with a full disk: %v, want ErrNoSpace", err)
	}
	var done sync.WaitGroup
	for i := 20; i < 40; i++ {
		done.Add(1)
		e := event("S", "A", events.Output{Stream: events.KindStdout, Offset: int64(i * 60_000), Data: make([]byte, 60_000)})
		if err := l.Post(t.Context(), e, func(_ events.Event, err error) {
			if err != nil {
				t.Error(err)
			}
			done.Done()
		}); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for l.StalledSince().IsZero() && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	if l.StalledSince().IsZero() {
		t.Error("appends go through with a full disk")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	done.Wait()
	wantOutput(t, l, 0, 40*60_000)
	if err := l.Writable(); err != nil {
		t.Error(err)
	}
}

// fill writes a file until the disk is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for size := 1 << 20; size > 0; size /= 2 {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			break
		}
		err = nil
	}
	return errors.Join(err, f.Close())
}
