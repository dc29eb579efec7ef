package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/report"
)

func newReport(a *app) *cobra.Command {
	var out, format string
	c := &cobra.Command{
		Use:   "report [SESSION]",
		Short: "Make one file of a session: what it did, and what went wrong first",
		Long: `Make a report of a session, or of the newest one: a summary, a drawn timeline,
what went wrong first, the transcript with its breadcrumbs, outputs that expand,
and recordings that play. The HTML is one file that opens without a network and
prints well.

  yieldlog report 7CD8KC1Y -o night.html
  yieldlog report 7CD8KC1Y -o night.md`,
		Annotations:       map[string]string{onlyText: "`yieldlog export --format jsonl` has the facts"},
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			write, err := reportFormat(format, out)
			if err != nil {
				return usageError{err}
			}
			if out == "" && format != "markdown" && format != "md" {
				if err := a.notOnScreen("HTML"); err != nil {
					return err
				}
			}
			return a.reading(c.Context(), func(l *ledger.Ledger) error {
				f, err := a.selectRecording(c.Context(), l, args)
				if err != nil {
					return err
				}
				r, err := report.Make(c.Context(), l, f.Session, time.Now())
				if err != nil {
					return err
				}
				return a.writeFile(cmp.Or(out, "-"), func(w io.Writer) error { return write(r, w) })
			})
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "write to this file, not to stdout")
	c.Flags().StringVar(&format, "format", "", "html or markdown (default: by the file's name, else html)")
	completeWith(c, "format", "html", "markdown")
	return c
}

// reportFormat chooses how the report is written.
func reportFormat(format, out string) (func(*report.Report, io.Writer) error, error) {
	if format == "" {
		format = map[string]string{".md": "markdown", ".markdown": "markdown"}[strings.ToLower(filepath.Ext(out))]
	}
	switch format {
	case "", "html":
		return (*report.Report).HTML, nil
	case "markdown", "md":
		return (*report.Report).Markdown, nil
	}
	return nil, fmt.Errorf("no format is called %q: html or markdown", format)
}
