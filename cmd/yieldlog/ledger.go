package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
)

// openLedger opens the ledger for writing, with the settings of the operator.
func (a *app) openLedger(ctx context.Context, cfg producers.Config) (*ledger.Ledger, error) {
	dir, _, err := a.stateDir()
	if err != nil {
		return nil, err
	}
	o := ledger.Options{Dir: dir, MaxBytes: cfg.MaxBytes, FreeFloor: cfg.FreeFloor, Logger: a.logger()}
	if cfg.RelaxedSync {
		o.Sync = ledger.SyncRelaxed
	}
	return ledger.Open(ctx, o)
}

// reading opens the ledger for reading, and hands it to read. A directory that
// holds no ledger stays as it is.
func (a *app) reading(ctx context.Context, read func(*ledger.Ledger) error) (err error) {
	dir, _, err := a.stateDir()
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); len(entries) == 0 && (err == nil || errors.Is(err, os.ErrNotExist)) {
		return fmt.Errorf("%w: there is no ledger in %s yet: nothing was run (see `yieldlog help mcp`, or --dir)", errNoLedger, dir)
	}
	l, err := ledger.Open(ctx, ledger.Options{Dir: filepath.Clean(dir), ReadOnly: true, Logger: a.logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return read(l)
}
