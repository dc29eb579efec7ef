package ledger

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/yieldlog/yieldlog/events"
)

// readable is the event of a message. One that is no event is passed over: a bad
// record must not hide all that came after it. [Ledger.ReadRaw] has it, and
// verification names it.
func (l *Ledger) readable(r Raw) (events.Event, bool) {
	e, err := decode(r)
	if err != nil {
		l.passOver(r, err)
	}
	return e, err == nil
}

// passOver counts a message that is no event. The first is a warning.
func (l *Ledger) passOver(r Raw, why error) {
	level := slog.LevelDebug
	switch l.unreadable.note(r) {
	case 0:
		return
	case 1:
		level = slog.LevelWarn
	}
	l.opts.Logger.Log(l.run, level, "passing over a message that is no event; verify finds them all", "error", why)
}

// unreadable are the messages that were met and are no events.
type unreadable struct {
	mu  sync.Mutex
	met map[string]bool
}

// note is how many were met with this one, and 0 for one that was met before.
func (u *unreadable) note(r Raw) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := fmt.Sprint(r.Subject, " ", r.Seq)
	if u.met[key] {
		return 0
	}
	if u.met == nil {
		u.met = map[string]bool{}
	}
	u.met[key] = true
	return len(u.met)
}

func (u *unreadable) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.met)
}
