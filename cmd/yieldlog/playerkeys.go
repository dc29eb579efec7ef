package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/charmbracelet/x/term"

	"github.com/yieldlog/yieldlog/replay"
)

// playerKeys lets keys control the player, where a person sits at a terminal.
// What is played goes to out until restore is called.
func (a *app) playerKeys(p *replay.Player, quit func()) (out io.Writer, restore func(), err error) {
	in, isFile := a.in.(*os.File)
	screen, isScreen := a.out.(*os.File)
	if !isFile || !isScreen || !term.IsTerminal(in.Fd()) || !term.IsTerminal(screen.Fd()) {
		return a.out, func() {}, nil
	}
	before, err := term.MakeRaw(in.Fd())
	if err != nil {
		return nil, nil, fmt.Errorf("reading keys: %w", err)
	}
	go readKeys(in, p, quit) // ends with the process
	return rawWriter{screen}, func() {
		// The shell repairs a terminal that cannot be restored.
		_ = term.Restore(in.Fd(), before)
	}, nil
}

func readKeys(in io.Reader, p *replay.Player, quit func()) {
	speed := p.Speed
	key := make([]byte, 1)
	for {
		if _, err := in.Read(key); err != nil {
			return
		}
		switch key[0] {
		case ' ':
			p.Toggle()
		case '.', 's':
			p.Step()
		case '+', '=':
			speed *= 2
			p.SetSpeed(speed)
		case '-':
			speed /= 2
			p.SetSpeed(speed)
		case 'q', 3, 4: // Ctrl-C and Ctrl-D come as bytes here
			quit()
			return
		}
	}
}

// A rawWriter writes to a terminal in raw mode, which does not return the
// carriage by itself.
type rawWriter struct{ w io.Writer }

func (r rawWriter) Write(p []byte) (int, error) {
	lines := bytes.ReplaceAll(bytes.ReplaceAll(p, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
	if _, err := r.w.Write(lines); err != nil {
		return 0, err
	}
	return len(p), nil
}
