package cockpit

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"golang.org/x/sync/errgroup"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/cockpit/quiet"
	"github.com/yieldlog/yieldlog/replay/look"
)

func init() { quiet.Restore() }

// Options say what the cockpit shows, and what it may do.
type Options struct {
	Ledger *ledger.Ledger
	// Stop asks the process of a session to end an execution; nil: there is no stop.
	Stop func(ctx context.Context, session, owner, execution string) error
	// In and Out are the terminal.
	In  io.Reader
	Out io.Writer
}

// Run shows the cockpit until it is left, or ctx ends.
func Run(ctx context.Context, o Options) error {
	// Before the program reads keys, for the answer comes as keys.
	lipgloss.SetHasDarkBackground(termenv.NewOutput(o.Out).HasDarkBackground())
	scene := look.NewScene()
	g, running := errgroup.WithContext(ctx)
	running, leave := context.WithCancel(running)
	defer leave()
	g.Go(func() error { return scene.Live(running, o.Ledger, events.Filter{}) })
	g.Go(func() error {
		defer leave()
		// Quit, and not a context, ends the program: it then waits for its reader.
		p := tea.NewProgram(newModel(running, o, scene), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithAltScreen(), tea.WithoutSignalHandler())
		stop := context.AfterFunc(running, p.Quit)
		defer stop()
		if _, err := p.Run(); err != nil {
			return fmt.Errorf("running the cockpit: %w", err)
		}
		return nil
	})
	return g.Wait()
}

// pace is the time between two looks at the scene.
const pace = 125 * time.Millisecond

// tickMsg says that it is time to look again.
type tickMsg time.Time

func tick() tea.Cmd {
	return tea.Tick(pace, func(t time.Time) tea.Msg { return tickMsg(t) })
}
