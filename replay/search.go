package replay

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Query says what to search for and where. The zero value of a field but
// Pattern selects everything.
type Query struct {
	// Pattern is a regular expression (RE2); it matches within a line. With
	// Literal it is the text itself, and with IgnoreCase case does not count.
	Pattern             string
	Literal, IgnoreCase bool

	Session, Owner, Execution string
	// Since and Until bound when a command was asked for, or a line written.
	Since, Until time.Time
	// Outcome is how the execution ended, one of Outcomes: an outcome, a status,
	// or the word of its notice, such as failed.
	Outcome string

	// Context is the number of lines to show before and after each match.
	Context int
	// NewestFirst goes through the executions from the newest; otherwise from
	// the oldest.
	NewestFirst bool
}

// Outcomes are the words that Query.Outcome may have: what a command's end
// meant, and its status.
var Outcomes = []string{
	string(events.OutcomeSuccess), string(events.OutcomeFailure), string(events.OutcomeNoMatch),
	string(events.OutcomeDifferent), string(events.OutcomeFalse),
	string(events.StatusRunning), string(events.StatusCompleted), string(events.StatusFailed),
	string(events.StatusStopped), string(events.StatusTimedOut), string(events.StatusLost),
}

// Match is one line that matches: of an output, or of a command.
type Match struct {
	Session   string    `json:"session"`
	Owner     string    `json:"owner"`
	Execution string    `json:"execution"`
	At        time.Time `json:"at"`
	// Stream is the output kind, and "" for the command text.
	Stream events.Kind `json:"stream,omitempty"`
	// Line is the line's number in its stream, from 1, and Offset where it
	// begins in the execution's output.
	Line   int64 `json:"line"`
	Offset int64 `json:"offset"`
	// Text is the line without its end, and Start and End bound the match in
	// it. Of a very long line it is the part around the match.
	Text   string   `json:"text"`
	Start  int      `json:"start"`
	End    int      `json:"end"`
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
	// BeforeAt and AfterAt say where those lines begin in the output.
	BeforeAt []int64 `json:"-"`
	AfterAt  []int64 `json:"-"`
}

// Address says where the match is: EXECUTION, or EXECUTION@OFFSET in an output.
func (m Match) Address() string {
	if m.Stream == "" {
		return m.Execution
	}
	return m.Execution + "@" + strconv.FormatInt(m.Offset, 10)
}

// Search goes through the recorded commands and output and yields each line
// that matches, also one that was written in pieces. It reads as it goes, with
// memory that does not grow with the output, and stops when the caller does.
func Search(ctx context.Context, src Recording, q Query) iter.Seq2[Match, error] {
	return func(yield func(Match, error) bool) {
		m, err := newMatcher(q)
		if err != nil {
			yield(Match{}, err)
			return
		}
		found, err := q.executions(ctx, src)
		if err != nil {
			yield(Match{}, err)
			return
		}
		for _, p := range found {
			s := searcher{query: q, matcher: m, process: p, yield: func(m Match) bool { return yield(m, nil) }}
			if err := s.run(ctx, src); err != nil {
				if !errors.Is(err, errEnough) {
					yield(Match{}, err)
				}
				return
			}
		}
	}
}

// errEnough says that the caller wants no more.
var errEnough = errors.New("enough")

// executions are those to look at.
func (q Query) executions(ctx context.Context, src Recording) ([]projections.Process, error) {
	all := projections.NewProcesses()
	for e, err := range src.Read(ctx, events.Filter{Session: q.Session, Class: events.ClassExecution, ID: q.Execution}, 1, 0) {
		if err != nil {
			return nil, fmt.Errorf("searching: %w", err)
		}
		all.Apply(e)
	}
	var list []projections.Process
	for p := range all.Everything() {
		if q.selects(p) {
			list = append(list, p)
		}
	}
	if q.NewestFirst {
		slices.Reverse(list)
	}
	return list, nil
}

func (q Query) selects(p projections.Process) bool {
	switch {
	case q.Owner != "" && p.Owner != q.Owner,
		!q.Until.IsZero() && p.RequestedAt.After(q.Until),
		!q.Since.IsZero() && !p.EndedAt.IsZero() && p.EndedAt.Before(q.Since):
		return false
	case q.Outcome == "":
		return true
	case p.Settled == nil:
		return q.Outcome == string(p.Status)
	}
	s := p.Settled
	return q.Outcome == string(s.Outcome) || q.Outcome == string(s.Status) || q.Outcome == strings.ReplaceAll(projections.Word(*s), " ", "_")
}

// within reports whether a line's time is asked for.
func (q Query) within(at time.Time) bool {
	return (q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || !at.After(q.Until))
}

// searcher goes through one execution.
type searcher struct {
	query   Query
	matcher matcher
	process projections.Process
	yield   func(Match) bool
	streams map[events.Kind]*lineSearch
	err     error
}

func (s *searcher) run(ctx context.Context, src Outputs) error {
	command := s.lines("", s.process.RequestedAt)
	command.write([]byte(s.process.Requested.Command), 0)
	command.close()
	s.streams = map[events.Kind]*lineSearch{}
	for e, err := range src.Output(ctx, s.process.Session, s.process.Execution, 0, -1) {
		if err != nil {
			return fmt.Errorf("searching the output of %s: %w", s.process.Execution, err)
		}
		out, ok := e.Body.(events.Output)
		if !ok {
			continue
		}
		l := s.streams[out.Stream]
		if l == nil {
			l = s.lines(out.Stream, e.Time)
			s.streams[out.Stream] = l
		}
		l.at = e.Time
		if l.write(out.Data, out.Offset); s.err != nil {
			return s.err
		}
	}
	for _, k := range streams {
		if l := s.streams[k]; l != nil {
			l.close()
		}
	}
	return s.err
}

func (s *searcher) lines(stream events.Kind, at time.Time) *lineSearch {
	return &lineSearch{matcher: s.matcher, stream: stream, at: at, context: s.query.Context, found: s.found}
}

// found passes a match on. false means that the caller has enough.
func (s *searcher) found(m Match) bool {
	if s.err != nil {
		return false
	}
	if !s.query.within(m.At) {
		return true
	}
	m.Session, m.Owner, m.Execution = s.process.Session, s.process.Owner, s.process.Execution
	if !s.yield(m) {
		s.err = errEnough
	}
	return s.err == nil
}
