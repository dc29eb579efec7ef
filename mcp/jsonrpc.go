package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// The JSON-RPC error codes that the server sends.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeBusy           = -32000
)

// message is one line from the client: a request, a notification (no ID), or a
// response (no Method).
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	// Result and Error are those of a response.
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// rpcError is a failure of the protocol, as opposed to one of a tool.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Message }

func protocolError(code int, format string, args ...any) *rpcError {
	return &rpcError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// parseMessage decodes a line. On failure the message still holds the ID when
// there was one to find.
func parseMessage(line []byte) (message, *rpcError) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		var wrongType *json.UnmarshalTypeError
		switch {
		case errors.As(err, &wrongType) && line[0] == '[':
			return m, protocolError(codeInvalidRequest, "batches are not part of this protocol: send one request a line")
		case errors.As(err, &wrongType):
			return m, protocolError(codeInvalidRequest, "not a JSON-RPC message: %s", misplaced(wrongType))
		}
		return m, protocolError(codeParse, "the line is not JSON: %v", err)
	}
	if m.Version != "2.0" {
		return m, protocolError(codeInvalidRequest, `"jsonrpc" must be "2.0"`)
	}
	if m.ID != nil && !validID(m.ID) {
		m.ID = nil
		return m, protocolError(codeInvalidRequest, `"id" must be a string or a number`)
	}
	if m.Method == "" && m.Result == nil && m.Error == nil {
		return m, protocolError(codeInvalidRequest, `a request needs a "method"`)
	}
	return m, nil
}

// misplaced says what stands in place of what.
func misplaced(err *json.UnmarshalTypeError) string {
	if err.Field == "" {
		return "a line must be an object, and is of type " + err.Value
	}
	return fmt.Sprintf("%q must be a string, and is of type %s", err.Field, err.Value)
}

func validID(id json.RawMessage) bool {
	return id[0] == '"' || id[0] == '-' || (id[0] >= '0' && id[0] <= '9')
}

// idKey is the same for every way to write an id, and for no other id: a client
// may call as 7.0 what it cancels as 7.
func idKey(id json.RawMessage) string {
	var v any
	if json.Unmarshal(id, &v) != nil {
		return string(id) // a number beyond all range
	}
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case float64:
		if v != math.Trunc(v) || math.Abs(v) < 1<<53 {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
	}
	return string(id) // floats do not tell large integers apart
}

// responseLine builds a response without its newline.
func responseLine(id json.RawMessage, key string, value json.RawMessage) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	line := make([]byte, 0, len(value)+len(id)+40)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, id...)
	line = append(line, `,"`...)
	line = append(line, key...)
	line = append(line, `":`...)
	line = append(line, value...)
	return append(line, '}')
}

func errorLine(id json.RawMessage, e *rpcError) []byte {
	return responseLine(id, "error", encode(e))
}

func notificationLine(method string, params any) []byte {
	return encode(struct {
		Version string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{"2.0", method, params})
}

// encode marshals a value that cannot fail to marshal. Bytes that are not UTF-8
// become U+FFFD; < and > stay as they are, since agents read them.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage(fmt.Sprintf(`{"error":%q}`, "encoding the answer: "+err.Error()))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
