package producers

import (
	"strings"
	"testing"

	"github.com/yieldlog/yieldlog/events"
)

func TestM48_BackgroundOperators(t *testing.T) {
	refused := []string{
		"sleep 1 &", "a & b & wait", "(sleep 1 &)", "{ sleep 1 & }", "nohup sleep 1 >/dev/null 2>&1 &",
		"x=$(sleep 1 & echo)", "x=`sleep 1 &`", "if true; then sleep 1 & fi", "f() { sleep 1 & }; f",
		"a && b &", "coproc cat", "echo \"$(sleep 1 &)\"", "diff <(sleep 1 &) b",
		"cat <<EOF\n$(sleep 1 &)\nEOF\n", "for i in 1 2; do sleep 1 & done",
		"sleep 9 &\nif then (", // the shell runs the first line before it sees the error
		"sleep 1 & # why not", "setsid sleep 1&",
		"((sleep 1 & true))", "function & true", // for sh
	}
	for _, c := range refused {
		if !hasBackground(c) {
			t.Errorf("passes: %q", c)
		}
	}
	passed := []string{
		"a && b", "a 2>&1", "a >&2", "a &> f", "a &>> f", "a |& b", "echo '&'", `echo "a & b"`, `echo a\&b`,
		"# a & b", "cat <<'EOF'\na & b $(c &)\nEOF\n", "echo $((a&b))", "((a & b))", "curl 'http://x/?a=1&b=2'",
		"[[ a && b ]]", "exec 3<&0", "x='a & b'; echo $x", "", "echo <<EOF\na & b\nEOF\n", "sed 's/a/&/'",
		"this does ( not parse &", "coprocess", "sh -c 'sleep 1 &'",
	}
	for _, c := range passed {
		if hasBackground(c) {
			t.Errorf("refused: %q", c)
		}
	}
}

func TestM138_DeepNestingIsLeftToTheShell(t *testing.T) {
	for _, open := range []string{"(", "$(", "{ ", "`", "${x:-", "$((", "((", "[[ ! ", "if ", "! ", "\"$(", "case x in x) ", "while ", "f() { ", "(a="} {
		c := strings.Repeat(open, maxArgument/len(open)) + "&"
		hasBackground(c)
		outcomeOf(c, new(1), events.TermExited)
	}
}

func TestM122_Outcome(t *testing.T) {
	for _, c := range []struct {
		command string
		exit    int
		want    events.Outcome
	}{
		{"true", 0, events.OutcomeSuccess},
		{"grep x f", 1, events.OutcomeNoMatch},
		{"LC_ALL=C /usr/bin/grep -c \"$x\" f 2>/dev/null", 1, events.OutcomeNoMatch},
		{"rg x 2>&1", 1, events.OutcomeNoMatch},
		{"diff a b", 1, events.OutcomeDifferent},
		{"test 1 = 2", 1, events.OutcomeFalse},
		{"[ 1 = 2 ]", 1, events.OutcomeFalse},
		{"grep x f", 2, events.OutcomeFailure},
		{"! grep x f", 1, events.OutcomeFailure},
		{"grep x f; false", 1, events.OutcomeFailure},
		{"cat f | grep x", 1, events.OutcomeFailure},
		{"grep x < missing", 1, events.OutcomeFailure},
		{"grep $(cat missing) f", 1, events.OutcomeFailure},
		{"grep ${x:?} f", 1, events.OutcomeFailure},
		{"grep x f && true", 1, events.OutcomeFailure},
		{"test", 1, events.OutcomeFalse},
		{"./test", 1, events.OutcomeFailure},
		{"bin/test all", 1, events.OutcomeFailure},
		{"/home/me/bin/diff a b", 1, events.OutcomeFailure},
		{"/usr/bin/diff a b", 1, events.OutcomeDifferent},
		{"grep x f >&9", 1, events.OutcomeFailure}, // bash fails with 1 where that is not open
		{"grep x f >&log", 1, events.OutcomeFailure},
		{"grep ${!name} f", 1, events.OutcomeFailure},
		{"grep x f | cat", 1, events.OutcomeFailure},
		{"grep x f || false", 1, events.OutcomeFailure},
		{"env LC_ALL=C grep x f", 1, events.OutcomeFailure},
		{"grep() { false; }; grep x f", 1, events.OutcomeFailure},
		{"(grep x f)", 1, events.OutcomeFailure},
		{"if grep x f; then :; else false; fi", 1, events.OutcomeFailure},
		{"sh -c 'exit 1'", 1, events.OutcomeFailure},
		{"grep 'x", 1, events.OutcomeFailure},
		{"", 1, events.OutcomeFailure},
	} {
		if got := outcomeOf(c.command, &c.exit, events.TermExited); got != c.want {
			t.Errorf("%q with exit status %d: %s, want %s", c.command, c.exit, got, c.want)
		}
	}
	if got := outcomeOf("grep x f", nil, events.TermSignal); got != events.OutcomeFailure {
		t.Errorf("a killed grep: %s", got)
	}
	if got := outcomeOf("true", new(0), events.TermStopped); got != events.OutcomeFailure {
		t.Errorf("a stopped command: %s", got)
	}
}

func FuzzShell(f *testing.F) {
	f.Add("a & b")
	f.Fuzz(func(t *testing.T, command string) {
		hasBackground(command)
		outcomeOf(command, new(1), events.TermExited)
	})
}
