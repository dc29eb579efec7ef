package mcp

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testParams = []param{
	{name: "s", kind: kindString, required: true, text: "a text"},
	{name: "n", kind: kindInteger},
	{name: "signed", kind: kindInteger, min: minInteger},
	{name: "b", kind: kindBoolean},
	{name: "list", kind: kindStrings},
	{name: "map", kind: kindMap},
	{name: "word", kind: kindString, enum: []string{"both", "one"}},
}

func TestDecodeArguments(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want arguments
	}{
		{`{"s":"x"}`, arguments{"s": "x"}},
		{`{"s":"","n":null,"b":null}`, arguments{"s": ""}},
		{`{"s":"x","n":5.0}`, arguments{"s": "x", "n": int64(5)}},
		{`{"s":"x","n":1e30}`, arguments{"s": "x", "n": int64(math.MaxInt64)}},
		{`{"s":"x","n":1e999}`, arguments{"s": "x", "n": int64(math.MaxInt64)}},
		{`{"s":"x","signed":-7}`, arguments{"s": "x", "signed": int64(-7)}},
		{`{"s":"x","n":"5","b":"false","list":"[\"a\"]","map":" {\"k\":\"v\"} "}`, arguments{
			"s": "x", "n": int64(5), "b": false, "list": []string{"a"}, "map": map[string]string{"k": "v"},
		}},
		{`{"s":"5","word":"one"}`, arguments{"s": "5", "word": "one"}},
		{`{"s":"x","b":true,"list":["a"],"map":{"k":"v"},"word":"one"}`, arguments{
			"s": "x", "b": true, "list": []string{"a"}, "map": map[string]string{"k": "v"}, "word": "one",
		}},
	} {
		got, err := decodeArguments(testParams, json.RawMessage(tt.raw))
		if err != nil {
			t.Errorf("%s: %v", tt.raw, err)
		} else if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.raw, diff)
		}
	}
}

func TestDecodeArgumentsErrors(t *testing.T) {
	for _, tt := range []struct{ raw, want string }{
		{``, `s is required: a text`},
		{`[1]`, `arguments must be an object, not the list [1]`},
		{`{"s":5}`, `s must be a string, not 5`},
		{`{"s":"x","n":"five"}`, `n must be a whole number, not the string "five"`},
		{`{"s":"x","n":"-1"}`, `n must be a whole number, not the string "-1"`},
		{`{"s":"x","n":"\"5\""}`, `n must be a whole number, not the string "\"5\""`},
		{`{"s":"x","b":"null"}`, `b must be true or false, not the string "null"`},
		{`{"s":"x","list":["a",null]}`, `list must be a list of strings, not the list ["a",null]`},
		{`{"s":"x","map":{"k":null}}`, `map must be an object whose values are strings, not the object {"k":null}`},
		{`{"s":"x","n":1.5}`, `n must be a whole number, not 1.5`},
		{`{"s":"x","n":-1}`, `n must be 0 or more, not -1`},
		{`{"s":"x","n":-1e999}`, `n must be 0 or more, not -1e999`},
		{`{"s":"x","n":true}`, `n must be a whole number, not true`},
		{`{"s":"x","b":"yes"}`, `b must be true or false, not the string "yes"`},
		{`{"s":"x","list":"NONE"}`, `list must be a list of strings, such as ["NONE"], not the string "NONE"`},
		{`{"s":"x","list":[1]}`, `list must be a list of strings, not the list [1]`},
		{`{"s":"x","map":{"k":1}}`, `map must be an object whose values are strings, not the object {"k":1}`},
		{`{"s":"x","word":"sideways"}`, `word must be one of both, one, not "sideways"`},
		{`{"s":"x","nope":1}`, `unknown argument "nope": the arguments are s, n, signed, b, list, map, word`},
	} {
		_, err := decodeArguments(testParams, json.RawMessage(tt.raw))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v", tt.raw, err)
		}
	}
}

func TestLongValuesAreShortenedInErrors(t *testing.T) {
	_, err := decodeArguments(testParams, json.RawMessage(`{"s":"x","n":"`+strings.Repeat("é", 10000)+`"}`))
	if err == nil || len(err.Error()) > 200 {
		t.Errorf("%v", err)
	}
}

func TestMillis(t *testing.T) {
	a := arguments{"zero": int64(0), "negative": int64(-5), "huge": int64(math.MaxInt64), "two": int64(2)}
	for name, want := range map[string]time.Duration{
		"zero": 0, "negative": 0, "huge": maxDelay, "two": 2 * time.Millisecond, "absent": time.Second,
	} {
		if got := a.millis(name, time.Second); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func FuzzDecodeArguments(f *testing.F) {
	f.Add([]byte(`{"s":"x","n":1e999,"list":["a"],"map":{"k":"v"}}`))
	f.Add([]byte(`{"s":null,"n":-0.0,"b":tru}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		args, err := decodeArguments(testParams, raw)
		if err == nil && args.millis("n", 0) < 0 {
			t.Errorf("negative duration from %q", raw)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if len(line) == 0 {
			return
		}
		m, bad := parseMessage(line)
		if bad == nil && m.Version != "2.0" {
			t.Errorf("accepted %q", line)
		}
		if !json.Valid(errorLine(m.ID, protocolError(codeParse, "no"))) {
			t.Errorf("the error about %q is not JSON", line)
		}
	})
}

func TestOwnersThatNoEventCarriesAreRefused(t *testing.T) {
	for owner, want := range map[string]string{
		"/root ": `"/root "`, "/root/": `"/root", not "/root/"`, "/root//a": `"/root/a"`, "/root/../root/b": `"/root/b"`,
	} {
		_, err := decodeArguments([]param{ownerParam}, encode(map[string]string{"owner": owner}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", owner, err)
		}
	}
	for _, owner := range []string{"", "/root", "/root/a.b/c d", "alone", "/"} {
		if _, err := decodeArguments([]param{ownerParam}, encode(map[string]string{"owner": owner})); err != nil {
			t.Errorf("%q: %v", owner, err)
		}
	}
}
