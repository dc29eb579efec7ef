package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
	"github.com/yieldlog/yieldlog/replay/telemetry"
)

// lateHook is how many events a hook may be behind before doctor speaks of it.
const lateHook = 1000

// examineUse looks at those who use the ledger: sessions, hooks, the operator.
func (d *diagnosis) examineUse(ctx context.Context, l *ledger.Ledger) error {
	if err := d.examineSessions(ctx, l); err != nil {
		return err
	}
	if err := d.examineHooks(l); err != nil {
		return err
	}
	kept, err := l.Kept()
	if err != nil {
		return err
	}
	for _, k := range kept {
		if len(k.Blocks) > 0 {
			d.note("%s holds %s as it was when it was found damaged: only what verify names is missing; delete it when you do not need it",
				k.Path, strings.Join(k.Blocks, ", "))
			continue
		}
		d.note("%s holds %s that a refused open or a repair kept: delete it when you do not need it", k.Path, look.Bytes(k.Bytes))
	}
	d.examineSettings()
	return nil
}

func (d *diagnosis) note(format string, args ...any) {
	d.Notes = append(d.Notes, fmt.Sprintf(format, args...))
}

func (d *diagnosis) trouble(format string, args ...any) {
	d.Trouble = append(d.Trouble, fmt.Sprintf(format, args...))
}

// askMost bounds how long doctor waits for a session's process.
const askMost = 3 * time.Second

// examineSessions asks the process of each open session how its appends go.
func (d *diagnosis) examineSessions(ctx context.Context, l *ledger.Ledger) error {
	m := telemetry.NewMetrics()
	if err := replay.NewEngine(m).RunTo(ctx, l, events.Filter{Class: events.ClassSession}, 0); err != nil {
		return fmt.Errorf("reading the sessions: %w", err)
	}
	live := 0
	for _, id := range m.OpenSessions() {
		if !l.Alive(id) {
			continue
		}
		live++
		asking, cancel := context.WithTimeout(ctx, askMost)
		s, err := producers.AskStats(asking, l, id)
		cancel()
		switch {
		case errors.Is(err, ledger.ErrNoSession): // it is just opening or closing
		case err != nil:
			d.trouble("session %s lives, and its process does not answer (%v): it hangs, or the machine is very busy", id, err)
		case s.StalledSeconds > 0:
			d.trouble("session %s has waited for %s to append, with %d events in its outbox: its commands wait too; look at the disk",
				id, duration(time.Duration(s.StalledSeconds*float64(time.Second))), s.Queued)
		}
	}
	if live > 0 {
		d.note("%s alive", look.Count(live, "session"))
	}
	return nil
}

func (d *diagnosis) examineHooks(l *ledger.Ledger) error {
	cursors, err := l.Cursors()
	if err != nil {
		return err
	}
	for _, c := range cursors {
		behind := uint64(0)
		if d.Ledger.LastSeq >= c.Next {
			behind = d.Ledger.LastSeq + 1 - c.Next
		}
		switch {
		case !c.Taken:
			d.note("the hook %s is not running, and is %d events behind: it goes on when it is started; yieldlog on --forget %s forgets it", c.Name, behind, c.Name)
		case behind > lateHook:
			d.trouble("the hook %s is %d events behind: its command is slow or fails; more --jobs may help", c.Name, behind)
		default:
			d.note("the hook %s is running, %d events behind", c.Name, behind)
		}
	}
	return nil
}

func (d *diagnosis) examineSettings() {
	cfg, _, warnings, err := producers.LoadConfig(os.LookupEnv)
	if err != nil {
		d.trouble("no server can start: %v", err)
		return
	}
	d.Trouble = append(d.Trouble, warnings...)
	if cfg.RelaxedSync {
		d.note("YIELDLOG_SYNC is relaxed: a power cut may take the last moments")
	}
	if len(cfg.Shell) > 0 {
		if _, err := exec.LookPath(cfg.Shell[0]); err != nil {
			d.trouble("YIELDLOG_SHELL: %v", err)
		}
	}
}
