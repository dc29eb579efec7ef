package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/events/ledger"
)

func newSubscriber(a *app) *cobra.Command {
	var (
		env         bool
		natsContext string
	)
	c := &cobra.Command{
		Use:   "subscriber",
		Short: "Print how other programs connect, to read",
		Long: `Print how any NATS client connects to the ledger: it may subscribe to the events
and get stored ones, and nothing else. docs/subscribing.md has examples.

  eval "$(yieldlog subscriber --env)"          # for the nats command and the examples
  yieldlog subscriber --nats-context yieldlog  # nats --context yieldlog sub 'yieldlog.>'

Somebody must host the ledger for others to connect: an MCP server does, or
yieldlog serve. The port and the password stay the same over restarts.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := a.existing()
			if err != nil {
				return err
			}
			s, err := ledger.ReadSubscriber(dir)
			if err != nil {
				return err
			}
			if c.Flags().Changed("nats-context") {
				return a.writeNATSContext(natsContext, "reading", s.URL, s.User, s.Password)
			}
			return a.printSubscriber(s, env)
		},
	}
	c.Flags().BoolVar(&env, "env", false, "print shell commands that set NATS_URL, NATS_USER and NATS_PASSWORD")
	c.Flags().StringVar(&natsContext, "nats-context", "", "write a context of this name for the nats command")
	return c
}

// envFormat sets what NATS clients read; none of it holds a quote.
const envFormat = "export NATS_URL='%s' NATS_USER='%s' NATS_PASSWORD='%s'\n"

func (a *app) printSubscriber(s ledger.Subscriber, env bool) error {
	if !s.Hosted {
		fmt.Fprintln(a.err, "yieldlog: nobody hosts the ledger now: start an MCP server, or `yieldlog serve`")
	}
	if a.json {
		return a.printJSON("subscriber", s)
	}
	format := "url       %s\nuser      %s\npassword  %s\n"
	if env {
		format = envFormat
	}
	_, err := fmt.Fprintf(a.out, format, s.URL, s.User, s.Password)
	return err
}

// writeNATSContext writes what `nats context add` would.
func (a *app) writeNATSContext(name, what, url, user, password string) error {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return usageError{fmt.Errorf("%q is no name for a context", name)}
	}
	config := os.Getenv("XDG_CONFIG_HOME")
	if config == "" {
		home, err := homeDir()
		if err != nil {
			return fmt.Errorf("looking for the home directory: %w", err)
		}
		config = filepath.Join(home, ".config")
	}
	file := filepath.Join(config, "nats", "context", name+".json")
	data, err := json.MarshalIndent(map[string]string{
		"description": "yieldlog, " + what, "url": url, "user": user, "password": password,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the context: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("making the directory of contexts: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the context: %w", err)
	}
	if a.json {
		return a.printJSON("nats_context", map[string]string{"name": name, "file": file})
	}
	_, err = fmt.Fprintf(a.out, "%s\n", file)
	return err
}
