package look

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Mark is the state of an execution as people see it: one word and one sign,
// so that nothing is told by colour alone.
type Mark struct {
	// Word is queued, running, stopping, completed, failed, stopped, timed out,
	// lost or refused.
	Word string
	// Sign is the word in one character.
	Sign string
	// Class is the word as a CSS class or a map key: one word, no space.
	Class string
}

// The marks.
var (
	MarkQueued    = Mark{"queued", "○", "queued"}
	MarkRunning   = Mark{"running", "●", "running"}
	MarkStopping  = Mark{"stopping", "◐", "stopping"}
	MarkCompleted = Mark{"completed", "✓", "completed"}
	MarkFailed    = Mark{"failed", "✕", "failed"}
	MarkStopped   = Mark{"stopped", "■", "stopped"}
	MarkTimedOut  = Mark{"timed out", "◷", "timed-out"}
	MarkLost      = Mark{"lost", "!", "lost"}
	MarkRefused   = Mark{"refused", "⊘", "refused"}
)

// MarkOf is the mark of an execution.
func MarkOf(p projections.Process) Mark {
	switch {
	case p.Refused != nil:
		return MarkRefused
	case p.Settled != nil:
		return markOfEnd(*p.Settled)
	case p.State == projections.StateQueued:
		return MarkQueued
	case p.State == projections.StateStopping:
		return MarkStopping
	}
	return MarkRunning
}

func markOfEnd(s events.Settled) Mark {
	if s.Status == events.StatusLost {
		return MarkLost
	}
	switch projections.Word(s) {
	case projections.WordFailed:
		return MarkFailed
	case projections.WordStopped:
		return MarkStopped
	case projections.WordTimedOut:
		return MarkTimedOut
	}
	return MarkCompleted
}

// Trouble reports whether the mark deserves a look: the command did not do
// what it was asked to. A stop is neutral.
func (m Mark) Trouble() bool {
	return m == MarkFailed || m == MarkTimedOut || m == MarkLost || m == MarkRefused
}

// quietAfter is the silence after which a running command is said to be quiet.
const quietAfter = time.Minute

// Row is one execution in one line: the same row everywhere.
type Row struct {
	ID, Session, Owner string
	Mark               Mark
	// Title is its name, or its command if it has none; Command is the command
	// on one line, or "" if that is the title.
	Title, Command string
	Monitor        bool
	Live           bool
	Yielded        bool
	// Since is when it was asked for or began to run, and Took how long it ran:
	// 0 while it is live.
	Since time.Time
	Ended time.Time
	Took  time.Duration
	// Ran says that it was started.
	Ran bool
	// Note is a fact beside the state: its exit code, its place in the queue,
	// or that it has been quiet.
	Note string
	// Last is the last lines of output, already harmless.
	Last []string
	Size int64
}

// NewRow is the row of an execution as of a moment.
func NewRow(p projections.Process, now time.Time) Row {
	r := Row{
		ID: p.Execution, Session: p.Session, Owner: OneLine(p.Owner), Mark: MarkOf(p),
		Title: OneLine(p.Requested.Name), Command: OneLine(p.Requested.Command),
		Monitor: p.Requested.Monitor, Live: p.Live(), Yielded: p.Yielded,
		Since: p.RequestedAt, Ended: p.EndedAt, Took: p.Duration(), Size: p.Offset,
	}
	if r.Title == "" {
		r.Title, r.Command = r.Command, ""
	}
	if !p.SpawnedAt.IsZero() {
		r.Since, r.Ran = p.SpawnedAt, true
	}
	r.Note = note(p, now)
	return r
}

func note(p projections.Process, now time.Time) string {
	switch {
	case p.Refused != nil:
		return OneLine(p.Refused.Message)
	case p.Settled != nil:
		return endNote(*p.Settled)
	case p.State == projections.StateQueued:
		return "waits for its lane"
	}
	last := p.LastOutputAt
	if last.IsZero() {
		last = p.SpawnedAt
	}
	if quiet := now.Sub(last); !last.IsZero() && quiet >= quietAfter {
		return "quiet for " + strings.TrimSuffix(Duration(quiet.Truncate(time.Minute)), " 00s")
	}
	return ""
}

// endNote is the fact behind an end, such as "exit 3" or "signal KILL".
func endNote(s events.Settled) string {
	switch s.Termination {
	case events.TermOutputLimit:
		return "output limit"
	case events.TermStalled:
		return "ledger stalled"
	case events.TermSpawnFailed:
		return "could not start"
	case events.TermSessionEnded:
		return "session ended"
	case events.TermOwnerStopped:
		return "owner stopped"
	case events.TermCancelled:
		return "cancelled"
	}
	switch {
	case s.Outcome == events.OutcomeNoMatch, s.Outcome == events.OutcomeDifferent, s.Outcome == events.OutcomeFalse:
		return strings.ReplaceAll(string(s.Outcome), "-", " ")
	case s.Signal != "":
		return OneLine(s.Signal)
	case s.ExitCode != nil && (*s.ExitCode != 0 || s.Outcome == events.OutcomeSuccess):
		return "exit " + strconv.Itoa(*s.ExitCode)
	}
	return ""
}

