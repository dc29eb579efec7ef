package main

import (
	"context"
	"errors"
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
	flush   func() // sends the last traces
	sinks   func() // ends serving sinks
}

// openLive opens the ledger and a session. The folds see what this process
// appends, which is everything that its session is about. Who is client is left
// empty for one that did not say.
func (a *app) openLive(ctx context.Context, cfg producers.Config, program, client string, folds ...projections.Fold) (*live, error) {
	l, err := a.openLedger(ctx, cfg)
	if err != nil {
		return nil, err
	}
	v := &live{ledger: l, processes: projections.NewProcesses(), recent: replay.NewRecent(l), sinks: func() {}}
	v.engine = replay.NewEngine(append(folds, v.processes, v.recent)...)
	l.Tap(v.engine.Apply)
	v.flush = a.trace(ctx, l)
	v.session, err = producers.OpenSession(ctx, l, cfg, events.Opened{Program: program, Version: buildVersion(), Client: client})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening a session: %w", err), l.Close())
	}
	return v, nil
}

// close ends the session, and the ledger after it. The context of the command
// may be over: that is why it closes. A lost guardian leaves no time.
func (v *live) close(ctx context.Context, reason string) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
	defer cancel()
	defer v.flush()
	select {
	case <-guardian.Lost():
		err = v.session.CloseAtOnce(ctx, "the guardian died")
	default:
		err = v.session.Close(ctx, reason)
	}
	v.sinks() // to the end sinks may acknowledge
	return errors.Join(err, v.ledger.Close())
}
