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
	l, err := ledger.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	l.AutoPrune(notePruned(l))
	l.AutoPack()
	return l, nil
}

// reading opens the ledger for reading, and hands it to read. A directory that
// holds no ledger stays as it is.
func (a *app) reading(ctx context.Context, read func(*ledger.Ledger) error) (err error) {
	dir, err := a.existing()
	if err != nil {
		return err
	}
	l, err := ledger.Open(ctx, ledger.Options{Dir: dir, ReadOnly: true, Logger: a.logger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return read(l)
}

// writing opens a ledger that exists for writing, and hands it to write.
func (a *app) writing(ctx context.Context, write func(*ledger.Ledger) error) error {
	if _, err := a.existing(); err != nil {
		return err
	}
	return a.creating(ctx, write)
}

// creating is writing for a ledger that need not exist yet.
func (a *app) creating(ctx context.Context, write func(*ledger.Ledger) error) (err error) {
	cfg, _, err := a.config()
	if err != nil {
		return err
	}
	l, err := a.openLedger(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return write(l)
}

// existing is the state directory, which holds a ledger.
func (a *app) existing() (string, error) {
	dir, _, err := a.stateDir()
	if err != nil {
		return "", err
	}
	if entries, err := os.ReadDir(dir); len(entries) == 0 && (err == nil || errors.Is(err, os.ErrNotExist)) {
		return "", fmt.Errorf("%w in %s yet: nothing was run (see `yieldlog help mcp`, or --dir)", errNoLedger, dir)
	}
	return filepath.Clean(dir), nil
}
