package main

import (
	"fmt"
	"html"
	"image/color"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/yieldlog/yieldlog/replay/chromium"
)

// The size of the terminal in characters: the smallest that must do.
const (
	cols = 80
	rows = 24
)

// cockpit takes a picture of yieldlog top on a real terminal.
func (c camera) cockpit(n *night) error {
	cmd := n.command(c.ctx, "top")
	cmd.Stderr = nil
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		return fmt.Errorf("running the cockpit: %w", err)
	}
	defer master.Close()
	t := terminal{screen: vt.NewEmulator(cols, rows)}
	t.screen.SetDefaultForegroundColor(color.RGBA{0xe4, 0xe6, 0xe8, 0xff})
	t.screen.SetDefaultBackgroundColor(color.RGBA{0x15, 0x18, 0x1b, 0xff})
	go t.draw(master)            // ends with the terminal
	go io.Copy(master, t.screen) //nolint:errcheck // answers queries until the program ends
	for _, keys := range []string{"", "j", "\r", "G", "g", "j"} {
		if _, err := master.WriteString(keys); err != nil {
			return fmt.Errorf("pressing keys: %w", err)
		}
		time.Sleep(time.Second) // a person's pace
	}
	page := filepath.Join(n.dir, "cockpit.html")
	if err := os.WriteFile(page, []byte(t.page()), 0o600); err != nil {
		return fmt.Errorf("drawing the cockpit: %w", err)
	}
	if _, err := master.WriteString("q"); err != nil {
		return fmt.Errorf("pressing keys: %w", err)
	}
	_ = cmd.Wait() // it was asked to end
	look := chromium.Look{Width: 820, Height: 530, Scale: 1.5, Dark: true}
	return c.take(shot{"cockpit", (&url.URL{Scheme: "file", Path: page}).String(), `document.querySelector("pre")`, look, 0})
}

// terminal is the screen that the cockpit draws on.
type terminal struct {
	mu     sync.Mutex
	screen *vt.Emulator
}

func (t *terminal) draw(from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		t.mu.Lock()
		_, _ = t.screen.Write(buf[:n]) // it takes everything
		t.mu.Unlock()
	}
}

// page is the screen as HTML.
func (t *terminal) page() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	b.WriteString(`<!doctype html><meta charset="utf-8"><style>body{margin:0;background:#15181b}pre{margin:18px;font:16px/20px "DejaVu Sans Mono",monospace;color:#e4e6e8}b{font-weight:700}</style><pre>`)
	for y := range rows {
		for x := 0; x < cols; x++ {
			cell := t.screen.CellAt(x, y)
			if cell == nil || cell.Content == "" {
				b.WriteByte(' ')
				continue
			}
			style := ""
			if cell.Style.Fg != nil {
				r, g, bl, _ := cell.Style.Fg.RGBA()
				style += fmt.Sprintf("color:#%02x%02x%02x;", r>>8, g>>8, bl>>8)
			}
			if cell.Style.Attrs&1 != 0 { // bold
				style += "font-weight:700"
			}
			fmt.Fprintf(&b, `<span style="%s">%s</span>`, style, html.EscapeString(cell.Content))
			x += max(cell.Width, 1) - 1
		}
		b.WriteByte('\n')
	}
	return b.String() + "</pre>"
}
