package cockpit

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/replay"
)

// recording is an execution that plays on the screen of a virtual terminal. It
// owns a goroutine that plays and one that swallows what the terminal answers.
type recording struct {
	title  string
	player replay.Player
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	screen *vt.Emulator
	tty    bool
	at     time.Duration
	speed  float64
	paused bool
	done   string
}

// playIdle is the longest pause of a recording.
const playIdle = 2 * time.Second

// startPlay plays the execution under the cursor.
func (m *model) startPlay() {
	r, ok := m.row()
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	cols, rows := max(m.width, 20), max(m.height-2, 4)
	p := &recording{title: r.Title, stop: cancel, screen: replay.Emulator(cols, rows), speed: 1}
	p.player.IdleLimit = playIdle
	p.wg.Go(p.swallow)
	frames := replay.Timeline(ctx, m.opts.Ledger, events.Filter{Session: r.Session, ID: r.ID}, 0)
	p.wg.Go(func() {
		err := p.player.Play(ctx, frames, p.show)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.done = "end"
		if err != nil && ctx.Err() == nil {
			p.done = "cannot be read"
		}
	})
	m.play, m.mode = p, modePlay
}

// endPlay ends the recording and waits for its goroutines.
func (m *model) endPlay() {
	if m.play == nil {
		return
	}
	m.play.close()
	m.play, m.mode = nil, modeList
}

func (p *recording) close() {
	p.stop()
	p.mu.Lock()
	if pipe, ok := p.screen.InputPipe().(io.Closer); ok {
		_ = pipe.Close() // ends swallow; the terminal's own Close races with its Read
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// swallow reads what the virtual terminal answers to queries: nobody asked.
func (p *recording) swallow() {
	buf := make([]byte, 256)
	for {
		if _, err := p.screen.Read(buf); err != nil {
			return
		}
	}
}

// show draws a frame on the screen.
func (p *recording) show(f replay.Frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = f.At
	switch b := f.Body.(type) {
	case events.Requested:
		p.tty = b.TTY != nil
		if b.TTY != nil && b.TTY.Cols > 0 && b.TTY.Rows > 0 {
			p.screen.Resize(min(b.TTY.Cols, p.screen.Width()), min(b.TTY.Rows, p.screen.Height()))
		}
	case events.Output:
		text := string(b.Data)
		if !p.tty {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		replay.Feed(p.screen, []byte(text))
	}
	return nil
}

func (p *recording) toggle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = !p.paused
	p.player.Toggle()
}

func (p *recording) faster(by float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speed = min(max(p.speed*by, 0.25), 64)
	p.player.SetSpeed(p.speed)
}

// lines is the screen, of which only characters and colours are left.
func (p *recording) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := strings.Split(p.screen.Render(), "\n")
	for i, line := range lines {
		lines[i] = onlyColours(line)
	}
	return lines
}

// onlyColours drops every escape sequence but those that set colours, and every
// control character: links, for one.
func onlyColours(line string) string {
	var b strings.Builder
	var state byte
	for len(line) > 0 {
		seq, width, n, next := ansi.DecodeSequence(line, state, nil)
		if width > 0 || (strings.HasPrefix(seq, "\x1b[") && strings.HasSuffix(seq, "m") && strings.Trim(seq[2:len(seq)-1], "0123456789;:") == "") {
			b.WriteString(seq)
		}
		line, state = line[n:], next
	}
	return b.String() + ansi.ResetStyle
}
