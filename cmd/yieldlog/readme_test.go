package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A clientEntry is what a client's configuration says about starting a server.
type clientEntry struct {
	client  string
	command []string
	env     map[string]string
}

// TestClientSetup reads every client configuration of the README as the client
// would, and finds the same server in all of them.
func TestClientSetup(t *testing.T) {
	data, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := clientEntries(t, string(data))
	var clients []string
	for _, e := range entries {
		clients = append(clients, e.client)
		if !slices.Equal(e.command, []string{"yieldlog", "mcp"}) {
			t.Errorf("%s starts %q", e.client, e.command)
			continue
		}
		e.start(t)
	}
	for _, want := range []string{"Claude Code", "Claude Desktop", "Cursor", "OpenCode", "Codex", "VS Code"} {
		if !slices.Contains(clients, want) {
			t.Errorf("the README does not set %s up", want)
		}
	}
}

// TestDocumentedCommands finds every command that the documents show.
func TestDocumentedCommands(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(&app{})
	shown := regexp.MustCompile("(?m)(?:^ {4}|`|\\$ |^#&)yieldlog ([a-z]+)")
	script := regexp.MustCompile("(?s)```sh\n.*?```")
	for _, file := range append(files, "../../README.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Lines of scripts are marked, so that prose at the beginning of a line is not taken for one.
		data = script.ReplaceAllFunc(data, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("\nyieldlog "), []byte("\n#&yieldlog "))
		})
		for _, m := range shown.FindAllSubmatch(data, -1) {
			name := string(m[1])
			if c, _, err := root.Find([]string{name}); (err != nil || c == root) && name != "completion" && name != "help" {
				t.Errorf("%s shows yieldlog %s, which does not exist", file, name)
			}
		}
	}
}

// start starts the server as the client would, and shuts it down.
func (e clientEntry) start(t *testing.T) {
	t.Helper()
	server := exec.Command(binary, e.command[1:]...)
	server.Env = append(withoutSettings(os.Environ()), "YIELDLOG_DIR="+t.TempDir(), "YIELDLOG_SYNC=relaxed")
	for name, value := range e.env {
		server.Env = append(server.Env, name+"="+value)
	}
	s, err := greet(server)
	if err != nil {
		t.Errorf("%s: %v", e.client, err)
		return
	}
	if err := s.close(); err != nil {
		t.Errorf("%s: %v", e.client, err)
	}
}

var fence = regexp.MustCompile("(?s)```(json|toml)\n(.*?)```")

// clientEntries reads the configurations below the headings of the third level.
func clientEntries(t *testing.T, readme string) []clientEntry {
	t.Helper()
	var entries []clientEntry
	for _, section := range strings.Split(readme, "\n### ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			e := clientEntry{client: title}
			if m[1] == "json" {
				e.readJSON(t, m[2])
			} else {
				e.readTOML(t, m[2])
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// readJSON reads {"mcpServers" or "servers" or "mcp": {"yieldlog": {...}}}.
func (e *clientEntry) readJSON(t *testing.T, text string) {
	t.Helper()
	var config map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatalf("%s: %v", e.client, err)
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if strings.HasPrefix(key, "$") {
			continue
		}
		var servers map[string]struct {
			Command json.RawMessage   `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
		}
		if err := json.Unmarshal(config[key], &servers); err != nil {
			t.Fatalf("%s: %v", e.client, err)
		}
		s := servers["yieldlog"]
		var command string
		if json.Unmarshal(s.Command, &e.command) != nil && json.Unmarshal(s.Command, &command) == nil {
			e.command = []string{command}
		}
		e.command = append(e.command, s.Args...)
		e.env = s.Env
	}
}

// readTOML reads the little that the README uses: a table, and keys with
// strings or arrays of strings, which are written as in JSON.
func (e *clientEntry) readTOML(t *testing.T, text string) {
	t.Helper()
	var args []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line == "[mcp_servers.yieldlog]" {
			continue
		}
		key, value, ok := strings.Cut(line, " = ")
		if !ok {
			t.Fatalf("%s: %q is no key", e.client, line)
		}
		var one string
		var many []string
		if json.Unmarshal([]byte(value), &one) != nil && json.Unmarshal([]byte(value), &many) != nil {
			t.Fatalf("%s: %q is neither a string nor an array of strings", e.client, value)
		}
		switch key {
		case "command":
			e.command = []string{one}
		case "args":
			args = many
		}
	}
	e.command = append(e.command, args...)
}
