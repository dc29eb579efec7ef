package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageArgs is check with its failure marked as a wrong use, and told as the
// right one.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case check(c, args) == nil:
			return nil
		case c.HasSubCommands() && len(args) > 0:
			return unknownCommand(c, args[0])
		default:
			return usageError{fmt.Errorf("wrong arguments: the usage is %s", c.UseLine())}
		}
	}
}

// unknownCommand says which commands of c may have been meant.
func unknownCommand(c *cobra.Command, name string) error {
	if near := c.SuggestionsFor(name); len(near) > 0 {
		return usageError{fmt.Errorf("unknown command %q: is it %s?", name, strings.Join(near, " or "))}
	}
	return usageError{fmt.Errorf("unknown command %q: see `%s --help`", name, c.CommandPath())}
}

// flagError marks what is wrong with the flags as a wrong use.
func flagError(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	return usageError{fmt.Errorf("%w (see `%s --help`)", err, c.CommandPath())}
}

// onlyText is the annotation of commands that print no facts, and says what
// prints theirs as JSON.
const onlyText = "only-text"

// checkUse refuses what no command can mean.
func (a *app) checkUse(c *cobra.Command, _ []string) error {
	if hint, ok := c.Annotations[onlyText]; ok && a.json {
		return usageError{fmt.Errorf("%s prints no JSON: %s", c.CommandPath(), hint)}
	}
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		if isNumber(f.Value.Type()) && strings.HasPrefix(f.Value.String(), "-") {
			err = errors.Join(err, usageError{fmt.Errorf("--%s must not be negative", f.Name)})
		}
	})
	return err
}

// isNumber reports whether a flag of the type is a number or a duration.
func isNumber(kind string) bool {
	return strings.HasPrefix(kind, "int") || kind == "duration"
}

// completeWith completes a flag's value with words, and with no file.
func completeWith(c *cobra.Command, flag string, words ...string) {
	// It fails for a flag that is not there, and then completes nothing.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// newHelp is cobra's help, which knows what it cannot help with.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say more about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return usageError{err}
			}
			if len(rest) > 0 {
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var list []string
			for _, c := range root.Commands() {
				if c.IsAvailableCommand() {
					list = append(list, c.Name())
				}
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
