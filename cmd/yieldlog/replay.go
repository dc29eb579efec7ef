package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
)

func newReplay(a *app) *cobra.Command {
	var (
		player replay.Player
		from   string
	)
	c := &cobra.Command{
		Use:   "replay [ID]",
		Short: "Play a session or an execution, with the timing that it had",
		Long: `Play a session (all its executions interleaved, each labelled) or one execution
with the timing that it had. Without an ID, play the newest session.

On a terminal: space pauses and goes on, "." shows the next event, + and -
change the speed, q ends.`,
		Annotations:       map[string]string{onlyText: "`yieldlog export --format jsonl` and `yieldlog events` do"},
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			moment, err := parseReplayMoment(from, time.Now())
			if err != nil {
				return usageError{err}
			}
			player.From = moment
			if player.Speed <= 0 {
				return usageError{errors.New("--speed must be above 0")}
			}
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				if err := checkSeq(c.Context(), l, moment.Seq); err != nil {
					return err
				}
				f, err := a.selectRecording(c.Context(), l, args)
				if err != nil {
					return err
				}
				if err := a.tellPruned(c.Context(), l, f, 0); err != nil {
					return err
				}
				return a.play(c.Context(), l, f, &player)
			})
		},
	}
	c.Flags().Float64Var(&player.Speed, "speed", 1, "how much faster than it was")
	c.Flags().DurationVar(&player.IdleLimit, "idle-limit", 2*time.Second, "the longest pause, as it was recorded; 0 is no limit")
	c.Flags().BoolVar(&player.Instant, "instant", false, "without pauses")
	c.Flags().StringVar(&from, "from", "", "play from here on, and show at once what was before: a sequence, an event's id, a time since the beginning (90s), or "+timeHelp)
	return c
}

// parseReplayMoment is where to begin. Unlike elsewhere, a duration counts from
// the beginning of the recording.
func parseReplayMoment(s string, now time.Time) (replay.Moment, error) {
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return replay.Moment{At: d}, nil
	}
	if len(s) == len(events.NewID()) {
		return replay.Moment{ID: s}, nil
	}
	m, err := parseMoment(s, now)
	return replay.Moment{Seq: m.seq, Time: m.time}, err
}

// selectRecording is the named session or execution, or the newest session.
func (a *app) selectRecording(ctx context.Context, l *ledger.Ledger, args []string) (events.Filter, error) {
	if len(args) == 1 {
		return a.selectEvents(ctx, l, args)
	}
	var session string
	for e, err := range l.Read(ctx, events.Filter{Kind: events.KindOpened}, 1, 0) {
		if err != nil {
			return events.Filter{}, fmt.Errorf("reading the sessions: %w", err)
		}
		session = e.Session
	}
	if session == "" {
		return events.Filter{}, fmt.Errorf("%w: the ledger has no session", errNotFound)
	}
	return events.Filter{Session: session}, nil
}

// play plays to the terminal. Being interrupted is a way to end it.
func (a *app) play(ctx context.Context, l *ledger.Ledger, f events.Filter, p *replay.Player) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, restore, err := a.playerKeys(p, cancel)
	if err != nil {
		return err
	}
	defer restore()
	text := replay.TextWriter{W: out, Labelled: f.ID == ""}
	err = p.Play(ctx, replay.Timeline(ctx, l, f, 0), text.WriteFrame)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("playing: %w", err)
	}
	return text.Close()
}
