package main

import (
	"context"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/guardian"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay"
)

// closeGrace bounds the end of a session: everything is stopped and settled in it.
const closeGrace = 10 * time.Second

// A live is a session of this process: its ledger, the folds that follow it,
// and the session that writes it.
type live struct {
	ledger    *ledger.Ledger
	engine    *replay.Engine
	processes *projections.Processes
	// recent answers for the output of the session's newest executions.
	recent  *replay.Recent
	session *producers.Session
	untap   func() // ends what the folds see
	sinks   func() // ends serving sinks
}

// openTraced opens the ledger, and sends traces of what this process appends if
// they are wanted. shut ends both.
func (a *app) openTraced(ctx context.Context, cfg producers.Config) (l *ledger.Ledger, shut func() error, err error) {
	l, err = a.openLedger(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	flush := a.trace(ctx, l)
	return l, func() error {
		defer flush() // the last traces
		return l.Close()
	}, nil
}

// openSession opens a session on the ledger. The folds see what this process
// appends, which is everything that its session is about. Who is client is left
// empty for one that did not say.
func openSession(ctx context.Context, cfg producers.Config, l *ledger.Ledger, program, client string, folds ...projections.Fold) (*live, error) {
	v := &live{ledger: l, processes: projections.NewProcesses(), recent: replay.NewRecent(l), sinks: func() {}}
	v.engine = replay.NewEngine(append(folds, v.processes, v.recent)...)
	v.untap = l.Tap(v.engine.Apply)
	var err error
	v.session, err = producers.OpenSession(ctx, l, cfg, events.Opened{Program: program, Version: buildVersion(), Client: client})
	if err != nil {
		v.untap()
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	return v, nil
}

// end ends the session. The context of the command may be over: that is why it
// ends. A lost guardian leaves no time.
func (v *live) end(ctx context.Context, reason string) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	defer v.untap()
	select {
	case <-guardian.Lost():
		err = v.session.CloseAtOnce(ctx, "the guardian died")
	default:
		err = v.session.Close(ctx, reason)
	}
	v.sinks() // to the end sinks may acknowledge
	return err
}
