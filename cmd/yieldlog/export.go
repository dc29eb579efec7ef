package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers/archive"
	"github.com/yieldlog/yieldlog/replay/look"
)

// formatArchive is the format that another ledger imports.
const formatArchive = "archive"

func newExport(a *app) *cobra.Command {
	var (
		file, format string
		all          bool
	)
	c := &cobra.Command{
		Use:   "export [ID...]",
		Short: "Write sessions to an archive, for another ledger, or in another format",
		Long: `Write sessions to an archive: every event and every byte of output, compressed. An
execution stands for its session.

  yieldlog export 1KDBPMYF -o night.yieldlog
  yieldlog export --all | ssh host yieldlog import -

With --format, write one session or execution, without an ID the newest session:
as asciicast v3 (asciinema plays it), text, jsonl (every event with its output,
as JSON lines), or markdown.`,
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			if format != formatArchive {
				if all {
					return usageError{fmt.Errorf("the format %s holds one session or execution", format)}
				}
				return a.render(c.Context(), args, format, file)
			}
			if all == (len(args) > 0) {
				return usageError{errors.New("name the sessions, or say --all")}
			}
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				sessions, err := sessionsOf(c.Context(), l, args)
				if err != nil {
					return err
				}
				return a.export(c.Context(), l, sessions, file)
			})
		},
	}
	c.Flags().StringVarP(&file, "output", "o", "-", "the file, which is there once it is whole; - is stdout")
	c.Flags().StringVar(&format, "format", formatArchive, "archive, or one of "+formatNames())
	completeWith(c, "format", append([]string{formatArchive}, strings.Split(formatNames(), ", ")...)...)
	c.Flags().BoolVar(&all, "all", false, "every session")
	return c
}

// sessionsOf is the sessions that are named, each once, or all of them.
func sessionsOf(ctx context.Context, l *ledger.Ledger, args []string) ([]string, error) {
	var sessions []string
	if len(args) == 0 {
		for e, err := range l.Read(ctx, events.Filter{Kind: events.KindOpened}, 1, 0) {
			if err != nil {
				return nil, fmt.Errorf("reading the sessions: %w", err)
			}
			sessions = append(sessions, e.Session)
		}
		return sessions, nil
	}
	for _, arg := range args {
		id, err := resolveID(ctx, l, arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(sessions, id.session) {
			sessions = append(sessions, id.session)
		}
	}
	return sessions, nil
}

func (a *app) export(ctx context.Context, l *ledger.Ledger, sessions []string, file string) error {
	if file == "-" {
		if err := a.notOnScreen("an archive"); err != nil {
			return err
		}
	}
	var n int
	err := a.writeFile(file, func(w io.Writer) (err error) {
		n, err = archive.Export(ctx, l, w, sessions)
		return err
	})
	if err != nil || file == "-" {
		return err
	}
	if a.json {
		return a.printJSON("export", map[string]any{"file": file, "sessions": sessions, "messages": n})
	}
	_, err = fmt.Fprintf(a.out, "%s: %s, %s\n", file, look.Count(len(sessions), "session"), look.Count(n, "message"))
	return err
}

func newImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Take in sessions of another ledger, or a terminal recording",
		Long: `Take in the sessions of an archive (see yieldlog export), or a terminal recording
(asciicast v2 or v3). - is stdin.

Nothing comes in twice: an import that was cut off goes on when it is done again,
and an archive of a session that went on brings the rest. A session that is here
with another history is refused.`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			in := a.in
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usageError{err}
				}
				defer func() { _ = f.Close() }() // it was only read
				in = f
			}
			return a.creating(c.Context(), func(l *ledger.Ledger) error {
				sum, err := takeIn(c.Context(), l, in)
				if err != nil && args[0] != "-" {
					return fmt.Errorf("importing %s: %w", args[0], err)
				}
				if err != nil {
					return err
				}
				return a.printImport(sum)
			})
		},
	}
}

// maxCast bounds a terminal recording, which is read whole.
const maxCast = 1 << 30

func takeIn(ctx context.Context, l *ledger.Ledger, in io.Reader) (archive.Summary, error) {
	in, isCast, err := peekCast(in)
	if err != nil {
		return archive.Summary{}, err
	}
	if !isCast {
		return archive.Import(ctx, l, in)
	}
	cast, err := io.ReadAll(io.LimitReader(in, maxCast+1))
	if err == nil && len(cast) > maxCast {
		err = fmt.Errorf("it is over %s", look.Bytes(maxCast))
	}
	if err != nil {
		return archive.Summary{}, fmt.Errorf("reading the recording: %w", err)
	}
	return archive.ImportAsciicast(ctx, l, cast)
}

// peekCast tells a recording from an archive by its first bytes.
func peekCast(in io.Reader) (io.Reader, bool, error) {
	head := make([]byte, 16)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, false, fmt.Errorf("reading what to import: %w", err)
	}
	return io.MultiReader(bytes.NewReader(head[:n]), in), archive.IsAsciicast(head[:n]), nil
}

func (a *app) printImport(s archive.Summary) error {
	if a.json {
		return a.printJSON("import", s)
	}
	for _, id := range s.Sessions {
		state := ""
		if slices.Contains(s.Open, id) {
			state = "  (had not ended: import it again later for the rest)"
		}
		if _, err := fmt.Fprintf(a.out, "%s%s\n", id, state); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.out, "%d messages are new, %d were here\n", s.Appended, s.Present)
	return err
}
