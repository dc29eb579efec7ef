package mcp

import (
	"encoding/json"

	mcpgo "github.com/mark3labs/mcp-go/mcp"
)

// schema is a JSON Schema.
type schema map[string]any

// inputSchema describes the arguments.
func (t *tool) inputSchema() json.RawMessage {
	properties := schema{}
	required := []string{}
	for _, p := range t.params {
		properties[p.name] = p.schema()
		if p.required || p.expected {
			required = append(required, p.name)
		}
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return encode(s)
}

func (p param) schema() schema {
	s := schema{"type": string(p.kind)}
	if p.text != "" {
		s["description"] = p.text
	}
	if p.def != nil {
		s["default"] = p.def
	}
	switch p.kind {
	case kindStrings:
		items := schema{"type": "string"}
		if p.enum != nil {
			items["enum"] = p.enum
		}
		s["items"], s["minItems"] = items, 1
	case kindMap:
		s["additionalProperties"] = schema{"type": "string"}
	case kindString:
		if p.enum != nil {
			s["enum"] = p.enum
		}
	case kindInteger, kindBoolean:
	}
	return s
}

// object is an output schema of the fields, in which only the required ones
// must be there. A field's value is its JSON type or types.
func object(fields map[string]any, required ...string) schema {
	properties := schema{}
	for name, t := range fields {
		if s, ok := t.(schema); ok {
			properties[name] = s
		} else {
			properties[name] = schema{"type": t}
		}
	}
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// orNull is a type whose value is null while it is not known. A list of types
// would say it shorter, but some clients take only one.
func orNull(t string) schema {
	return schema{"anyOf": []schema{{"type": t}, {"type": "null"}}}
}

// eagerKey is how Claude Code is asked not to defer a tool. Others ignore it.
const eagerKey = "anthropic/alwaysLoad"

// listing is the tool as tools/list shows it. A hint that is the protocol's
// default, or that says nothing of a tool that only reads, is left out.
func (t *tool) listing() mcpgo.Tool {
	h := t.hints
	shown := mcpgo.ToolAnnotation{Title: t.title, ReadOnlyHint: &h.readOnly, DestructiveHint: &h.destructive}
	if h.idempotent && !h.readOnly {
		shown.IdempotentHint = &h.idempotent
	}
	if !h.openWorld {
		shown.OpenWorldHint = &h.openWorld
	}
	listed := mcpgo.Tool{
		Name: t.name, Description: t.description,
		RawInputSchema:  t.inputSchema(),
		RawOutputSchema: encode(t.output),
		Annotations:     shown,
	}
	if t.eager {
		listed.Meta = &mcpgo.Meta{AdditionalFields: map[string]any{eagerKey: true}}
	}
	return listed
}
