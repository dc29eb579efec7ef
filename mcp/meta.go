package mcp

import (
	"encoding/json"
	"strings"
)

const (
	maxMetaEntries = 16
	maxMetaBytes   = 256
)

// callMeta is what the client says about a call beside its arguments.
type callMeta struct {
	// progressToken is the raw token, nil when no progress is wanted.
	progressToken json.RawMessage
	// client holds the correlation ids, as they were sent, bounded.
	client map[string]string
	// trace is the W3C traceparent.
	trace string
}

func decodeMeta(raw map[string]json.RawMessage) callMeta {
	m := callMeta{client: map[string]string{}}
	for key, value := range raw {
		switch {
		case key == "progressToken":
			if validID(value) {
				m.progressToken = value
			}
		case key == "traceparent":
			m.trace = metaText(value)
		case len(key) <= maxMetaBytes && len(m.client) < maxMetaEntries:
			if text := metaText(value); text != "" {
				m.client[key] = text
			}
		}
	}
	return m
}

// metaText is a scalar as text, and "" for anything else or too long.
func metaText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		s = strings.Trim(string(raw), " ")
		if !validID(raw) {
			return ""
		}
	}
	if len(s) > maxMetaBytes {
		return ""
	}
	return s
}
