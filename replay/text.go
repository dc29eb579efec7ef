package replay

import (
	"bytes"
	"fmt"
	"io"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// TextWriter writes frames as text. It is not safe for concurrent use.
type TextWriter struct {
	// W gets the text.
	W io.Writer
	// Labelled writes every line behind the name of its execution, and the
	// lifecycle between the lines. Otherwise the output is written as it is and
	// nothing else: that is for one execution.
	Labelled bool

	labels map[string]string
	// open is the execution whose line was begun and not ended.
	open string
}

// WriteFrame writes a frame.
func (w *TextWriter) WriteFrame(f Frame) error {
	out, isOutput := f.Body.(events.Output)
	switch {
	case isOutput && !w.Labelled:
		_, err := w.W.Write(out.Data)
		return err
	case isOutput:
		return w.lines(f.Subject, out.Data)
	case !w.Labelled:
		return nil
	}
	if r, ok := f.Body.(events.Requested); ok {
		if w.labels == nil {
			w.labels = map[string]string{}
		}
		w.labels[f.Subject] = projections.ShortLabel(f.Subject, r)
	}
	line := projections.Line(f.Event)
	if line == "" {
		return nil
	}
	if err := w.end(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w.W, "%s%s\n", w.label(f.Execution()), line)
	return err
}

// lines writes output, each line labelled. A line that another execution
// interrupts goes on behind a label of its own.
func (w *TextWriter) lines(execution string, data []byte) error {
	if w.open != execution {
		if err := w.end(); err != nil {
			return err
		}
	}
	var buf bytes.Buffer
	for line := range bytes.Lines(data) {
		if w.open == "" {
			buf.WriteString(w.label(execution))
		}
		buf.Write(line)
		w.open = execution
		if line[len(line)-1] == '\n' {
			w.open = ""
		}
	}
	_, err := w.W.Write(buf.Bytes())
	return err
}

// end ends a line that was begun.
func (w *TextWriter) end() error {
	if w.open == "" {
		return nil
	}
	w.open = ""
	_, err := io.WriteString(w.W, "\n")
	return err
}

func (w *TextWriter) label(execution string) string {
	if execution == "" {
		return ""
	}
	label, ok := w.labels[execution]
	if !ok {
		label = projections.ShortLabel(execution, events.Requested{})
	}
	return "[" + label + "] "
}

// Close ends the last line.
func (w *TextWriter) Close() error { return w.end() }
