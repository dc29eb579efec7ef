package producers

import "os"

// environment makes the environments of commands. It is immutable.
type environment struct{}

// newEnvironment captures the process's environment.
func newEnvironment(c *Config, parent []string) *environment { return &environment{} }

// of is the environment of an execution that runs in dir.
func (e *environment) of(execution, dir string, overlay map[string]string) []string {
	return os.Environ()
}

// secrets is the values to redact from the execution's output and command.
func (e *environment) secrets(overlay map[string]string) []string { return nil }

// names is the overlay's variable names, sorted.
func names(overlay map[string]string) []string { return nil }
