package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newDoctor(a *app) *cobra.Command {
	var repair bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Explain the state of the ledger, and what to do about it",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if repair {
				return a.repair()
			}
			return a.examine(c.Context())
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "make a damaged ledger openable: copies are kept, and only damaged records go")
	return c
}

// A diagnosis is what doctor finds. Each trouble says what to do.
type diagnosis struct {
	Ledger *ledger.Info `json:"ledger,omitempty"`
	Dead   []string     `json:"dead_sessions,omitempty"`
	// Notes are what is good to know, and Trouble is what somebody must do
	// something about.
	Notes   []string `json:"notes,omitempty"`
	Trouble []string `json:"trouble"`
}

func (a *app) examine(ctx context.Context) error {
	d := diagnosis{Trouble: []string{}}
	err := a.reading(ctx, func(l *ledger.Ledger) error { return d.examine(ctx, l) })
	switch {
	case errors.Is(err, ledger.ErrDamaged), errors.Is(err, ledger.ErrUnavailable):
		d.Trouble = append(d.Trouble, err.Error())
	case err != nil:
		return err
	}
	if err := a.printDiagnosis(d); err != nil {
		return err
	}
	if len(d.Trouble) > 0 {
		return fmt.Errorf("%w: %d things need attention", errFindings, len(d.Trouble))
	}
	return nil
}

func (d *diagnosis) examine(ctx context.Context, l *ledger.Ledger) error {
	info, err := l.Info(ctx)
	if err != nil {
		return fmt.Errorf("describing the ledger: %w", err)
	}
	if cfg, _, _, err := producers.LoadConfig(os.LookupEnv); err == nil { // what is wrong with it is said below
		info.MaxBytes = cfg.MaxBytes
		if info.Free < cfg.FreeFloor {
			d.trouble("%s are free on the disk, and %s must stay free: new commands are refused; make room, or prune old output with yieldlog prune",
				look.Bytes(info.Free), look.Bytes(cfg.FreeFloor))
		}
	}
	d.Ledger = &info
	if info.MaxBytes > 0 && info.Bytes > info.MaxBytes {
		d.Trouble = append(d.Trouble, fmt.Sprintf("the ledger has %s, over its limit of %s: prune old output with yieldlog prune, or raise YIELDLOG_MAX_BYTES",
			look.Bytes(info.Bytes), look.Bytes(info.MaxBytes)))
	}
	processes, err := foldProcesses(ctx, l, events.Filter{}, moment{})
	if err != nil {
		return err
	}
	dead := map[string]bool{}
	for _, p := range processes.Live() {
		if !dead[p.Session] && !l.Alive(p.Session) {
			dead[p.Session] = true
			d.Dead = append(d.Dead, p.Session)
		}
	}
	return d.examineUse(ctx, l)
}

func (a *app) printDiagnosis(d diagnosis) error {
	if a.json {
		return a.printJSON("diagnosis", d)
	}
	if i := d.Ledger; i != nil {
		w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		host := fmt.Sprintf("pid %d", i.Host)
		if i.Host == os.Getpid() {
			host = "nobody but this command"
		}
		fmt.Fprintf(w, "ledger\t%s\nhost\t%s\t%s\n", i.Dir, host, i.URL)
		fmt.Fprintf(w, "size\t%s of %s, %s free on the disk\n", look.Bytes(i.Bytes), look.Bytes(i.MaxBytes), look.Bytes(i.Free))
		for _, s := range i.Streams {
			sealed := ""
			if s.Sealed {
				sealed = ", sealed"
			}
			fmt.Fprintf(w, "stream\t%s: %s, %s%s\n", s.Name, look.Count(int(s.Messages), "message"), look.Bytes(s.Bytes), sealed)
		}
		for _, session := range d.Dead {
			fmt.Fprintf(w, "dead\tsession %s: its server died; the next one to open the ledger records that\n", session)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	for _, n := range d.Notes {
		fmt.Fprintf(a.out, "note: %s\n", n)
	}
	for _, t := range d.Trouble {
		fmt.Fprintf(a.out, "\ntrouble: %s\n", t)
	}
	if len(d.Trouble) == 0 {
		fmt.Fprintln(a.out, "\nall is well; yieldlog verify proves the contents")
	}
	return nil
}

func (a *app) repair() error {
	dir, err := a.existing()
	if err != nil {
		return err
	}
	done, err := ledger.Repair(dir)
	if a.json {
		return errors.Join(err, a.printJSON("repaired", append([]string{}, done...)))
	}
	for _, line := range done {
		fmt.Fprintln(a.out, line)
	}
	if err == nil && len(done) == 0 {
		fmt.Fprintln(a.out, "nothing is damaged")
	}
	return err
}
