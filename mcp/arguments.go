package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// arguments are a call's arguments, checked against the tool's parameters. An
// absent one, and one that is null, has its default.
type arguments map[string]any

// decodeArguments checks the arguments of a call. The error is for the model to
// read: it names the argument, what it must be and what it was.
func decodeArguments(params []param, raw json.RawMessage) (arguments, error) {
	var given map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("arguments must be an object, not %s", describe(raw))
		}
	}
	// First what is there in vain: it tells why something else is missing.
	for name := range given {
		if !slices.Contains(names(params), name) {
			return nil, fmt.Errorf("unknown argument %s: the arguments are %s", quoteShort(name), strings.Join(names(params), ", "))
		}
	}
	args := arguments{}
	for _, p := range params {
		value, ok := given[p.name]
		switch {
		case ok && string(value) != "null":
			v, err := p.decode(value)
			if err != nil {
				return nil, err
			}
			args[p.name] = v
		case p.required:
			return nil, fmt.Errorf("%s is required: %s", p.name, p.text)
		}
	}
	return args, nil
}

func names(params []param) []string {
	var list []string
	for _, p := range params {
		list = append(list, p.name)
	}
	return list
}

// decode takes what the parameter is. Some clients send everything but strings
// quoted, as JSON inside a string: that counts as what it says.
func (p param) decode(raw json.RawMessage) (any, error) {
	value, err := p.decodeBare(raw)
	var text string
	if err == nil || p.kind == kindString || json.Unmarshal(raw, &text) != nil {
		return value, err
	}
	inner := bytes.TrimSpace([]byte(text))
	if !json.Valid(inner) || string(inner) == "null" {
		return nil, err
	}
	if value, bad := p.decodeBare(inner); bad == nil {
		return value, nil
	}
	return nil, err
}

func (p param) decodeBare(raw json.RawMessage) (any, error) {
	switch p.kind {
	case kindString:
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return nil, p.wrong("a string", raw)
		}
		return s, p.checkWord(s)
	case kindInteger:
		return p.decodeInteger(raw)
	case kindBoolean:
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return nil, p.wrong("true or false", raw)
		}
		return b, nil
	case kindStrings:
		var given []*string
		if raw[0] != '[' || json.Unmarshal(raw, &given) != nil || slices.Contains(given, nil) {
			want := "a list of strings"
			if raw[0] == '"' {
				want += ", such as [" + shorten(string(raw), 60) + "]"
			}
			return nil, p.wrong(want, raw)
		}
		list := make([]string, 0, len(given))
		for _, s := range given {
			list = append(list, *s)
		}
		return list, nil
	default:
		return p.decodeMap(raw)
	}
}

func (p param) decodeMap(raw json.RawMessage) (any, error) {
	var given map[string]*string
	bad := raw[0] != '{' || json.Unmarshal(raw, &given) != nil
	m := make(map[string]string, len(given))
	for name, s := range given {
		if s == nil {
			bad = true
			break
		}
		m[name] = *s
	}
	if bad {
		return nil, p.wrong("an object whose values are strings", raw)
	}
	return m, nil
}

// decodeInteger takes whole numbers, also written as 5.0 or 5e3; one that is too
// large for any use becomes the largest.
func (p param) decodeInteger(raw json.RawMessage) (int64, error) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return p.checkMin(n, raw)
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if raw[0] == '"' || (err != nil && !math.IsInf(f, 0)) || f != math.Trunc(f) {
		return 0, p.wrong("a whole number", raw)
	}
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64, nil
	case f <= math.MinInt64:
		return p.checkMin(math.MinInt64, raw)
	}
	return p.checkMin(int64(f), raw)
}

func (p param) checkMin(n int64, raw json.RawMessage) (int64, error) {
	if n < p.min {
		return 0, p.wrong(fmt.Sprintf("%d or more", p.min), raw)
	}
	return n, nil
}

func (p param) checkWord(s string) error {
	if p.check != nil {
		return p.check(s)
	}
	if p.enum == nil || slices.Contains(p.enum, s) {
		return nil
	}
	return fmt.Errorf("%s must be one of %s, not %s", p.name, strings.Join(p.enum, ", "), quoteShort(s))
}

func (p param) wrong(want string, raw json.RawMessage) error {
	return fmt.Errorf("%s must be %s, not %s", p.name, want, describe(raw))
}

// describe names a JSON value for an error text.
func describe(raw json.RawMessage) string {
	switch raw[0] {
	case '"':
		return "the string " + shorten(string(raw), 60)
	case '[':
		return "the list " + shorten(string(raw), 60)
	case '{':
		return "the object " + shorten(string(raw), 60)
	}
	return shorten(string(raw), 60)
}

func quoteShort(s string) string { return strconv.Quote(shorten(s, 60)) }

// shorten cuts a text to at most n bytes and an ellipsis, between characters.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

func (a arguments) text(name string) string {
	s, _ := a[name].(string)
	return s
}

func (a arguments) flag(name string, def bool) bool {
	if b, ok := a[name].(bool); ok {
		return b
	}
	return def
}

func (a arguments) integer(name string, def int64) int64 {
	if n, ok := a[name].(int64); ok {
		return n
	}
	return def
}

func (a arguments) has(name string) bool {
	_, ok := a[name]
	return ok
}

func (a arguments) list(name string) []string {
	l, _ := a[name].([]string)
	return l
}

func (a arguments) dict(name string) map[string]string {
	m, _ := a[name].(map[string]string)
	return m
}

// maxDelay stands for every longer duration: a year.
const maxDelay = 365 * 24 * time.Hour

// millis is a duration given in milliseconds; a negative one is 0.
func (a arguments) millis(name string, def time.Duration) time.Duration {
	if !a.has(name) {
		return def
	}
	ms := max(0, min(a.integer(name, 0), maxDelay.Milliseconds()))
	return time.Duration(ms) * time.Millisecond
}

// owner is who asks.
func (a arguments) owner() string {
	if o, err := events.OwnerPath(a.text("owner")); err == nil {
		return o
	}
	return events.RootOwner
}

// ownerIn is who asks with arguments that are wrong, or "" where they hide it.
func ownerIn(raw json.RawMessage) string {
	var given struct {
		Owner string `json:"owner"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &given) != nil || checkOwner(given.Owner) != nil {
		return ""
	}
	return arguments{"owner": given.Owner}.owner()
}

// limit is the bytes asked for of each stream; 0 is the default, and so is less.
func (a arguments) limit() int { return clampInt(max(0, a.integer("max_output_bytes", 0))) }

// clampInt is n as an int that calculations do not overflow.
func clampInt(n int64) int { return int(min(n, 1<<30)) }

// minInteger is the min of a parameter that takes negative numbers.
const minInteger = math.MinInt64
