package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// screen is the terminal that the output goes to, and its width; false where it
// goes elsewhere.
func (a *app) screen() (width int, ok bool) {
	f, isFile := a.out.(*os.File)
	if !isFile || !term.IsTerminal(f.Fd()) {
		return 0, false
	}
	width, _, err := term.GetSize(f.Fd())
	return width, err == nil && width > 0
}

// notOnScreen refuses to print on a terminal what nobody can read there.
func (a *app) notOnScreen(what string) error {
	if _, ok := a.screen(); ok {
		return usageError{errors.New(what + " is not for a terminal: name a file with -o, or redirect")}
	}
	return nil
}

// A fitter cuts lines to a width.
type fitter struct {
	w     io.Writer
	width int
	part  []byte // of a line that has not ended
}

// Write prints the lines that end in p.
func (f *fitter) Write(p []byte) (int, error) {
	f.part = append(f.part, p...)
	for {
		line, rest, ended := bytes.Cut(f.part, []byte("\n"))
		if !ended {
			return len(p), nil
		}
		f.part = rest
		if _, err := fmt.Fprintln(f.w, ansi.Truncate(string(line), f.width, "…")); err != nil {
			return 0, fmt.Errorf("printing: %w", err)
		}
	}
}
