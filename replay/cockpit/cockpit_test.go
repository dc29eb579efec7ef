//go:build unix

package cockpit

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay/look/looktest"
)

// patience bounds the wait for what the screen should show. It is no measure of
// speed: the machine may be busy.
const patience = 2 * time.Minute

// terminal is a real terminal of 80 x 24 with the cockpit on it, and a person
// before it.
type terminal struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	screen *vt.Emulator
	change chan struct{}
	ended  chan error
}

func sit(t *testing.T, l *ledger.Ledger, stop func(context.Context, string, string, string) error) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip("skipped: no terminal can be had here: ", err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 24, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	// Raw here, and a plain reader for bubbletea: it gives up waiting for a
	// reader of a file after half a second, which a busy machine can take.
	if _, err := term.MakeRaw(slave.Fd()); err != nil {
		t.Fatal(err)
	}
	v := &terminal{t: t, master: master, screen: vt.NewEmulator(80, 24), change: make(chan struct{}, 1), ended: make(chan error, 1)}
	go v.read()
	go v.answer()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		v.ended <- Run(ctx, Options{Ledger: l, Stop: stop, In: struct{ io.Reader }{slave}, Out: slave})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-v.ended; err != nil {
			t.Errorf("the cockpit ended with: %v", err)
		}
		master.Close()
		v.screen.InputPipe().(io.Closer).Close()
	})
	return v
}

// read draws what comes; it ends when the terminal is closed.
func (v *terminal) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := v.master.Read(buf)
		if err != nil {
			return
		}
		v.mu.Lock()
		_, _ = v.screen.Write(buf[:n])
		v.mu.Unlock()
		select {
		case v.change <- struct{}{}:
		default:
		}
	}
}

// answer sends back what the terminal answers.
func (v *terminal) answer() { _, _ = io.Copy(v.master, v.screen) }

func (v *terminal) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.screen.String()
}

// see waits until the screen shows all of the texts, and none that begins with "!".
func (v *terminal) see(texts ...string) {
	v.t.Helper()
	deadline := time.After(patience)
	for {
		screen, all := v.text(), true
		for _, text := range texts {
			if not, ok := strings.CutPrefix(text, "!"); ok {
				all = all && !strings.Contains(screen, not)
			} else {
				all = all && strings.Contains(screen, text)
			}
		}
		if all {
			return
		}
		select {
		case <-v.change:
		case <-deadline:
			v.t.Fatalf("the screen does not show %q:\n%s", texts, screen)
		}
	}
}

func (v *terminal) press(keys string) {
	v.t.Helper()
	if _, err := v.master.WriteString(keys); err != nil {
		v.t.Fatal(err)
	}
}

// picture keeps the screen as text, if somebody wants it.
func (v *terminal) picture(name string) {
	if dir := os.Getenv("YIELDLOG_PICTURES"); dir != "" {
		v.mu.Lock()
		defer v.mu.Unlock()
		_ = os.WriteFile(filepath.Join(dir, name+".txt"), []byte(v.screen.String()), 0o600)
	}
}

const (
	down  = "\x1b[B"
	enter = "\r"
	esc   = "\x1b"
)

func TestCockpitOnARealTerminal(t *testing.T) {
	l := looktest.Open(t)
	b, _, running := looktest.Night(t, l)
	stopped := make(chan string, 1)
	v := sit(t, l, func(_ context.Context, _, _, execution string) error {
		stopped <- execution
		return nil
	})
	v.see("3 commands running", "1 queued", "2 agents", "Watch the build", "timed out", "exit 1", "q quit")
	v.picture("cockpit")

	// The inspector opens in place, shows the output, and takes new output in.
	v.press(down + down + enter)
	v.see("│ make watch", "[watch] done in 1.2s", "in /home/ada/shop")
	v.picture("cockpit-inspector")
	running.Out("[watch] something new\n")
	v.see("something new")

	// Stop asks first.
	v.press("s")
	v.see("Stop Watch the build?")
	v.press("n")
	v.see("Nothing was stopped")
	v.press("s")
	v.see("Stop Watch the build?")
	v.press("y")
	select {
	case got := <-stopped:
		if got != running.ID {
			t.Errorf("stopped %s", got)
		}
	case <-time.After(patience):
		t.Fatal("the stop did not come")
	}
	running.Stop()
	b.Sync()
	v.see("2 commands running", "■ stopped    Watch the build", "│ make watch") // the inspector stays

	// Search, the full output, a recording.
	v.press("/shop's")
	v.see("/shop's", "Run the shop's tests", "!Crawl the docs")
	v.press(enter + "g")
	v.press("j")
	v.press("o")
	v.see("TestCheckout", "checkout_test.go:88", "g G ends")
	v.press("q")
	v.see("? help", "!TestCheckout") // as it was before
	v.press("p")
	v.see("space pause", "TestCheckout", "end")
	v.picture("cockpit-replay")
	v.press("q")
	v.see("? help")
	v.press("?")
	v.see("any key goes back")
	v.press("x")
	v.see("q quit")
	v.press("q")
	select {
	case err := <-v.ended:
		v.ended <- err
	case <-time.After(patience):
		t.Fatal("q did not quit")
	}
}

func TestCockpitIsNotSteered(t *testing.T) {
	const hostile = "\x1b]0;owned\x07\x1b[2J\x1b[?1049l\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\\x1b[6n\x00\x7f\u202eend"
	l := looktest.Open(t)
	b := looktest.NewBook(t, l, time.Now())
	r := b.Start("/root/a", "name "+hostile, "echo "+hostile)
	r.Out(hostile + " printed\n")
	b.Sync()
	v := sit(t, l, nil)
	v.see("1 command running", "name ")
	v.press(enter)
	v.see("printed", "│ ")
	v.press("p")
	v.see("space pause", "printed")
	v.press("q")
	v.see("? help", "1 command running")
}

func TestOnlyColoursAreLeft(t *testing.T) {
	in := "\x1b[31mred\x1b[0m \x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\\x1b[2J\x07\x1b[6nä"
	if got, want := onlyColours(in), "\x1b[31mred\x1b[0m linkä\x1b[m"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
