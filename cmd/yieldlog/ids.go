package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look"
)

// A named is a session, or an execution and its session.
type named struct{ session, execution string }

func (n named) id() string {
	if n.execution != "" {
		return n.execution
	}
	return n.session
}

// resolveID finds the one session or execution whose id ends in suffix.
func resolveID(ctx context.Context, l *ledger.Ledger, suffix string) (named, error) {
	if suffix == "" { // every id ends in it, also where there is only one
		return named{}, usageError{errors.New("the ID is empty")}
	}
	var found []named
	want := strings.ToUpper(suffix)
	for n, err := range allIDs(ctx, l) {
		switch {
		case err != nil:
			return named{}, err
		case n.id() == want:
			return n, nil
		case strings.HasSuffix(n.id(), want) && !slices.Contains(found, n):
			found = append(found, n)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return named{}, fmt.Errorf("%w: no session or execution has an id that ends in %q (`yieldlog ps` and `yieldlog sessions` list them)", errNotFound, suffix)
	}
	var ids []string
	for _, n := range found[:min(len(found), 5)] {
		ids = append(ids, n.id())
	}
	return named{}, fmt.Errorf("%w: %d ids end in %q: %s", errAmbiguous, len(found), suffix, strings.Join(ids, ", "))
}

// resolveExecution is resolveID for an execution.
func resolveExecution(ctx context.Context, l *ledger.Ledger, suffix string) (named, error) {
	n, err := resolveID(ctx, l, suffix)
	if err == nil && n.execution == "" {
		return n, fmt.Errorf("%w: %s is a session, not an execution (`yieldlog ps %s` lists them)", errNotFound, n.session, look.Short(n.session))
	}
	return n, err
}

// splitAddress splits an address of grep, ID@OFFSET; without an offset it is -1.
func splitAddress(s string) (id string, offset int64, err error) {
	id, at, ok := strings.Cut(s, "@")
	if !ok {
		return s, -1, nil
	}
	offset, err = strconv.ParseInt(at, 10, 64)
	if err != nil || offset < 0 {
		return id, -1, usageError{fmt.Errorf("%q is not ID@OFFSET", s)}
	}
	return id, offset, nil
}

// allIDs yields every session and every execution; one that was refused after
// its request comes twice.
func allIDs(ctx context.Context, l *ledger.Ledger) func(func(named, error) bool) {
	return func(yield func(named, error) bool) {
		for f, err := range l.Subjects(ctx, events.KindOpened, events.KindRequested, events.KindRefused) {
			n := named{session: f.Session}
			if f.Class == events.ClassExecution {
				n.execution = f.ID
			}
			if err != nil {
				err = fmt.Errorf("reading the ids: %w", err)
			}
			if !yield(n, err) || err != nil {
				return
			}
		}
	}
}

// completeIDs completes an id in the shell, as lists print it or, where that was
// begun, whole. What goes wrong completes nothing.
func (a *app) completeIDs(c *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	known := map[string]bool{}
	// An error here would only garble the user's prompt.
	_ = a.reading(c.Context(), func(l *ledger.Ledger) error {
		for n, err := range allIDs(c.Context(), l) {
			if err != nil {
				return err
			}
			for _, id := range []string{look.Short(n.id()), n.id()} {
				if strings.HasPrefix(id, strings.ToUpper(toComplete)) && !known[n.id()] {
					known[n.id()] = true
					ids = append(ids, id)
					break
				}
			}
		}
		return nil
	})
	slices.Reverse(ids) // the newest first
	return ids[:min(len(ids), 100)], cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
