package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp/syntax"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/look"
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
	_ = c.RegisterFlagCompletionFunc("in", a.completeIDs) // it fails only for a flag that is not there
	c.Flags().Var(&owner, "owner", "search only this owner's commands")
	c.Flags().StringVar(&q.Outcome, "outcome", "", "search only what ended so: success, failure, failed, stopped, lost, ...")
	completeWith(c, "outcome", replay.Outcomes...)
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
	n, err := a.printMatches(replay.Search(ctx, l, q), q.Context > 0, most)
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
func (a *app) printMatches(matches iter.Seq2[replay.Match, error], grouped bool, most int) (n int, err error) {
	p := &matchPrinter{out: a.out, grouped: grouped}
	printed := p.print
	if a.json {
		printed = func(m replay.Match) error {
			return a.printLine(matchLine{Schema: jsonSchema, Address: m.Address(), Match: m})
		}
	}
	for m, err := range matches {
		if bad := new(syntax.Error); errors.As(err, &bad) {
			return n, usageError{err}
		}
		if err != nil {
			return n, fmt.Errorf("searching: %w", err)
		}
		if err := printed(m); err != nil {
			return n, err
		}
		if n++; n == most {
			break
		}
	}
	return n, p.rest(nil)
}

// A matchPrinter prints matches with their context as grep does: a line that
// belongs to two of them once, and "--" where lines are left out.
type matchPrinter struct {
	out     io.Writer
	grouped bool
	// last is the match whose lines after it are still to print, and done holds
	// the number of the last line of each of its execution's streams that is.
	last *replay.Match
	done map[events.Kind]int64
}

func (p *matchPrinter) print(m replay.Match) error {
	if err := p.rest(&m); err != nil {
		return err
	}
	if p.last == nil || p.last.Execution != m.Execution {
		p.done = map[events.Kind]int64{}
	}
	first, done := m.Line-int64(len(m.Before)), p.done[m.Stream]
	if p.last != nil && p.grouped && (p.last.Execution != m.Execution || p.last.Stream != m.Stream || first > done+1) {
		if _, err := io.WriteString(p.out, "--\n"); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	for i, text := range m.Before {
		if first+int64(i) > done {
			if err := p.line(m, m.BeforeAt[i], "- ", text); err != nil {
				return err
			}
		}
	}
	sign := ": "
	if m.Stream == "" {
		sign = ":  $"
	}
	if err := p.line(m, m.Offset, sign, m.Text); err != nil {
		return err
	}
	p.last, p.done[m.Stream] = &m, m.Line
	return nil
}

// rest prints the lines after the last match, as far as the next one is none of them.
func (p *matchPrinter) rest(next *replay.Match) error {
	if p.last == nil {
		return nil
	}
	for i, text := range p.last.After {
		line := p.last.Line + 1 + int64(i)
		if next != nil && next.Execution == p.last.Execution && next.Stream == p.last.Stream && line >= next.Line {
			break
		}
		if err := p.line(*p.last, p.last.AfterAt[i], "- ", text); err != nil {
			return err
		}
		p.done[p.last.Stream] = line
	}
	return nil
}

// line prints a line of a match's stream, behind its own address.
func (p *matchPrinter) line(m replay.Match, offset int64, sign, text string) error {
	m.Offset = offset
	address := look.Short(m.Execution) + strings.TrimPrefix(m.Address(), m.Execution)
	if _, err := fmt.Fprintf(p.out, "%s%s %s\n", address, sign, oneLine(text, 2000)); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
