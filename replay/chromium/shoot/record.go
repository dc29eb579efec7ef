package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// night is a recorded session, of which some commands still run.
type night struct {
	binary, dir, work string
	server            *exec.Cmd
	in                io.WriteCloser
	out               *bufio.Scanner
	next              int

	// The ids that the pictures are of.
	session, serving, failed, terminal string
}

// record plays an agent's work through the real MCP server.
func record(ctx context.Context, binary, dir string) (*night, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, fmt.Errorf("finding yieldlog: %w", err)
	}
	n := &night{binary: binary, dir: dir, work: filepath.Join(dir, "ada", "shop")}
	if err := n.workspace(); err != nil {
		return nil, fmt.Errorf("making a workspace: %w", err)
	}
	if err := n.serve(ctx); err != nil {
		return nil, fmt.Errorf("starting the server: %w", err)
	}
	if err := n.play(ctx); err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	return n, nil
}

// workspace is a small Go module with a test that fails.
func (n *night) workspace() error {
	files := map[string]string{
		"go.mod":                    "module shop\n\ngo 1.24\n",
		"cart/cart.go":              "package cart\n\n// Total sums prices in cents up.\nfunc Total(prices ...int) (sum int) {\n\tfor _, p := range prices {\n\t\tsum += p\n\t}\n\treturn sum\n}\n",
		"cart/cart_test.go":         "package cart\n\nimport \"testing\"\n\nfunc TestTotal(t *testing.T) {\n\tif Total(1, 2) != 3 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
		"checkout/checkout.go":      "package checkout\n\n// Tax is 5%, rounded.\nfunc Tax(cents int) int { return cents * 5 / 100 }\n",
		"checkout/checkout_test.go": "package checkout\n\nimport \"testing\"\n\nfunc TestTaxRoundsUp(t *testing.T) {\n\tif got := Tax(4199); got != 210 {\n\t\tt.Errorf(\"the tax on 41.99 is %d cents, not 210\", got)\n\t}\n}\n",
		"bundle.sh":                 bundle,
	}
	for name, text := range files {
		name = filepath.Join(n.work, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a workspace like any
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil { //nolint:gosec // a workspace like any
			return err
		}
	}
	return nil
}

// bundle draws progress bars on a terminal.
const bundle = `#!/bin/sh
printf '\033[1mshop\033[0m front end · production build\n\n'
for part in cart checkout account search; do
  i=0
  while [ $i -le 20 ]; do
    bar=$(printf '%*s' $i '' | tr ' ' '=')
    printf '\r  \033[36m%-10s\033[0m \033[32m%-20s\033[0m %3d%%' $part "$bar" $((i * 5))
    i=$((i + 1)); sleep 0.03
  done
  printf '  \033[32mok\033[0m\n'
done
printf '\n\033[33mwarning\033[0m  search.js is 312 kB, over the limit of 250 kB\n'
printf '\033[32mdone\033[0m     in 2.6 s, 4 bundles, 891 kB\n'
`

func (n *night) serve(ctx context.Context) (err error) {
	n.server = n.command(ctx, "mcp")
	if n.in, err = n.server.StdinPipe(); err != nil {
		return err
	}
	out, err := n.server.StdoutPipe()
	if err != nil {
		return err
	}
	n.out = bufio.NewScanner(out)
	n.out.Buffer(nil, 16<<20)
	if err := n.server.Start(); err != nil {
		return err
	}
	if _, err := n.call("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "claude-code", "version": "2.1.0"},
	}); err != nil {
		return err
	}
	return n.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

func (n *night) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = n.in.Write(append(line, '\n'))
	return err
}

// call makes a request and reads until its answer.
func (n *night) call(method string, params any) (json.RawMessage, error) {
	n.next++
	if err := n.send(map[string]any{"jsonrpc": "2.0", "id": n.next, "method": method, "params": params}); err != nil {
		return nil, err
	}
	for n.out.Scan() {
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if json.Unmarshal(n.out.Bytes(), &m) != nil || m.ID != n.next {
			continue
		}
		if m.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, m.Error)
		}
		return m.Result, nil
	}
	return nil, fmt.Errorf("%s: the server has ended: %w", method, n.out.Err())
}

