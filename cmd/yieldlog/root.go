package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/replay"
)

// jsonSchema is the version of everything that --json prints. It grows when a
// field changes its meaning or goes; new fields alone do not change it.
const jsonSchema = replay.EventSchema

// app is what the subcommands share: the streams and the flags that all take.
type app struct {
	in       io.Reader
	out, err io.Writer
	dir      string
	json     bool
	verbose  bool
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "yieldlog",
		Short: "Run shell commands for AI agents, and keep a ledger of everything that happened",
		Long: `yieldlog runs shell commands for AI agents, over MCP, and keeps a durable,
replayable ledger of everything that happened.

` + exitHelp(),
		Version:       versionLine(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usageArgs(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },

		PersistentPreRunE: a.checkUse,
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("{{.Version}}")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(newHelp(root))
	root.SuggestionsMinimumDistance = 2
	root.PersistentFlags().StringVar(&a.dir, "dir", "", "state directory (default $YIELDLOG_DIR, or yieldlog below $XDG_STATE_HOME)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, with its schema version")
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "log more to stderr")
	addGroup(root, "Run commands", newMCP(a), newExec(a), newStop(a), newDemo(a))
	addGroup(root, "Look", newPs(a), newShow(a), newLogs(a), newEvents(a), newReplay(a), newGrep(a), newSessions(a), newMailbox(a), newDiff(a), newReport(a), newWeb(a), newTop(a))
	addGroup(root, "Share", newExport(a), newImport(a), newSubscriber(a), newSink(a), newOn(a))
	addGroup(root, "Look after the ledger", newVerify(a), newDoctor(a), newServe(a), newPrune(a), newPack(a), newRotate(a), newFork(a), newRewind(a))
	root.AddCommand(newConfig(a), newVersion(a))
	strictCompletion(root)
	return root
}

// strictCompletion makes cobra's completion command refuse what it does not know.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Args = usageArgs(cobra.NoArgs)
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		for _, shell := range c.Commands() {
			shell.Args = usageArgs(cobra.NoArgs)
		}
	}
}

// addGroup adds commands under a title of their own in the help.
func addGroup(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// printJSON prints v under its name, beside the schema version.
func (a *app) printJSON(name string, v any) error {
	return a.printLine(map[string]any{"schema": jsonSchema, name: v})
}

// printLine prints v as one line of JSON.
func (a *app) printLine(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
