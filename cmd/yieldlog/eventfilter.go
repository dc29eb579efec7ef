package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

// An eventFilter selects events by what they are and by what they say. The
// zero value selects everything.
type eventFilter struct {
	words  []string // kinds and classes: one of them, if there are any
	fields []fieldTerm
	since  time.Time // what was before is left out
}

// A fieldTerm demands that a field has a value, or has not.
type fieldTerm struct {
	name, value string
	not         bool
}

// parseEventFilter reads an expression like "settled,outcome=failure".
func parseEventFilter(expr string) (eventFilter, error) {
	var f eventFilter
	for term := range strings.SplitSeq(expr, ",") {
		term = strings.TrimSpace(term)
		if term == "" {
			continue
		}
		name, value, isField := strings.Cut(term, "=")
		if !isField {
			if !knownWord(term) {
				return f, fmt.Errorf("the filter's %q is neither a kind nor a class of event, nor name=value", term)
			}
			f.words = append(f.words, term)
			continue
		}
		name, not := strings.CutSuffix(name, "!")
		if name = strings.TrimSpace(name); !slices.Contains(fieldNames(), name) {
			return f, fmt.Errorf("no event has a field %q: docs/events.md lists them", name)
		}
		f.fields = append(f.fields, fieldTerm{name: name, value: strings.TrimSpace(value), not: not})
	}
	return f, nil
}

// words are what a filter may select by: kinds and classes.
var words = []string{
	"session", "execution", "mailbox",
	"opened", "closed", "lost", "forked", "rewound",
	"requested", "refused", "queued", "admitted", "spawned", "yielded", "input", "stopping", "settled", "pruned",
	"posted", "acknowledged",
}

func knownWord(s string) bool { return slices.Contains(words, s) }

// bodies is every kind with a typed body, in the order of the reference.
var bodies = []events.Body{
	events.Opened{},
	events.Closed{},
	events.Lost{},
	events.Forked{},
	events.Rewound{},
	events.Requested{},
	events.Refused{},
	events.Queued{},
	events.Admitted{},
	events.Spawned{},
	events.Yielded{},
	events.Input{},
	events.Stopping{},
	events.Settled{},
	events.Pruned{},
	events.Posted{},
	events.Acknowledged{},
}

// fieldNames are what a filter may ask for: attributes, and the fields of bodies.
var fieldNames = sync.OnceValue(func() []string {
	names := []string{"session", "owner", "execution", "id", "kind", "class"}
	for _, b := range bodies {
		for f := range reflect.TypeOf(b).Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				names = append(names, name)
			}
		}
	}
	return names
})

func (f eventFilter) match(e events.Event) bool {
	if e.Time.Before(f.since) {
		return false
	}
	if len(f.words) > 0 && !slices.Contains(f.words, string(e.Kind())) && !slices.Contains(f.words, string(e.Class())) {
		return false
	}
	if len(f.fields) == 0 {
		return true
	}
	facts := factsOf(e)
	for _, t := range f.fields {
		value, known := facts[t.name]
		if (known && value == t.value) == t.not {
			return false
		}
	}
	return true
}

// factsOf is the event's attributes and its body's fields, as text.
func factsOf(e events.Event) map[string]string {
	facts := map[string]string{}
	var fields map[string]json.RawMessage
	if data, err := json.Marshal(replay.NewEventLine(e).Body); err == nil && json.Unmarshal(data, &fields) == nil {
		for name, raw := range fields {
			var s string
			if json.Unmarshal(raw, &s) != nil {
				s = string(raw)
			}
			facts[name] = s
		}
	}
	facts["session"], facts["owner"], facts["execution"] = e.Session, e.Owner, e.Execution()
	facts["id"], facts["kind"], facts["class"] = e.ID, string(e.Kind()), string(e.Class())
	return facts
}
