package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newLogs(a *app) *cobra.Command {
	var (
		follow bool
		from   int64
	)
	c := &cobra.Command{
		Use:   "logs ID[@OFFSET]",
		Short: "Print an execution's output: stdout to stdout, stderr to stderr",
		Long: `Print an execution's output as it is: stdout to stdout, stderr to stderr.
ID@OFFSET, as yieldlog grep prints it, begins at that byte. To interrupt
--follow ends nothing but the printing.`,
		Annotations:       map[string]string{onlyText: "`yieldlog export --format jsonl` has the output"},
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			suffix, offset, err := splitAddress(args[0])
			if err != nil {
				return err
			}
			if offset >= 0 && c.Flags().Changed("from") {
				return usageError{fmt.Errorf("%s says where to begin, and so does --from", args[0])}
			}
			from = max(from, offset)
			return a.reading(ctx, func(l *ledger.Ledger) error {
				id, err := resolveExecution(ctx, l, suffix)
				if err != nil {
					return err
				}
				f := events.Filter{Session: id.session, ID: id.execution}
				if err := a.tellPruned(ctx, l, f, from); err != nil {
					return err
				}
				p := &printer{ledger: l, id: id, out: a.out, err: a.err, next: from}
				if follow {
					err = p.follow(ctx)
				} else {
					err = p.catchUp(ctx)
				}
				if err != nil || ctx.Err() != nil {
					return err
				}
				return a.tellMissing(ctx, l, f, from, p)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the execution ends")
	c.Flags().Int64Var(&from, "from", 0, "begin at this byte")
	return c
}

// tellPruned says on stderr how much of the output that the filter selects, from
// an offset on, was pruned and cannot be printed.
func (a *app) tellPruned(ctx context.Context, l *ledger.Ledger, f events.Filter, from int64) error {
	processes, err := foldProcesses(ctx, l, f, moment{})
	if err != nil {
		return err
	}
	var n int64
	for p := range processes.Everything() {
		n += p.PrunedIn(from, -1)
	}
	if n > 0 {
		fmt.Fprintf(a.err, "yieldlog: %s of the output were pruned\n", look.Bytes(n))
	}
	return nil
}

// tellMissing says on stderr how much of a finished output, from an offset on,
// could not be printed though nobody pruned it.
func (a *app) tellMissing(ctx context.Context, l *ledger.Ledger, f events.Filter, from int64, printed *printer) error {
	processes, err := foldProcesses(ctx, l, f, moment{})
	if err != nil {
		return err
	}
	for p := range processes.Everything() {
		if p.Settled == nil {
			continue
		}
		if n := p.Settled.Offset - from - printed.printed - p.PrunedIn(from, -1); n > 0 {
			fmt.Fprintf(a.err, "yieldlog: %s of the output are damaged or missing: see `yieldlog verify`\n", look.Bytes(n))
		}
	}
	return nil
}

// A printer prints the output of one execution, from the ledger.
type printer struct {
	ledger   *ledger.Ledger
	id       named
	out, err io.Writer
	next     int64 // the offset of the first byte that was not printed
	printed  int64 // bytes
}

// catchUp prints what there is.
func (p *printer) catchUp(ctx context.Context) error {
	for e, err := range p.ledger.Output(ctx, p.id.session, p.id.execution, p.next, -1) {
		if err != nil {
			return fmt.Errorf("reading the output: %w", err)
		}
		b, ok := e.Body.(events.Output)
		if !ok {
			continue
		}
		w := p.out
		if b.Stream == events.KindStderr {
			w = p.err
		}
		if _, err := w.Write(b.Data); err != nil {
			return fmt.Errorf("printing the output: %w", err)
		}
		p.next = b.End()
		p.printed += int64(len(b.Data))
	}
	return nil
}

// lookAgain is how often a follower looks by itself: an event that came while
// it was subscribing shows then.
const lookAgain = time.Second

// follow prints what comes, until the execution ends. Being interrupted is a
// way to end it.
func (p *printer) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	more, ended := make(chan struct{}, 1), make(chan error, 1)
	f := events.Filter{Session: p.id.session, ID: p.id.execution}
	go func() { // ends with follow
		for _, err := range p.ledger.FollowOutput(ctx, f) {
			if err != nil {
				return // lookAgain does without
			}
			wake(more)
		}
	}()
	go func() { ended <- awaitEnd(ctx, p.ledger, f) }() // ends with follow
	return p.printUntil(ctx, more, ended)
}

// printUntil prints whenever there is more, and once more after the end.
func (p *printer) printUntil(ctx context.Context, more <-chan struct{}, ended <-chan error) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if err := p.catchUp(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case err := <-ended:
			if err != nil || ctx.Err() != nil {
				return err
			}
			return p.catchUp(ctx)
		case <-more:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// awaitEnd returns when the execution has settled or was refused.
func awaitEnd(ctx context.Context, l *ledger.Ledger, f events.Filter) error {
	for e, err := range l.Follow(ctx, f, 1) {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("following the ledger: %w", err)
		}
		if k := e.Kind(); k == events.KindSettled || k == events.KindRefused {
			return nil
		}
	}
	return nil
}

// wake leaves a token, if there is none.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
