package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/replay/look"
)

// Markdown writes the report as Markdown. Whatever a command was called or
// printed stands in code, from which it cannot break out.
func (r *Report) Markdown(w io.Writer) error {
	b := bufio.NewWriter(w)
	s := r.Session
	title := "Session " + look.Short(s.ID)
	fmt.Fprintf(b, "# %s\n\n", title)
	fmt.Fprintf(b, "%s in %s on %s, %s, %s, %s.\n\n", code(s.Client), code(s.Cwd), code(s.Host),
		s.From.Local().Format("Monday, 2 January 2006, 15:04 MST"), look.Duration(s.Took), s.State)
	fmt.Fprint(b, "| commands | failed | timed out | stopped | completed | running | refused |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	fmt.Fprintf(b, "| %d | %d | %d | %d | %d | %d | %d |\n", s.Executions, s.Failed, s.TimedOut, s.Stopped, s.Completed, s.Running, s.Refused)
	if len(r.Trouble) > 0 {
		fmt.Fprint(b, "\n## What needs a look\n")
		for _, c := range r.Trouble {
			c.markdown(b)
		}
	}
	fmt.Fprint(b, "\n## Transcript\n\n| time | | what | owner | took |\n| --- | --- | --- | --- | --- |\n")
	for _, row := range r.Rows {
		row.markdown(b)
	}
	fmt.Fprintf(b, "\nSession %s, made %s from the ledger of yieldlog.\n", code(s.ID), r.Made.UTC().Format(time.RFC3339))
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func (c *Call) markdown(b *bufio.Writer) {
	fmt.Fprintf(b, "\n### %s %s\n\n%s", c.Mark.Sign, code(c.Title), c.Mark.Word)
	if c.Note != "" {
		fmt.Fprintf(b, ", %s", code(c.Note))
	}
	if c.Took > 0 {
		fmt.Fprintf(b, ", %s", look.Duration(c.Took))
	}
	fmt.Fprintf(b, ", by %s at %s\n\n", code(c.Owner), c.Since.Local().Format("15:04:05"))
	if c.Command != "" {
		fmt.Fprint(b, fence("sh", c.FullCommand))
	}
	if n := c.Pruned(); n > 0 {
		fmt.Fprintf(b, "\n%s were pruned\n", look.Bytes(n))
	}
	if c.Shown() {
		text := c.Head.Text()
		if c.Omitted > 0 {
			text += fmt.Sprintf("\n… %s left out …\n", look.Bytes(c.Omitted))
		}
		fmt.Fprint(b, "\n"+fence("text", text+c.Tail.Text()))
	}
}

func (r Row) markdown(b *bufio.Writer) {
	at := r.At.Local().Format("15:04:05")
	if r.Call == nil {
		fmt.Fprintf(b, "| %s | | %s | %s | |\n", at, cell(r.Text), cell(r.Who))
		return
	}
	c := r.Call
	what := cell(c.Title)
	if c.Command != "" {
		what += " " + cell(c.Command)
	}
	if c.Breadcrumb != "" {
		what += "<br>" + cell(c.Breadcrumb)
	}
	took := ""
	if c.Took > 0 { // 0 while it runs
		took = look.Duration(c.Took)
	}
	fmt.Fprintf(b, "| %s | %s %s | %s | %s | %s |\n", at, c.Mark.Sign, c.Mark.Word, what, cell(c.Owner), took)
}

// cell is code in a table, where a bar ends the cell even in code.
func cell(s string) string {
	if s == "" {
		return ""
	}
	return code(strings.ReplaceAll(s, "|", "¦"))
}

// code is text between more backticks than it holds in a row.
func code(s string) string {
	if s == "" {
		return "—"
	}
	marks := strings.Repeat("`", longest(s)+1)
	return marks + " " + s + " " + marks
}

// fence is a block of code between longer fences than it holds.
func fence(language, text string) string {
	marks := strings.Repeat("`", max(longest(text)+1, 3))
	return marks + language + "\n" + strings.TrimRight(text, "\n") + "\n" + marks + "\n"
}

// longest is the length of the longest run of backticks.
func longest(s string) (n int) {
	run := 0
	for _, r := range s {
		if r != '`' {
			run = 0
			continue
		}
		run++
		n = max(n, run)
	}
	return n
}
