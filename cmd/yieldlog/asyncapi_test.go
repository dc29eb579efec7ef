package main

import (
	"bytes"
	"testing"
	"text/template"

	"github.com/yieldlog/yieldlog/events"
)

// TestAsyncAPI holds docs/asyncapi.yaml to the Go types.
func TestAsyncAPI(t *testing.T) {
	type kind struct {
		Name, Class, Kind, Says string
		Output                  bool
	}
	comments := newSchemas(t).comments
	var kinds []kind
	for _, b := range bodies {
		typ := typeName(b)
		kinds = append(kinds, kind{
			Name: kindName(b), Class: string(b.Class()), Kind: string(b.Kind()), Says: sentence(typ, comments[typ]),
		})
	}
	for _, stream := range []events.Kind{events.KindStdout, events.KindStderr, events.KindTTY} {
		b := events.Output{Stream: stream}
		kinds = append(kinds, kind{
			Name: kindName(b), Class: string(b.Class()), Kind: string(stream), Output: true,
			Says: "A chunk of " + string(stream) + ": the payload is the bytes.",
		})
	}
	var out bytes.Buffer
	if err := asyncAPI.Execute(&out, kinds); err != nil {
		t.Fatal(err)
	}
	checkFile(t, "../../docs/asyncapi.yaml", out.Bytes())
}

var asyncAPI = template.Must(template.New("asyncapi").Parse(`# Generated from the Go types by: go generate ./cmd/yieldlog
asyncapi: 3.0.0
info:
  title: yieldlog events
  version: 1.0.0
  description: |
    What a ledger tells its subscribers. Every message is a CloudEvents 1.0 event in binary mode. It is told once it
    is stored, with the headers Nats-Stream and Nats-Sequence. docs/subscribing.md says how to connect and catch up.
  license: {name: MIT}
defaultContentType: application/json
servers:
  local:
    host: 127.0.0.1:{port}
    protocol: nats
    description: The process that hosts the ledger. "yieldlog subscriber" prints the port, the user and the password.
    variables:
      port: {description: The port of the ledger.}
    security: [{$ref: '#/components/securitySchemes/reader'}]
channels:
{{- range .}}
  {{.Name}}:
    address: yieldlog.{session}.{{.Class}}.{id}.{{.Kind}}
    description: {{printf "%q" .Says}}
    parameters:
      session: {$ref: '#/components/parameters/session'}
      id: {$ref: '#/components/parameters/id'}
    messages:
      event: {$ref: '#/components/messages/{{.Name}}'}
{{- end}}
operations:
{{- range .}}
  tell-{{.Class}}-{{.Kind}}:
    action: send
    channel: {$ref: '#/channels/{{.Name}}'}
{{- end}}
components:
  securitySchemes:
    reader:
      type: userPassword
      description: The read-only account.
  parameters:
    session: {description: The ULID of the session.}
    id: {description: 'What the event is about: the session, the execution, or the mailbox record.'}
  messages:
{{- range .}}
    {{.Name}}:
      name: com.yieldlog.{{.Name}}
      summary: {{printf "%q" .Says}}
{{- if .Output}}
      contentType: application/octet-stream
      headers: {$ref: '#/components/schemas/outputHeaders'}
      payload: {type: string, format: binary}
{{- else}}
      contentType: application/json
      headers: {$ref: '#/components/schemas/headers'}
      payload:
        schemaFormat: application/schema+json;version=draft-07
        schema: {$ref: './schemas/{{.Name}}.json'}
{{- end}}
{{- end}}
  schemas:
    headers:
      type: object
      required: [ce-specversion, ce-id, ce-type, ce-source, ce-subject, ce-time, Nats-Sequence]
      properties: &attributes
        ce-specversion: {const: '1.0'}
        ce-id: {type: string, description: ULID of the event.}
        ce-type: {type: string, description: com.yieldlog.<class>.<kind>}
        ce-source: {type: string, description: /yieldlog/<session>}
        ce-subject: {type: string, description: 'The session, the execution or the mailbox record.'}
        ce-time: {type: string, format: date-time, description: When the writer made it. It orders nothing.}
        ce-owner: {type: string, description: 'Who in the session asked, such as /root.'}
        ce-prev: {type: string, description: SHA-256 of the session's previous lifecycle event.}
        content-type: {type: string}
        Nats-Stream: {type: string, description: 'LIFECYCLE, or an output segment.'}
        Nats-Sequence: {type: string, pattern: '^[0-9]+$', description: The sequence in the stream. It is the cursor.}
    outputHeaders:
      type: object
      required: [ce-specversion, ce-id, ce-type, ce-source, ce-subject, ce-time, ce-offset]
      properties:
        <<: *attributes
        ce-offset: {type: string, pattern: '^[0-9]+$', description: The offset of the first byte in the execution's one output order.}
        content-encoding: {const: zstd, description: Set when the chunk is compressed.}
        ce-length: {type: string, pattern: '^[0-9]+$', description: The logical length of a compressed chunk in bytes.}
`))
