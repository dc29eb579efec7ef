package producers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Config is every setting of the server. A zero field means what it says
// (no limit, no pattern, nothing blocked); [DefaultConfig] is what the server
// uses when nothing is set. A Config is immutable once a session has it.
type Config struct {
	// DefaultCwd is the directory of commands that name none. "" is the
	// directory of the process.
	DefaultCwd string
	// AllowedCwds are the resolved roots that every command must run under.
	// None means anywhere.
	AllowedCwds []string
	// Blocked are the side-effect categories that are refused.
	Blocked []string
	// Deny refuses the commands that it matches anywhere, and Allow, if set,
	// those that it does not match. Deny wins.
	Deny, Allow *regexp.Regexp
	// RedactEnv matches the names of variables whose values are replaced in
	// output and command text. nil replaces nothing.
	RedactEnv *regexp.Regexp

	// MaxProcesses bounds the commands that run at a time; 0 is no bound.
	MaxProcesses int
	// MaxOutputBytes is the default and the most that one answer holds of one
	// stream, in bytes; 0 is no bound.
	MaxOutputBytes int
	// OutputLimit is the most output that one command may write, in bytes: it
	// is ended past that. 0 is no limit.
	OutputLimit int64
	// DefaultYield is how long a call waits before it returns with a handle,
	// and MaxYield the longest that a caller may ask for.
	DefaultYield, MaxYield time.Duration
	// DefaultTimeout ends commands that name no timeout; 0 is never.
	DefaultTimeout time.Duration
	// StallTimeout ends a command whose output could not be recorded for so
	// long; 0 is never.
	StallTimeout time.Duration

	// Shell is the program and its arguments, which the command text follows.
	// None is the platform's shell.
	Shell []string
	// NoLanes lets every command overlap with every other.
	NoLanes bool
	// NoMailbox posts no completions and monitor batches.
	NoMailbox bool
	// LeaveDescendants lets processes that outlive their shell run on until
	// the server ends.
	LeaveDescendants bool
	// AllowBackground lets the shell's background operator pass.
	AllowBackground bool
	// InheritEnv leaves out the deterministic defaults of the environment.
	InheritEnv bool

	// RelaxedSync lets appends be acknowledged before they are on disk.
	RelaxedSync bool
	// MaxBytes bounds the ledger, and FreeFloor is the free space below which
	// new commands are refused, both in bytes; 0 is the ledger's default.
	MaxBytes, FreeFloor int64
}

// Setting is one setting as it is in force.
type Setting struct {
	// Name is the variable's first name, YIELDLOG_...
	Name string
	// Value is its text form.
	Value string
	// Source is the variable that it was read from, or "default".
	Source string
}

// leastLedger is the least that a ledger may be bounded to, in bytes: in less it
// cannot be.
const leastLedger = 1 << 20

// DefaultConfig is the configuration when nothing is set.
func DefaultConfig() Config {
	cfg, _, _, err := LoadConfig(func(string) (string, bool) { return "", false })
	if err != nil {
		panic(err) // the defaults are constants
	}
	return cfg
}

// LoadConfig reads the configuration from the environment. Each setting has
// three names, the first that is set and not empty wins: YIELDLOG_X,
// YIELDSHELL_X, MCP_YIELDSHELL_X. Numbers that are none fall back to the
// default with a warning; whatever else is invalid is an error that names the
// variable.
func LoadConfig(getenv func(string) (string, bool)) (Config, []Setting, []string, error) {
	l := loader{getenv: getenv}
	cfg := Config{
		DefaultCwd:  l.dir("DEFAULT_CWD"),
		AllowedCwds: l.roots("ALLOWED_CWDS"),
		Blocked:     l.categories("BLOCKED_SIDE_EFFECTS", defaultBlocked),
		Deny:        l.pattern("DENY_COMMAND_REGEX", ""),
		Allow:       l.pattern("ALLOW_COMMAND_REGEX", ""),
		RedactEnv:   l.pattern("REDACT_ENV_REGEX", "TOKEN|KEY|SECRET|PASSWORD"),

		MaxProcesses:   int(l.number("MAX_PROCESSES", 50, 1)),
		MaxOutputBytes: int(l.number("MAX_OUTPUT_BYTES", 20000, 1)),
		OutputLimit:    l.number("OUTPUT_LIMIT_BYTES", 64<<20, 1),
		DefaultYield:   l.millis("DEFAULT_YIELD_MS", 5*time.Second),
		MaxYield:       l.millis("MAX_YIELD_MS", 5*time.Minute),
		DefaultTimeout: l.millis("DEFAULT_TIMEOUT_MS", 0),
		StallTimeout:   l.millis("STALL_TIMEOUT_MS", 0),

		Shell:            l.shell("SHELL"),
		NoLanes:          l.word("LANES", "on", "off") == "off",
		NoMailbox:        l.word("MAILBOX", "on", "off") == "off",
		LeaveDescendants: l.word("DESCENDANTS", "terminate", "leave") == "leave",
		AllowBackground:  l.word("BACKGROUND_OPERATORS", "refuse", "allow") == "allow",
		InheritEnv:       l.word("CHILD_ENV", "stable", "inherit") == "inherit",

		RelaxedSync: l.word("SYNC", "always", "relaxed") == "relaxed",
		MaxBytes:    l.number("MAX_BYTES", 10<<30, leastLedger),
		FreeFloor:   l.number("FREE_FLOOR_BYTES", 256<<20, 0),
	}
	cfg.DefaultYield = min(cfg.DefaultYield, cfg.MaxYield)
	l.millis("POLL_WINDOW_MS", time.Minute) // taken, and told: here what ended can be polled until cleanup anyway
	return cfg, l.settings, l.warnings, l.err
}

// delays is how long the request's call waits before it yields, and after how
// long the command is ended (0 is never): what was asked for, within the bounds.
func (c *Config) delays(r Request) (yield, timeout time.Duration) {
	yield, timeout = r.Yield, r.Timeout
	if yield < 0 {
		yield = c.DefaultYield
	}
	if timeout < 0 {
		timeout = c.DefaultTimeout
	}
	return min(yield, c.MaxYield), timeout
}

// ShellCommand is the argument vector that runs the command text.
func (c *Config) ShellCommand(command string) []string {
	shell := c.Shell
	if len(shell) == 0 {
		shell = defaultShell()
	}
	if strings.HasPrefix(command, "-") || strings.HasPrefix(command, "+") {
		command = " " + command // else the shell takes it for its own options
	}
	return append(append(make([]string, 0, len(shell)+1), shell...), command)
}

func defaultShell() []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd.exe", "/C"}
	}
	return []string{"/bin/sh", "-c"}
}

// workingDir is the process's directory, or "." where it is gone.
func workingDir() string {
	if dir, err := os.Getwd(); err == nil {
		return dir
	}
	return "."
}

// resolve is the path absolute, clean and without symbolic links.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("making %q absolute: %w", path, err)
	}
	return filepath.EvalSymlinks(abs)
}

// splitList is the entries of a list, without blanks around them and without
// the empty ones.
func splitList(s, sep string) []string {
	var list []string
	for _, e := range strings.Split(s, sep) {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}
