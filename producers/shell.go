package producers

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/yieldlog/yieldlog/events"
)

// maxNesting bounds the brackets of a command that is parsed: the parser
// recurses, and a stack that is used up cannot be recovered from.
const maxNesting = 10_000

// hasBackground reports whether the command starts something in the background
// with the shell's own means: & or coproc. A text that does not parse is left to the
// shell, apart from what precedes the error.
func hasBackground(command string) (found bool) {
	if !strings.Contains(command, "&") && !strings.Contains(command, "coproc") {
		return false
	}
	eachStatement(command, func(s *syntax.Stmt) bool {
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
	return found
}

// eachStatement calls fn for each statement of the command until fn returns
// false. It reports whether the whole text was parsed.
func eachStatement(command string, fn func(*syntax.Stmt) bool) (whole bool) {
	if strings.Count(command, "(")+strings.Count(command, "{")+strings.Count(command, "`") > maxNesting {
		return false
	}
	defer func() {
		if recover() != nil { // a bug in the parser must not decide over a command
			whole = false
		}
	}()
	for s, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).StmtsSeq(strings.NewReader(command)) {
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
		if o, ok := exitOne[path.Base(plainCall(command))]; ok {
			return o
		}
	}
	return events.OutcomeFailure
}

// plainCall is the program that the command calls, if it is one simple command
// in which nothing else can set the exit status; otherwise "".
func plainCall(command string) string {
	var stmts []*syntax.Stmt
	if !eachStatement(command, func(s *syntax.Stmt) bool { stmts = append(stmts, s); return len(stmts) < 2 }) || len(stmts) != 1 {
		return ""
	}
	s := stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 || s.Negated || s.Background {
		return ""
	}
	for _, r := range s.Redirs {
		if to := r.Word.Lit(); to != "/dev/null" && r.Op != syntax.DplOut && r.Op != syntax.DplIn {
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
			if p.Exp != nil || p.Repl != nil || p.Slice != nil || p.Index != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}
