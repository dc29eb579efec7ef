package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
)

func newGrep(a *app) *cobra.Command {
	var (
		q            replay.Query
		owner        ownerPath
		in           string
		since, until string
		most         int
	)
	c := &cobra.Command{
		Use:   "grep PATTERN",
		Short: "Search everything that was run and printed",
		Long: `Search the text of all commands and all their output, line by line, for a regular
expression (RE2). Each match has an address: show and logs take it.

The exit code is 3 when nothing matches.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) (err error) {
			q.Pattern, q.Owner = args[0], string(owner)
			q.Outcome = strings.ReplaceAll(q.Outcome, " ", "_") // ps says "timed out"
			if q.Outcome != "" && !slices.Contains(replay.Outcomes, q.Outcome) {
				return usageError{fmt.Errorf("--outcome %q is no way to end: give one of %s", q.Outcome, strings.Join(replay.Outcomes, ", "))}
			}
			if q.Since, err = parseTime(since); err != nil {
				return usageError{err}
			}
			if q.Until, err = parseTime(until); err != nil {
				return usageError{err}
			}
			return a.reading(c.Context(), func(l *ledger.Ledger) error { return a.grep(c.Context(), l, q, in, most) })
		},
	}
	c.Flags().BoolVarP(&q.Literal, "fixed-strings", "F", false, "the pattern is the text itself")
	c.Flags().BoolVarP(&q.IgnoreCase, "ignore-case", "i", false, "case does not count")
	c.Flags().IntVarP(&q.Context, "context", "C", 0, "lines to show before and after each match")
	c.Flags().StringVar(&in, "in", "", "search only this session or execution")
	c.Flags().Var(&owner, "owner", "search only this owner's commands")
	c.Flags().StringVar(&q.Outcome, "outcome", "", "search only what ended so: success, failure, failed, stopped, lost, ...")
	c.Flags().StringVar(&since, "since", "", "search only from here on: "+timeHelp)
	c.Flags().StringVar(&until, "until", "", "search only up to here: "+timeHelp)
	c.Flags().BoolVar(&q.NewestFirst, "newest-first", false, "begin with the newest command")
	c.Flags().IntVarP(&most, "max-count", "m", 0, "stop after so many matches; 0 is never")
	return c
}

// parseTime is a moment that must be a time.
func parseTime(s string) (time.Time, error) {
	m, err := parseMoment(s, time.Now())
	if err == nil && m.seq > 0 {
		err = fmt.Errorf("%q is a sequence, not a time", s)
	}
	return m.time, err
}

func (a *app) grep(ctx context.Context, l *ledger.Ledger, q replay.Query, in string, most int) error {
	if in != "" {
		id, err := resolveID(ctx, l, in)
		if err != nil {
			return err
		}
		q.Session, q.Execution = id.session, id.execution
	}
	n, err := a.printMatches(replay.Search(ctx, l, q), most)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%w: nothing matches %q", errNotFound, q.Pattern)
	}
	return nil
}

// A matchLine is a match as --json prints it.
type matchLine struct {
	Schema  int    `json:"schema"`
	Address string `json:"address"`
	replay.Match
}

// printMatches prints at most so many matches, and returns how many.
func (a *app) printMatches(matches iter.Seq2[replay.Match, error], most int) (n int, err error) {
	for m, err := range matches {
		if bad := new(syntax.Error); errors.As(err, &bad) {
			return n, usageError{err}
		}
		if err != nil {
			return n, fmt.Errorf("searching: %w", err)
		}
		if err := a.printMatch(m); err != nil {
			return n, err
		}
		if n++; n == most {
			break
		}
	}
	return n, nil
}

func (a *app) printMatch(m replay.Match) error {
	if a.json {
		return a.printLine(matchLine{Schema: jsonSchema, Address: m.Address(), Match: m})
	}
	address := shortID(m.Execution) + strings.TrimPrefix(m.Address(), m.Execution)
	for _, line := range m.Before {
		fmt.Fprintf(a.out, "%s-  %s\n", address, oneLine(line, 2000))
	}
	stream := "$ "
	if m.Stream != "" {
		stream = ""
	}
	if _, err := fmt.Fprintf(a.out, "%s:  %s%s\n", address, stream, oneLine(m.Text, 2000)); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	for _, line := range m.After {
		fmt.Fprintf(a.out, "%s-  %s\n", address, oneLine(line, 2000))
	}
	return nil
}
