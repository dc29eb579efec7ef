package producers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SideEffects are the categories that a request declares, in alphabetical order.
var SideEffects = []string{
	"CHANGES_NETWORK_CONFIGURATION", "CHANGES_PACKAGES_OR_DEPENDENCIES",
	"CONSUMES_SIGNIFICANT_RESOURCES", "DELETES_FILES", "EXPOSES_SECRETS",
	"KILLS_AGENT_PROCESS", "MAKES_NETWORK_REQUESTS", "MODIFIES_OS_SETTINGS",
	"MODIFIES_OS_USER_SETTINGS", "MODIFIES_OUTSIDE_WORKSPACE",
	"MODIFIES_PRODUCTION_SERVICES", "MODIFIES_PROTECTED_FILES",
	"MODIFIES_SECURITY_CONTROLS", "MODIFIES_WORKSPACE_FILES", sideEffectNone, "OTHER",
	"RUNS_INLINE_CODE", "RUNS_PRIVILEGED_COMMANDS", "STOPS_OR_RESTARTS_SERVICES",
	"UNKNOWN", "USES_DESTRUCTIVE_GIT_OPERATION",
}

const sideEffectNone = "NONE"

var defaultBlocked = []string{
	"KILLS_AGENT_PROCESS", "MODIFIES_OS_SETTINGS", "MODIFIES_OS_USER_SETTINGS",
	"MODIFIES_PROTECTED_FILES", "RUNS_INLINE_CODE",
}

// saferAction is what to do in place of a blocked category, where it is
// something more telling than [otherAction].
var saferAction = map[string]string{
	"DELETES_FILES":             "make a reversible edit, or move the files aside inside the workspace",
	"KILLS_AGENT_PROCESS":       "leave the agent and its server running; to end a command of your own use stop with its process_id, and declare the category that fits",
	"MODIFIES_OS_SETTINGS":      "keep the change inside the workspace, or write the steps down for a person to apply to the system",
	"MODIFIES_OS_USER_SETTINGS": "use a configuration file inside the workspace, or the env parameter, in place of the user's own settings",
	"MODIFIES_PROTECTED_FILES":  "write to a path inside the workspace that is not protected",
	"RUNS_INLINE_CODE":          "put the code into a reviewable file in the workspace and run that file in a small, inspectable step",
}

const otherAction = "choose a command without this side effect, or ask a person to run it"

// refusal says why a command is not started. It is nil for one that is.
type refusal struct {
	// Reason is a word of [events.Refused].
	Reason string
	// Message is what the caller is told.
	Message string
	// doubt says that the request may be on record: the refusal is its end.
	doubt bool
}

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// check is the policy: it says why the request is refused, or where it runs.
// running counts the commands that run already. It touches nothing but the file
// system's names.
func (c *Config) check(r Request, running int) (dir string, no *refusal) {
	if no := c.checkSideEffects(r.SideEffects); no != nil {
		return "", no
	}
	if no := checkTexts(r); no != nil {
		return "", no
	}
	if !c.AllowBackground && hasBackground(r.Command) {
		return "", refuse("background", "the background operator & is refused: the command would outlive its shell unseen. "+
			"Run it without &, with a small yield_ms: the call then returns a process_id while the command goes on")
	}
	if dir, no = c.workdir(r); no != nil {
		return "", no
	}
	if no := c.checkCommand(r.Command); no != nil {
		return "", no
	}
	if r.Monitor && c.NoMailbox {
		return "", refuse("command", "monitors deliver through the mailbox, which is off (YIELDLOG_MAILBOX): use exec and read")
	}
	return dir, c.limit(running)
}

func (c *Config) checkSideEffects(declared []string) *refusal {
	const reason = "side_effects"
	if len(declared) == 0 {
		return refuse(reason, "side_effects must name at least one category; [\"NONE\"] says that there are none")
	}
	var blocked []string
	for _, e := range declared {
		switch {
		case !slices.Contains(SideEffects, e):
			return refuse(reason, "%q is not a side-effect category; the categories are %s", e, strings.Join(SideEffects, ", "))
		case e == sideEffectNone && !onlyReads(declared):
			return refuse(reason, "NONE cannot be combined with other side effects")
		case slices.Contains(c.Blocked, e) && !slices.Contains(blocked, e):
			blocked = append(blocked, e)
		}
	}
	if len(blocked) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "blocked side effects: %s. The command was stopped by policy before the process started.", strings.Join(blocked, ", "))
	for _, e := range blocked {
		action, ok := saferAction[e]
		if !ok {
			action = otherAction
		}
		fmt.Fprintf(&b, " Safer next action for %s: %s.", e, action)
	}
	return &refusal{Reason: reason, Message: b.String()}
}

