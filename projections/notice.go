package projections

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/yieldlog/yieldlog/events"
)

// The four words for an end.
const (
	WordCompleted = "completed"
	WordFailed    = "failed"
	WordStopped   = "stopped"
	WordTimedOut  = "timed out"
)

// labelRunes bounds a name in a notice.
const labelRunes = 80

// Word is the notice's word for an end. A bad outcome is a failure; a stop is
// neutral, and so is the loss of the session: neither is the command's own doing.
func Word(s events.Settled) string {
	switch s.Termination {
	case events.TermStopped, events.TermCancelled, events.TermOwnerStopped, events.TermSessionEnded, events.TermLost:
		return WordStopped
	case events.TermTimedOut:
		return WordTimedOut
	case events.TermOutputLimit, events.TermStalled, events.TermSpawnFailed, events.TermSignal:
		return WordFailed
	}
	switch s.Status {
	case events.StatusStopped, events.StatusLost:
		return WordStopped
	case events.StatusTimedOut:
		return WordTimedOut
	case events.StatusFailed:
		return WordFailed
	}
	if s.Outcome == events.OutcomeFailure {
		return WordFailed
	}
	return WordCompleted
}

// Notice is the one line for the end of a command that yielded, such as
//
//	● Background command "Run tests" completed (exit code 0)
//	● Monitor "ticker" stopped · 2 events
//
// It is made of structured facts only, never of output, and names are quoted
// with their control characters escaped: nothing that a command prints or is
// called can forge one. lines counts the lines that a monitor delivered.
func Notice(r events.Requested, s events.Settled, lines int) string {
	line := subject(r) + " " + Word(s) + detail(s)
	if r.Monitor {
		line += " · " + counted(lines, "event")
	}
	return line
}

// BatchNotice is the one line for a batch of a monitor's lines.
func BatchNotice(r events.Requested, lines int) string {
	return subject(r) + " · " + counted(lines, "event")
}

// ResumedNotice is the one line that tells an owner of the commands that its
// session lost.
func ResumedNotice(lost int) string {
	return "● Session resumed · " + counted(lost, "command") + " lost; their effects may be partial"
}

// foldedText is the one line for completions of other owners that follow each
// other, such as
//
//	● 3 completions of other owners: 2 completed, 1 failed
func foldedText(notices []Row) string {
	counts := map[string]int{}
	for _, n := range notices {
		counts[Word(events.Settled{Status: n.Status, Termination: n.Termination, Outcome: n.Outcome})]++
	}
	var parts []string
	for _, word := range []string{WordCompleted, WordFailed, WordStopped, WordTimedOut} {
		if n := counts[word]; n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+word)
		}
	}
	return fmt.Sprintf("● %d completions of other owners: %s", len(notices), strings.Join(parts, ", "))
}

func subject(r events.Requested) string {
	if r.Monitor {
		return "● Monitor " + Label(r)
	}
	return "● Background command " + Label(r)
}

// Label is what an execution is called in one line: its name, or its command
// on one line, cut to a bounded length, quoted, with control and format
// characters escaped.
func Label(r events.Requested) string {
	label := r.Name
	if label == "" {
		label = strings.Join(strings.Fields(r.Command), " ")
	}
	label = strings.ToValidUTF8(label, "\uFFFD")
	if utf8.RuneCountInString(label) > labelRunes {
		label = string([]rune(label)[:labelRunes-1]) + "…"
	}
	return strconv.Quote(label)
}

// detail is the fact behind the word, in brackets.
func detail(s events.Settled) string {
	switch s.Termination {
	case events.TermOutputLimit:
		return " (output limit)"
	case events.TermStalled:
		return " (ledger stalled)"
	case events.TermSpawnFailed:
		return " (could not start)"
	case events.TermLost:
		return " (session lost)"
	}
	switch word := Word(s); {
	case word != WordCompleted && word != WordFailed:
		return ""
	case s.Signal != "":
		return " (signal " + token(s.Signal) + ")"
	case s.ExitCode != nil:
		return " (exit code " + strconv.Itoa(*s.ExitCode) + ")"
	}
	return ""
}

// token is s if it is a plain word, and quoted otherwise.
func token(s string) string {
	for _, r := range s {
		if (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '+' && r != '_' {
			return strconv.Quote(s)
		}
	}
	return s
}

// printable is a character, or its escape if showing it would do something.
func printable(r rune) string {
	if strconv.IsPrint(r) {
		return string(r)
	}
	q := strconv.QuoteRune(r)
	return q[1 : len(q)-1]
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
