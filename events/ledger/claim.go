package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// Claim is the exclusive right to write to a session. It ends with the process.
type Claim struct {
	// Left says that the last holder died, or left the claim behind on purpose.
	Left bool

	path string
	lock *os.File // reachable as long as the claim is: a finalizer would release it
}

// ClaimSession claims a session. It returns [ErrLive] when a living process
// holds the claim, this one included.
func (l *Ledger) ClaimSession(session string) (*Claim, error) {
	if err := os.MkdirAll(l.dir().sessions(), 0o700); err != nil {
		return nil, fmt.Errorf("claiming session %s: %w", session, err)
	}
	path := l.dir().session(session)
	for {
		f, err := lockFile(path, false)
		left := err == nil
		if errors.Is(err, fs.ErrNotExist) {
			f, err = lockNewFile(path)
		}
		switch {
		case errors.Is(err, errLocked):
			return nil, fmt.Errorf("claiming session %s: %w", session, ErrLive)
		case errors.Is(err, fs.ErrExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("claiming session %s: %w", session, err)
		case sameFile(f, path):
			l.chain.forget(session) // others may have written to it since this process did
			return &Claim{Left: left, path: path, lock: f}, nil
		}
		_ = f.Close() // it was released, and its file removed, between our open and our lock
	}
}

// lockNewFile makes a file that nobody ever sees unlocked: who looks for the
// claims of the dead would take it for one. It fails with [fs.ErrExist] when
// somebody else was faster.
func lockNewFile(path string) (*os.File, error) {
	making := filepath.Join(filepath.Dir(path), "claiming-"+events.NewID())
	f, err := lockFile(making, true)
	if err != nil {
		return nil, err
	}
	err = os.Link(making, path)
	_ = os.Remove(making) // under a name that means nothing it hurts nobody
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Release gives the claim up.
func (c *Claim) Release() {
	// Removed before it is unlocked: who opened it meanwhile sees that it is gone.
	_ = os.Remove(c.path)
	_ = c.lock.Close()
}

// Leave gives the claim up as a death would: whoever claims the session next
// sees that it was left.
func (c *Claim) Leave() { _ = c.lock.Close() }

// RecoveryTurn waits, up to most, for the turn to look for dead sessions. One
// process has it at a time: another one would find a session claimed that is
// being recovered, and take it for a living one. It is not ok when the wait was in
// vain. The turn lasts until end is called, or the process dies.
func (l *Ledger) RecoveryTurn(ctx context.Context, most time.Duration) (end func(), ok bool, err error) {
	for deadline := time.Now().Add(most); ; pause(ctx, 2*time.Millisecond) {
		f, err := lockFile(l.dir().recoveryLock(), true)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, true, nil
		case !errors.Is(err, errLocked):
			return func() {}, false, fmt.Errorf("taking the turn to recover: %w", err)
		case ctx.Err() != nil || !time.Now().Before(deadline):
			return func() {}, false, nil
		}
	}
}

// Alive reports whether a living process holds the session's claim.
func (l *Ledger) Alive(session string) bool {
	f, err := lockShared(l.dir().session(session))
	if f != nil {
		_ = f.Close() // it was only tried
	}
	return errors.Is(err, errLocked)
}

func sameFile(f *os.File, path string) bool {
	a, errA := f.Stat()
	b, errB := os.Stat(path)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// Claimed lists the sessions that are claimed, or were when their process died:
// those of them that can be claimed did not end in good order.
func (l *Ledger) Claimed() ([]string, error) {
	entries, err := os.ReadDir(l.dir().sessions())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the claimed sessions: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".lock"); ok {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
