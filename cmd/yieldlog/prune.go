package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newPrune(a *app) *cobra.Command {
	var (
		older age
		most  byteCount
	)
	c := &cobra.Command{
		Use:   "prune",
		Short: "Delete old output on purpose, and give the disk back",
		Long: `Delete the oldest output, a whole sealed segment at a time, until what is left is
younger than --older-than or smaller than --to-bytes. What happened stays on
record, and so does the fact that output was deleted. The host does the same by
itself before the ledger reaches its size limit (see yieldlog config).`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("older-than") == c.Flags().Changed("to-bytes") {
				return usageError{errors.New("give --older-than or --to-bytes")}
			}
			return a.writing(c.Context(), func(l *ledger.Ledger) error {
				prune := func() (ledger.PruneReport, error) { return l.Prune(c.Context(), int64(most), "asked", notePruned(l)) }
				if c.Flags().Changed("older-than") {
					prune = func() (ledger.PruneReport, error) {
						return l.PruneBefore(c.Context(), time.Now().Add(-time.Duration(older)), "asked", notePruned(l))
					}
				}
				r, err := prune()
				if err != nil {
					return err
				}
				return a.printPruned(r)
			})
		},
	}
	c.Flags().Var(&older, "older-than", "delete output that is older, for example 30d or 12h")
	c.Flags().Var(&most, "to-bytes", "delete until the ledger has at most so many bytes, for example 500MB or 2GiB")
	return c
}

func (a *app) printPruned(r ledger.PruneReport) error {
	if a.json {
		return a.printJSON("pruned", r)
	}
	_, err := fmt.Fprintf(a.out, "deleted %s of output, of %s\n", look.Bytes(r.Bytes), look.Count(r.Executions, "execution"))
	return err
}

// age is the value of a flag: a duration that may be in days.
type age time.Duration

// String implements pflag.Value: a zero age is no default worth showing.
func (g *age) String() string {
	if *g == 0 {
		return ""
	}
	return time.Duration(*g).String()
}

// Type implements pflag.Value.
func (g *age) Type() string { return "duration" }

// Set implements pflag.Value.
func (g *age) Set(s string) error {
	d, err := parseDuration(s)
	if err != nil {
		return errors.New("an age is a number with its unit, such as 7d, 12h or 1h30m")
	}
	*g = age(d)
	return nil
}

// parseDuration is time.ParseDuration, and takes days.
func parseDuration(s string) (time.Duration, error) {
	number, ok := strings.CutSuffix(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	days, err := strconv.ParseFloat(number, 64)
	// More than a century is more than a duration holds, sooner or later.
	if err == nil && !(math.Abs(days) <= 36500) {
		err = strconv.ErrRange
	}
	return time.Duration(days * 24 * float64(time.Hour)), err
}

// byteCount is the value of a flag: a number of bytes that may have a unit.
type byteCount int64

// byteUnits are the units of a byteCount; a shorter one comes after those that end in it.
var byteUnits = []struct {
	name  string
	bytes int64
}{
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"b", 1},
	{"", 1},
}

func (n *byteCount) String() string { return strconv.FormatInt(int64(*n), 10) }
func (n *byteCount) Type() string   { return "bytes" } //nolint:revive // pflag.Value

// Set implements pflag.Value.
func (n *byteCount) Set(s string) error {
	for _, unit := range byteUnits {
		number, ok := strings.CutSuffix(strings.ToLower(s), unit.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(v >= 0 && v*float64(unit.bytes) < math.MaxInt64) {
			break
		}
		*n = byteCount(v * float64(unit.bytes))
		return nil
	}
	return errors.New("a size is a number of bytes, or has a unit: kB, MB, GB, KiB, MiB or GiB")
}

// notePruned records what is pruned through the session that it belongs to.
func notePruned(l *ledger.Ledger) ledger.NotePruned {
	return func(ctx context.Context, session, owner, execution string, p events.Pruned) error {
		return producers.NotePruned(ctx, l, session, owner, execution, p)
	}
}