// maxPath is the most bytes that Linux takes as a path.
const maxPath = 4<<10 - 1

// maxArgument is the most bytes that Linux takes as one argument or one
// variable of a new process.
const maxArgument = 128<<10 - 1

// checkTexts refuses what no process can be given.
func checkTexts(r Request) *refusal {
	if strings.ContainsRune(r.Command, 0) {
		return refuse("command", "the command has a NUL byte, which no shell can be given")
	}
	if len(r.Command) > maxArgument {
		return refuse("command", "the command is too long: %d bytes, and the system takes at most %d (128 KiB). "+
			"Write it to a file and run that, or pass the data through stdin", len(r.Command), maxArgument)
	}
	if len(r.Name) > refusedText {
		return refuse("command", "the name is too long: %d bytes, and at most %d are kept", len(r.Name), refusedText)
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return refuse("command", "env has the variable %q, whose name or value no process can be given", name)
		}
		if n := len(name) + 1 + len(value); n > maxArgument {
			return refuse("command", "the variable %s is too long: %d bytes, and the system takes at most %d", name, n, maxArgument)
		}
	}
	return nil
}

func (c *Config) checkCommand(command string) *refusal {
	if c.Deny != nil && c.Deny.MatchString(command) {
		return refuse("command", "the command matches the denied pattern %s: it was stopped by policy before the process started", c.Deny)
	}
	if c.Allow != nil && !c.Allow.MatchString(command) {
		return refuse("command", "the command does not match the allowed pattern %s: it was stopped by policy before the process started", c.Allow)
	}
	return nil
}

// limit refuses the next command where running ones have reached the limit.
func (c *Config) limit(running int) *refusal {
	if c.MaxProcesses == 0 || running < c.MaxProcesses {
		return nil
	}
	return refuse("limit", "the limit of %d running commands is reached: wait for one, or stop one", c.MaxProcesses)
}

// workdir is the absolute directory that the request runs in: with roots set
// the resolved one, so that what was checked is what is used.
func (c *Config) workdir(r Request) (string, *refusal) {
	dir := c.DefaultCwd
	if dir == "" {
		dir = workingDir()
	}
	if filepath.IsAbs(r.Cwd) {
		dir = r.Cwd
	} else if r.Cwd != "" {
		dir += string(filepath.Separator) + r.Cwd
	}
	if len(dir) > maxPath { // to follow the links of one that is far too long takes minutes
		return "", refuse("cwd", "the working directory is too long: %d bytes, and the system takes at most %d", len(dir), maxPath)
	}
	real, err := filepath.Clean(dir), error(nil)
	// A .. behind a link leads out of what it points to: links come first.
	if len(c.AllowedCwds) > 0 || slices.Contains(strings.Split(filepath.ToSlash(dir), "/"), "..") {
		real, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", badDir(dir, err)
	}
	if info, err := os.Stat(real); err != nil {
		return "", badDir(dir, err)
	} else if !info.IsDir() {
		return "", refuse("cwd", "the working directory %s is not a directory", dir)
	}
	if len(c.AllowedCwds) == 0 {
		return real, nil
	}
	if !slices.ContainsFunc(c.AllowedCwds, func(root string) bool { return within(root, real) }) {
		return "", refuse("cwd", "the working directory %s is outside the allowed roots %s", dir, strings.Join(c.AllowedCwds, ", "))
	}
	return real, nil
}

func badDir(dir string, err error) *refusal {
	if errors.Is(err, fs.ErrNotExist) {
		return refuse("cwd", "the working directory %s does not exist, or not any more: name another with cwd", dir)
	}
	return refuse("cwd", "the working directory %s cannot be used: %v", dir, err)
}

// within reports whether dir is root or below it; both are resolved.
func within(root, dir string) bool {
	rel, err := filepath.Rel(root, dir)
	return err == nil && filepath.IsLocal(rel)
}
