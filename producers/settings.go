package producers

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// prefixes are the names under which a setting is looked for, in this order.
var prefixes = []string{"YIELDLOG_", "YIELDSHELL_", "MCP_YIELDSHELL_"}

// loader reads settings one by one and collects what there is to say about them.
type loader struct {
	getenv   func(string) (string, bool)
	settings []Setting
	warnings []string
	err      error
}

// text is the setting's value and the variable that it comes from. An empty
// variable counts as not set.
func (l *loader) text(name string) (value, source string, ok bool) {
	for _, p := range prefixes {
		if v, ok := l.getenv(p + name); ok && v != "" {
			return v, p + name, true
		}
	}
	return "", "default", false
}

// empty is the variable under which the setting is there without a value, or "".
func (l *loader) empty(name string) string {
	for _, p := range prefixes {
		if _, ok := l.getenv(p + name); ok {
			return p + name
		}
	}
	return ""
}

func (l *loader) record(name, value, source string) {
	l.settings = append(l.settings, Setting{Name: prefixes[0] + name, Value: value, Source: source})
}

func (l *loader) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

func (l *loader) fail(source string, err error) {
	l.err = errors.Join(l.err, fmt.Errorf("reading %s: %w", source, err))
}

func (l *loader) number(name string, def, least int64) int64 {
	n := def
	v, source, ok := l.text(name)
	if ok {
		got, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || got < least {
			l.warn("%s is %q, which is not a number of at least %d: using %d", source, v, least, def)
			source = "default"
		} else {
			n = got
		}
	}
	l.record(name, strconv.FormatInt(n, 10), source)
	return n
}

func (l *loader) millis(name string, def time.Duration) time.Duration {
	n := l.number(name, def.Milliseconds(), 0)
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// word is one of the words; the first is the default.
func (l *loader) word(name string, words ...string) string {
	v, source, ok := l.text(name)
	if !ok {
		v = words[0]
	}
	if !slices.Contains(words, v) {
		l.fail(source, fmt.Errorf("%q is none of %s", v, strings.Join(words, ", ")))
	}
	l.record(name, v, source)
	return v
}

func (l *loader) pattern(name, def string) *regexp.Regexp {
	v, source, ok := l.text(name)
	if !ok {
		v = def
	}
	l.record(name, v, source)
	if v == "" {
		return nil
	}
	re, err := regexp.Compile(v)
	if err != nil {
		l.fail(source, fmt.Errorf("%w (patterns are RE2: no look-around, no back-references)", err))
	}
	return re
}

// categories is a list of side-effect categories. A list of nothing but
// separators is empty; an empty variable is the default.
func (l *loader) categories(name string, def []string) []string {
	list := def
	v, source, ok := l.text(name)
	switch {
	case ok && strings.TrimSpace(v) != "":
		if list = splitList(v, ","); len(list) == 0 {
			l.warn("%s names no category: no side effect is refused", source)
		}
	case ok:
		l.warn("%s is blank: the default list holds", source)
	case l.empty(name) != "":
		l.warn("%s is set and empty: the default list holds", l.empty(name))
	}
	for _, c := range list {
		if !slices.Contains(SideEffects, c) {
			l.fail(source, fmt.Errorf("%q is not a side-effect category; the categories are %s", c, strings.Join(SideEffects, ", ")))
		}
	}
	l.record(name, strings.Join(list, ","), source)
	return list
}

func (l *loader) dir(name string) string {
	v, source, ok := l.text(name)
	if !ok {
		v = workingDir()
	} else if abs, err := filepath.Abs(v); err != nil {
		l.fail(source, err)
	} else {
		v = abs
	}
	l.record(name, v, source)
	return v
}

// roots is a list of directories, resolved now: a link that moves later opens nothing.
func (l *loader) roots(name string) []string {
	v, source, _ := l.text(name)
	var roots []string
	for _, e := range splitList(v, string(os.PathListSeparator)) {
		root, err := resolve(e)
		if err != nil {
			l.warn("%s: %v: nothing can run under it", source, err)
			if root, err = filepath.Abs(e); err != nil {
				l.fail(source, err)
				continue
			}
		}
		roots = append(roots, root)
	}
	if source != "default" && len(roots) == 0 {
		l.fail(source, errors.New("it names no directory"))
	}
	l.record(name, strings.Join(roots, string(os.PathListSeparator)), source)
	return roots
}

// shell is a program with its arguments; a program alone gets -c.
func (l *loader) shell(name string) []string {
	v, source, _ := l.text(name)
	shell := strings.Fields(v)
	if len(shell) == 0 {
		l.record(name, strings.Join(defaultShell(), " "), "default")
		return nil
	}
	path, err := exec.LookPath(shell[0])
	if err != nil {
		l.fail(source, err)
	}
	if len(shell) == 1 {
		shell = append(shell, "-c")
	}
	shell[0] = path
	l.record(name, strings.Join(shell, " "), source)
	return shell
}
