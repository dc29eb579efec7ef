package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/yieldlog/yieldlog/producers"
)

func newConfig(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print every setting, its value, and where it came from",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, settings, err := a.config()
			if err != nil {
				return err
			}
			dir, source, err := a.stateDir()
			if err != nil {
				return err
			}
			settings = append([]producers.Setting{{Name: "YIELDLOG_DIR", Value: dir, Source: source}, tokenSetting()}, settings...)
			if a.json {
				return a.printJSON("settings", jsonSettings(settings))
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SETTING\tFROM\tVALUE")
			for _, s := range settings {
				fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Source, s.Value)
			}
			return w.Flush()
		},
	}
}

// tokenEnv is the variable of the HTTP token.
const tokenEnv = "YIELDLOG_HTTP_TOKEN"

// tokenSetting says whether there is a token for HTTP: it is secret.
func tokenSetting() producers.Setting {
	if os.Getenv(tokenEnv) == "" {
		return producers.Setting{Name: tokenEnv, Value: "(a new one at each start)", Source: "default"}
	}
	return producers.Setting{Name: tokenEnv, Value: "(set, not shown)", Source: tokenEnv}
}

func jsonSettings(settings []producers.Setting) []map[string]string {
	list := make([]map[string]string, 0, len(settings))
	for _, s := range settings {
		list = append(list, map[string]string{"name": s.Name, "value": s.Value, "source": s.Source})
	}
	return list
}

// config reads the settings from the environment, and logs what is odd about them.
func (a *app) config() (producers.Config, []producers.Setting, error) {
	cfg, settings, warnings, err := producers.LoadConfig(os.LookupEnv)
	if err != nil {
		return cfg, nil, usageError{err}
	}
	for _, w := range warnings {
		a.logger().Warn(w)
	}
	return cfg, settings, nil
}

// stateDir is the state directory, absolute, and where that came from.
func (a *app) stateDir() (dir, source string, err error) {
	switch {
	case a.dir != "":
		dir, source = a.dir, "--dir"
	case os.Getenv("YIELDLOG_DIR") != "":
		dir, source = os.Getenv("YIELDLOG_DIR"), "YIELDLOG_DIR"
	case filepath.IsAbs(os.Getenv("XDG_STATE_HOME")):
		dir, source = filepath.Join(os.Getenv("XDG_STATE_HOME"), "yieldlog"), "XDG_STATE_HOME"
	default:
		home, err := homeDir()
		if err != nil {
			return "", "", fmt.Errorf("finding the state directory (set YIELDLOG_DIR or --dir): %w", err)
		}
		dir, source = filepath.Join(home, ".local", "state", "yieldlog"), "default"
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", "", fmt.Errorf("finding the state directory: %w", err)
	}
	return dir, source, nil
}

// homeDir is the user's home directory. Not everybody sets HOME: systemd does not.
func homeDir() (string, error) {
	home, err := os.UserHomeDir()
	if err == nil {
		return home, nil
	}
	if u, lookup := user.Current(); lookup == nil && u.HomeDir != "" {
		return u.HomeDir, nil
	}
	return "", err
}

// logger logs to stderr; stdout is the protocol.
func (a *app) logger() *slog.Logger {
	level := slog.LevelWarn
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}
