package mcp

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/yieldlog/yieldlog/producers"
)

// tool is one tool: what tools/list says of it and what runs it.
type tool struct {
	name        string
	title       string
	description string
	params      []param
	output      schema
	hints       hints
	// starts says that it starts a command, for which calls take their turns.
	starts bool
	// ordered calls run one after the other, as they came. They must be quick.
	ordered bool
	// eager tools are the ones that an agent cannot do without: a client that loads
	// tools only when the model looks for them is asked to have these at once.
	eager bool
	run   func(ctx context.Context, c *call) (reply, error)
}

// param is one argument. The same table makes the input schema and checks what
// a client sends.
type param struct {
	name     string
	kind     kind
	text     string
	required bool
	expected bool // required in the schema; the tool itself says what it takes instead
	// def is the default that the schema states, or nil.
	def any
	// enum lists the allowed words, of the string or of the list's strings.
	enum []string
	// min is the least integer.
	min int64
	// check judges a string; nil takes every one.
	check func(string) error
}

// kind is the JSON type of an argument.
type kind string

const (
	kindString  kind = "string"
	kindInteger kind = "integer"
	kindBoolean kind = "boolean"
	kindStrings kind = "array"
	kindMap     kind = "object"
)

// hints are the tool's annotations.
type hints struct {
	readOnly, destructive, idempotent, openWorld bool
}

// call is one tools/call.
type call struct {
	// tool is its name.
	tool string
	args arguments
	meta callMeta
	// notify sends a notification that may be dropped; nil where there is no way to.
	notify func(method string, params any)
	// turn is the call's place in the order of calls, or nil.
	turn *producers.Turn
	// after is told whether the answer was written, each once.
	after []func(written bool)
}

// reply is a tool's answer. Both forms hold the same facts; text may show less
// of a large output, and says what it left out.
type reply struct {
	structured json.RawMessage
	text       string
	isError    bool
	// done, if set, must be told once whether the answer reached the client.
	done func(delivered bool)
}

// answer is the reply whose text is the structured content itself.
func answer(v any) reply {
	b := encode(v)
	return reply{structured: b, text: string(b)}
}

// failure is a refusal that the model can read and correct. It keeps to the
// tool's output schema: some clients check that of errors, too.
func (t *tool) failure(text string, raw json.RawMessage) reply {
	var f struct {
		ProcessID *string `json:"process_id,omitempty"`
		Status    string  `json:"status,omitempty"`
		Error     string  `json:"error"`
	}
	f.Error = text
	if t.name == "exec" {
		f.Status = "failed_to_start"
	} else if t.takes(processIDParam.name) {
		f.ProcessID = new(string)
		var given struct {
			ProcessID string `json:"process_id"`
		}
		if json.Unmarshal(raw, &given) == nil {
			*f.ProcessID = given.ProcessID
		}
	}
	r := answer(f)
	r.isError = true
	return r
}

func (t *tool) takes(name string) bool {
	return slices.ContainsFunc(t.params, func(p param) bool { return p.name == name })
}

// line builds the response.
func (r reply) line(id json.RawMessage) []byte {
	text := encode(r.text)
	result := make([]byte, 0, len(text)+len(r.structured)+96)
	result = append(result, `{"content":[{"type":"text","text":`...)
	result = append(result, text...)
	result = append(result, `}],"structuredContent":`...)
	result = append(result, r.structured...)
	if r.isError {
		result = append(result, `,"isError":true`...)
	}
	return responseLine(id, "result", append(result, '}'))
}