// Fact is one line of an inspector: a name and a value, both harmless.
type Fact struct {
	Name, Value string
	// At is set when the value is a moment.
	At time.Time
}

// Inspector is everything about one execution apart from its output.
type Inspector struct {
	Row
	// FullCommand is the command as it was asked for, its lines kept.
	FullCommand string
	Facts       []Fact
	// Breadcrumb is its completion line, or "".
	Breadcrumb string
	LearnedAt  time.Time
	LearnedBy  string
	Mail       []Mail
	Anomalies  []string
	TTY        *events.Size
	// Seq is that of its request: its place in the transcript.
	Seq uint64
}

// NewInspector is the inspector of an execution as of a moment.
func NewInspector(p projections.Process, crumb *projections.Breadcrumb, mail []projections.Record, now time.Time) Inspector {
	in := Inspector{
		Row: NewRow(p, now), FullCommand: Text([]byte(p.Requested.Command)), Facts: facts(p),
		TTY: p.Requested.TTY, Seq: p.RequestedSeq,
	}
	for _, a := range p.Anomalies {
		in.Anomalies = append(in.Anomalies, OneLine(a))
	}
	if crumb != nil {
		in.Breadcrumb, in.LearnedAt, in.LearnedBy = OneLine(crumb.Text), crumb.LearnedAt, OneLine(crumb.LearnedBy)
	}
	for _, r := range mail {
		if r.Execution == p.Execution {
			in.Mail = append(in.Mail, NewMail(r))
		}
	}
	return in
}

// facts lists what is known, in the order of the execution's life.
func facts(p projections.Process) []Fact {
	f := []Fact{{Name: "asked", At: p.RequestedAt}, {Name: "in", Value: OneLine(p.Requested.Cwd)}}
	add := func(name, value string) {
		if value != "" {
			f = append(f, Fact{Name: name, Value: OneLine(value)})
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			f = append(f, Fact{Name: name, At: t})
		}
	}
	add("effects", strings.Join(p.Requested.SideEffects, ", "))
	add("environment", strings.Join(p.Requested.Env, ", "))
	at("started", p.SpawnedAt)
	if p.PID != 0 {
		add("process", strconv.Itoa(p.PID))
	}
	at("yielded", p.YieldedAt)
	at("ended", p.EndedAt)
	if p.Requested.TimeoutMS > 0 {
		add("time limit", Duration(time.Duration(p.Requested.TimeoutMS)*time.Millisecond))
	}
	add("output", outputFact(p))
	if p.Refused != nil {
		add("refused", p.Refused.Message)
	}
	return append(f, endFacts(p.Settled)...)
}

// Grow corrects the length of a live execution's output by what was read of it.
func (in *Inspector) Grow(end int64) {
	if !in.Live || end <= in.Size {
		return
	}
	in.Size = end
	for i := range in.Facts {
		if in.Facts[i].Name == "output" {
			in.Facts[i].Value = Bytes(end)
		}
	}
}

func outputFact(p projections.Process) string {
	parts := []string{}
	for _, s := range []struct {
		name string
		n    int64
	}{{"stdout", p.StdoutBytes}, {"stderr", p.StderrBytes}, {"terminal", p.TTYBytes}} {
		if s.n > 0 {
			parts = append(parts, Bytes(s.n)+" "+s.name)
		}
	}
	if p.StdoutBytes+p.StderrBytes+p.TTYBytes < p.Offset {
		return Bytes(p.Offset) // followed from somewhere in the middle
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func endFacts(s *events.Settled) []Fact {
	if s == nil {
		return nil
	}
	var f []Fact
	end := OneLine(string(s.Termination)) + ", " + OneLine(string(s.Outcome))
	if s.ExitCode != nil {
		end += ", exit code " + strconv.Itoa(*s.ExitCode)
	}
	f = append(f, Fact{Name: "end", Value: end})
	if s.CutOff {
		f = append(f, Fact{Name: "cut off", Value: "a descendant still held the output when it was closed"})
	}
	for _, d := range s.Descendants {
		f = append(f, Fact{Name: "outlived by", Value: fmt.Sprintf("%s (%d)", OneLine(d.Name), d.PID)})
	}
	if s.Error != "" {
		f = append(f, Fact{Name: "error", Value: OneLine(s.Error)})
	}
	return f
}

// Mail is one mailbox record.
type Mail struct {
	ID, Owner, Kind, Notice string
	Execution               string
	At                      time.Time
	// Read is when and By how it reached its owner; zero while it waits.
	Read        time.Time
	By          string
	Redelivered bool
}

// NewMail is the view of a record.
func NewMail(r projections.Record) Mail {
	return Mail{
		ID: r.ID, Owner: OneLine(r.Owner), Kind: OneLine(string(r.Mail)), Notice: OneLine(r.Notice), Execution: r.Execution,
		At: r.At, Read: r.AcknowledgedAt, By: OneLine(r.By), Redelivered: r.Redelivered,
	}
}
