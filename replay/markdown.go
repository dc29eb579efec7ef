package replay

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// previewBytes is how much of each stream a report shows.
const previewBytes = 4 << 10

// WriteMarkdown writes the session or execution that the filter selects as a
// report for people: each call with its command, its end and the beginning and
// end of its output. to is the last lifecycle sequence that counts; 0 is all.
func WriteMarkdown(ctx context.Context, w io.Writer, src Recording, f events.Filter, to uint64) error {
	m := reporter{ctx: ctx, w: w, src: src, processes: projections.NewProcesses()}
	sessions, transcript := projections.NewSessions(), projections.NewTranscript(f.Session)
	for e, err := range src.Read(ctx, f, 1, to) {
		if err != nil {
			return fmt.Errorf("reading the history: %w", err)
		}
		for _, fold := range []projections.Fold{m.processes, sessions, transcript} {
			fold.Apply(e)
		}
	}
	if f.ID == "" {
		for _, s := range sessions.List() {
			m.session(s)
		}
	}
	for _, row := range transcript.Rows("") {
		m.row(row)
	}
	return m.err
}

// reporter writes a report. Its first error stays, and ends it.
type reporter struct {
	ctx       context.Context
	w         io.Writer
	src       Recording
	processes *projections.Processes
	err       error
}

func (m *reporter) printf(format string, args ...any) {
	if m.err == nil {
		if _, err := fmt.Fprintf(m.w, format, args...); err != nil {
			m.err = fmt.Errorf("writing the report: %w", err)
		}
	}
}

func (m *reporter) session(s projections.Session) {
	m.printf("# Session %s\n\n", s.ID)
	client := ""
	if s.Opened.Client != "" {
		client = " for " + code(s.Opened.Client)
	}
	m.printf("Opened %s by %s %s%s in %s on %s. ", clock(s.At), s.Opened.Program, s.Opened.Version, client, code(s.Opened.Cwd), s.Opened.Host)
	if s.State == projections.SessionOpen {
		m.printf("Still open. ")
	} else {
		m.printf("%s %s: %s. ", s.State, clock(s.EndedAt), s.Reason)
	}
	m.printf("%d executions: %d completed, %d failed, %d stopped, %d timed out, %d running; %d refused.\n\n",
		s.Executions, s.Completed, s.Failed, s.Stopped, s.TimedOut, s.Running, s.Refused)
	for _, a := range s.Anomalies {
		m.printf("> Anomaly: %s\n\n", a)
	}
}

func (m *reporter) row(r projections.Row) {
	switch {
	case r.Kind == projections.RowCall:
		m.call(r)
	case r.Kind != projections.RowSession:
		m.printf("*%s %s (%s)*\n\n", clock(r.At), r.Text, code(r.Execution))
	}
}

func (m *reporter) call(r projections.Row) {
	p, ok := m.processes.Get(r.Execution)
	if !ok {
		return
	}
	m.printf("## %s\n\n", code(strings.Trim(projections.Label(p.Requested), `"`)))
	m.block("sh", p.Requested.Command)
	end := p.State
	switch {
	case p.Refused != nil:
		end = "refused, " + r.Refusal
	case p.Settled != nil:
		end = projections.End(*p.Settled) + " after " + p.Duration().String()
	}
	m.printf("`%s` asked %s by %s in %s; %s.\n\n", p.Execution, clock(p.RequestedAt), p.Owner, code(p.Requested.Cwd), end)
	m.output(p)
	if r.Breadcrumb != nil {
		m.printf("%s\n\n", r.Breadcrumb.Text)
	}
	for _, a := range p.Anomalies {
		m.printf("> Anomaly: %s\n\n", a)
	}
}

func (m *reporter) output(p projections.Process) {
	if m.err != nil || p.SpawnedAt.IsZero() {
		return
	}
	if n := p.PrunedIn(0, -1); n > 0 {
		m.printf("%d bytes were pruned.\n\n", n)
	}
	page, err := ReadPage(m.ctx, m.src, p.Session, p.Execution, PageRequest{HeadTail: true, Limit: previewBytes, Final: true})
	if err != nil {
		m.err = err
		return
	}
	for _, s := range []struct {
		name string
		data []byte
		cut  int
	}{{"stdout", page.Stdout, page.StdoutCut}, {"stderr", page.Stderr, page.StderrCut}, {"terminal", page.TTY, page.TTYCut}} {
		if len(s.data) == 0 {
			continue
		}
		m.printf("%s:\n\n", s.name)
		if s.cut == 0 {
			m.block("", Plain(s.data))
			continue
		}
		m.block("", Plain(s.data[:s.cut]))
		m.block("", Plain(s.data[s.cut:]))
	}
	if page.OmittedBytes > 0 {
		m.printf("%d bytes between offsets %d and %d are not shown.\n\n", page.OmittedBytes, page.OmittedFrom, page.OmittedTo)
	}
}

// block is a fenced block whose fence is longer than any run of backticks in it.
func (m *reporter) block(language, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	m.printf("%s%s\n%s\n%s\n\n", fence, language, strings.TrimSuffix(text, "\n"), fence)
}

// code is a code span of one line.
func code(s string) string {
	s = strings.ReplaceAll(s, "`", "'")
	if s == "" {
		return "``` ```"
	}
	return "`" + s + "`"
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }
