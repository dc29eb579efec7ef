package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
)

// A format writes a recording.
type format func(ctx context.Context, w io.Writer, l *ledger.Ledger, f events.Filter) error

var formats = map[string]format{
	"asciicast": func(ctx context.Context, w io.Writer, l *ledger.Ledger, f events.Filter) error {
		return replay.WriteAsciicast(w, replay.Timeline(ctx, l, f, 0), replay.Cast{Labelled: f.ID == ""})
	},
	"jsonl": func(ctx context.Context, w io.Writer, l *ledger.Ledger, f events.Filter) error {
		return replay.WriteEventLines(w, replay.Timeline(ctx, l, f, 0))
	},
	"markdown": func(ctx context.Context, w io.Writer, l *ledger.Ledger, f events.Filter) error {
		return replay.WriteMarkdown(ctx, w, l, f, 0)
	},
	"text": func(ctx context.Context, w io.Writer, l *ledger.Ledger, f events.Filter) error {
		text := replay.TextWriter{W: w, Labelled: f.ID == ""}
		player := replay.Player{Instant: true}
		return errors.Join(player.Play(ctx, replay.Timeline(ctx, l, f, 0), text.WriteFrame), text.Close())
	},
}

// formatNames lists the formats.
func formatNames() string { return strings.Join(slices.Sorted(maps.Keys(formats)), ", ") }

// render writes a session or an execution, without an id the newest session.
func (a *app) render(ctx context.Context, args []string, name, file string) error {
	write, ok := formats[name]
	if !ok {
		return usageError{fmt.Errorf("%q is none of the formats %s, %s", name, formatArchive, formatNames())}
	}
	if len(args) > 1 {
		return usageError{fmt.Errorf("the format %s holds one session or execution", name)}
	}
	return a.reading(ctx, func(l *ledger.Ledger) error {
		f, err := a.selectRecording(ctx, l, args)
		if err != nil {
			return err
		}
		if name == "text" { // the other formats hold the facts
			if err := a.tellPruned(ctx, l, f, 0); err != nil {
				return err
			}
		}
		return a.writeFile(file, func(w io.Writer) error { return write(ctx, w, l, f) })
	})
}
