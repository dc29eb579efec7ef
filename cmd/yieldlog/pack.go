package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look"
)

func newPack(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "pack",
		Short: "Store the output of ended executions small, and give the disk back",
		Long: `Rewrite output that was written in small pieces into full, compressed ones. Every
byte keeps its place and its time, and whoever reads meanwhile sees no
difference. What running executions share a segment with waits. The host does
the same by itself, when a segment is full.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.writing(c.Context(), func(l *ledger.Ledger) error {
				r, err := l.Pack(c.Context())
				if err != nil {
					return err
				}
				return a.printPacked(r)
			})
		},
	}
}

func (a *app) printPacked(r ledger.PackReport) error {
	if a.json {
		return a.printJSON("packed", r)
	}
	_, err := fmt.Fprintf(a.out, "packed %s, %s into %s; %d waiting for running executions\n", look.Count(len(r.Segments), "segment"), look.Bytes(r.Before), look.Bytes(r.After), len(r.Waiting))
	return err
}
