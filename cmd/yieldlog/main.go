// Command yieldlog runs shell commands for AI agents and keeps a durable,
// replayable ledger of everything that happened.
//
// Each subcommand is one file that wires packages together; what they do lives
// in those packages. This file maps errors to exit codes and to JSON, the only
// place that does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/yieldlog/yieldlog/events/ledger"
)

func main() {
	tuneRuntime()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is main with its surroundings passed in; it returns the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	// A reader that goes away (| head) ends a command, it is no crash.
	signal.Ignore(syscall.SIGPIPE)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup means that it goes on
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), ends...)
	defer cancel()
	a := &app{in: in, out: out, err: errOut}
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if errors.As(err, new(usageError)) { // flags are read up to the first wrong one
		a.json = a.json || asksJSON(args)
	}
	return a.report(err)
}

// asksJSON reports whether --json is among the flags.
func asksJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// Errors that a subcommand returns to choose its exit code.
var (
	errNoLedger  = errors.New("no ledger")
	errNotFound  = errors.New("not found")
	errAmbiguous = errors.New("ambiguous")
	errFindings  = errors.New("findings")
)

// usageError marks a wrong use: flags, arguments, settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// statusError ends yieldlog with the exit status of the command that it ran.
type statusError struct{ code int }

func (e statusError) Error() string { return fmt.Sprintf("the command ended with status %d", e.code) }

// notStartedError marks why exec did not start its command, whose own statuses
// are all others.
type notStartedError struct{ error }

func (e notStartedError) Unwrap() error { return e.error }

// An exit is one way to end: the help lists them, and --json prints the word.
type exit struct {
	code    int
	word    string
	meaning string
	is      func(error) bool
}

// exits is in order of precedence; the last one takes every error.
var exits = []exit{
	{0, "ok", "success", func(err error) bool { return err == nil || errors.Is(err, syscall.EPIPE) }},
	{2, "usage", "wrong flags, arguments or settings", func(err error) bool { return errors.As(err, new(usageError)) }},
	{3, "not_found", "no such session or execution, the id is ambiguous, or grep found nothing", func(err error) bool {
		return errors.Is(err, errNotFound) || errors.Is(err, errAmbiguous)
	}},
	{4, "no_ledger", "the state directory holds no ledger", func(err error) bool {
		return errors.Is(err, errNoLedger) || errors.Is(err, ledger.ErrNoLedger)
	}},
	{5, "findings", "verify or doctor found something wrong", isErr(errFindings)},
	{6, "damaged", "the ledger is damaged and was not opened; see yieldlog doctor", isErr(ledger.ErrDamaged)},
	{1, "error", "anything else that failed, or diff found a difference", func(error) bool { return true }},
}

func isErr(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// exitHelp is the part of the help that lists the exit codes.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exits {
		fmt.Fprintf(&b, "  %d  %s\n", e.code, e.meaning)
	}
	b.WriteString("  exec passes the status of its command on; 125 means that it could not start\n")
	return b.String()
}

// report tells the user about err, once, and returns the exit code.
func (a *app) report(err error) int {
	var status statusError
	if errors.As(err, &status) {
		return status.code
	}
	for _, e := range exits {
		if !e.is(err) {
			continue
		}
		if errors.As(err, new(notStartedError)) {
			e.code = exitNotStarted
		}
		if e.code != 0 {
			a.tell(e, err)
		}
		return e.code
	}
	return 1
}

func (a *app) tell(e exit, err error) {
	if !a.json {
		fmt.Fprintf(a.err, "yieldlog: %v\n", err)
		return
	}
	// Nothing is left to do if stderr is gone too.
	_ = json.NewEncoder(a.err).Encode(map[string]any{
		"schema": jsonSchema, "error": e.word, "message": err.Error(), "exit_code": e.code,
	})
}
