package producers

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/yieldlog/yieldlog/events"
)

// maxNesting bounds the brackets of a command that is parsed: the parser
// recurses, and a stack that is used up cannot be recovered from.
const maxNesting = 10_000

// hasBackground reports whether the command starts something in the background
// with the shell's own means: & or coproc. A text that does not parse as bash may
// be good for a plainer shell; one that no shell takes is left to the shell, apart
// from what precedes the error.
func hasBackground(command string) (found bool) {
	if !strings.Contains(command, "&") && !strings.Contains(command, "coproc") {
		return false
	}
	for _, l := range []syntax.LangVariant{syntax.LangBash, syntax.LangPOSIX} {
		whole := eachStatement(command, l, func(s *syntax.Stmt) bool {
			syntax.Walk(s, func(n syntax.Node) bool {
				switch n := n.(type) {
				case *syntax.Stmt:
					found = found || n.Background
				case *syntax.CoprocClause:
					found = true
				}
				return !found
			})
			return !found
		})
		if whole || found {
			break
		}
	}
	return found
}

// eachStatement calls fn for each statement of the command, in one of the shells'
// languages, until fn returns false. It reports whether the whole text was parsed.
func eachStatement(command string, l syntax.LangVariant, fn func(*syntax.Stmt) bool) (whole bool) {
	if strings.Count(command, "(")+strings.Count(command, "{")+strings.Count(command, "`") > maxNesting {
		return false
	}
	defer func() {
		if recover() != nil { // a bug in the parser must not decide over a command
			whole = false
		}
	}()
	for s, err := range syntax.NewParser(syntax.Variant(l)).StmtsSeq(strings.NewReader(command)) {
		if err != nil {
			return false
		}
		if !fn(s) {
			return true
		}
	}
	return true
}

// exitOne is what exit status 1 means for programs that use it as an answer.
var exitOne = map[string]events.Outcome{
	"grep": events.OutcomeNoMatch, "egrep": events.OutcomeNoMatch, "fgrep": events.OutcomeNoMatch,
	"rg": events.OutcomeNoMatch, "diff": events.OutcomeDifferent,
	"test": events.OutcomeFalse, "[": events.OutcomeFalse,
}

// programDirs are where these programs are. Elsewhere, as in bin/test, the name is
// another program's.
var programDirs = []string{"", "/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/"}

// resolver is [outcomeOf], but for tests.
var resolver = outcomeOf

// settledOutcome is the meaning of a command's end, whatever becomes of the
// resolver: a bug in that must not keep an execution from being settled.
func settledOutcome(command string, exit *int, term events.Termination) (o events.Outcome) {
	defer func() {
		if recover() != nil {
			o = outcomeOf("", exit, term)
		}
	}()
	return resolver(command, exit, term)
}

// outcomeOf is the meaning of a command's end. Exit status 1 is an answer only
// of a command that is, as a whole, one plain call of a program that answers so.
func outcomeOf(command string, exit *int, term events.Termination) events.Outcome {
	if term != events.TermExited || exit == nil {
		return events.OutcomeFailure
	}
	switch *exit {
	case 0:
		return events.OutcomeSuccess
	case 1:
		dir, name := path.Split(plainCall(command))
		if o, ok := exitOne[name]; ok && slices.Contains(programDirs, dir) {
			return o
		}
	}
	return events.OutcomeFailure
}

// plainCall is the program that the command calls, if it is one simple command
// in which nothing else can set the exit status; otherwise "".
func plainCall(command string) string {
	var stmts []*syntax.Stmt
	if !eachStatement(command, syntax.LangBash, func(s *syntax.Stmt) bool { stmts = append(stmts, s); return len(stmts) < 2 }) || len(stmts) != 1 {
		return ""
	}
	s := stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || s.Negated || s.Background {
		return ""
	}
	for _, r := range s.Redirs {
		to := r.Word.Lit()
		open := (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && (to == "0" || to == "1" || to == "2")
		if to != "/dev/null" && !open {
			return ""
		}
	}
	for _, a := range call.Assigns {
		if a.Value != nil && !plain(a.Value.Parts) {
			return ""
		}
	}
	for _, w := range call.Args {
		if !plain(w.Parts) {
			return ""
		}
	}
	return call.Args[0].Lit()
}

// plain reports whether a word's expansion cannot fail: text and plain variables.
func plain(parts []syntax.WordPart) bool {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			if !plain(p.Parts) {
				return false
			}
		case *syntax.ParamExp:
			if p.Excl || p.Exp != nil || p.Repl != nil || p.Slice != nil || p.Index != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}