// tool calls a tool and returns the process id of its answer.
func (n *night) tool(name string, args map[string]any) (string, error) {
	raw, err := n.call("tools/call", map[string]any{"name": name, "arguments": args})
	if err != nil {
		return "", err
	}
	var r struct {
		StructuredContent struct {
			ProcessID string `json:"process_id"`
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", fmt.Errorf("reading the answer of %s: %w", name, err)
	}
	return r.StructuredContent.ProcessID, nil
}

// step is one thing that the agent does.
type step struct {
	tool string
	args map[string]any
	id   *string
}

// args is the arguments of exec.
func args(owner, name, command string, yield int, effect string) map[string]any {
	a := map[string]any{"command": command, "side_effects": []string{effect}, "yield_ms": yield, "owner": owner}
	if name != "" {
		a["name"] = name
	}
	return a
}

const log = `while :; do for p in /cart /checkout /search?q=tea /account; do echo "$(date +%T) GET $p 200 $((1$(date +%N | cut -c1-2) - 96)) ms"; sleep 0.4; done; done`

func (n *night) play(ctx context.Context) error {
	var slow string
	tty := args("/root/builder", "Bundle the front end", "./bundle.sh", 8000, "MODIFIES_WORKSPACE_FILES")
	tty["tty"], tty["cols"], tty["rows"] = true, 90, 16
	limited := args("/root", "Wait for the staging database", "echo connecting to db.staging; sleep 60", 300, "NONE")
	limited["timeout_ms"] = 4000
	for _, s := range []step{
		{"exec", args("/root", "", "ls -la", 5000, "NONE"), nil},
		{"exec", args("/root", "", "git init -q . && git add -A && git -c user.name=Ada -c user.email=ada@example.org commit -qm 'start the shop' && git log --oneline", 5000, "MODIFIES_WORKSPACE_FILES"), nil},
		{"exec", args("/root", "", "grep -rn TODO --include=*.go .", 5000, "NONE"), nil},
		{"exec", args("/root", "", "go vet ./...", 20000, "NONE"), nil},
		{"exec", args("/root/reviewer", "Run the shop's tests", "go test ./... -count=1", 200, "NONE"), &n.failed},
		{"exec", limited, &slow},
		{"exec", tty, &n.terminal},
		{"exec", args("/root/builder", "Serve the shop", log, 300, "MODIFIES_WORKSPACE_FILES"), &n.serving},
		{"exec", args("/root", "Watch the tests", "while :; do date +'%T all tests pass'; sleep 3; done", 300, "NONE"), nil},
		{"exec", args("/root", "", "rm -rf ./dist &", 300, "DELETES_FILES"), nil},
		{"wait", map[string]any{"process_id": &n.failed, "owner": "/root/reviewer", "timeout_ms": 30000}, nil},
		{"wait", map[string]any{"process_id": &slow, "timeout_ms": 10000}, nil},
		{"exec", args("/root", "", "git diff --stat", 5000, "NONE"), nil},
	} {
		id, err := n.tool(s.tool, s.args)
		if err != nil {
			return err
		}
		if s.id != nil {
			*s.id = id
		}
	}
	time.Sleep(4 * time.Second) // so that the picture has something that ran for a while
	return n.name(ctx)
}

// name finds the session's id.
func (n *night) name(ctx context.Context) error {
	line, err := n.command(ctx, "events", "--json", "--filter", "opened").Output()
	if err != nil {
		return err
	}
	var e struct {
		Session string `json:"session"`
		Event   struct {
			Session string `json:"session"`
		} `json:"event"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("reading the session's id of %s: %w", line, err)
	}
	if n.session = e.Session; n.session == "" {
		n.session = e.Event.Session
	}
	return nil
}

// end ends the session: the server stops what runs when its client leaves.
func (n *night) end() error {
	if err := n.in.Close(); err != nil {
		return fmt.Errorf("ending the session: %w", err)
	}
	_ = n.server.Wait() // how it ended is no matter
	return nil
}
