package producers

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

// refusal says why a command is not started. It is nil for one that is.
type refusal struct {
	// Reason is a word of [events.Refused].
	Reason string
	// Message is what the caller is told.
	Message string
}

// check is the policy: it says why the request is refused, or nil. running
// counts the commands that run already.
func (c *Config) check(r Request, running int) *refusal {
	return c.limit(running)
}

// limit refuses the next command where running ones have reached the limit.
func (c *Config) limit(running int) *refusal { return nil }

// workdir is the absolute directory that the request runs in.
func (c *Config) workdir(r Request) (string, *refusal) { return c.DefaultCwd, nil }
