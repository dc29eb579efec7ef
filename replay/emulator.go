package replay

import (
	"bytes"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// Emulator is a virtual terminal of the size. However often a sequence says to
// repeat something, it does so a screen's worth of times at most, and margins
// are within the screen. Write to it with [Feed].
func Emulator(cols, rows int) *vt.Emulator {
	t := vt.NewEmulator(cols, rows)
	for _, f := range "IZX@PLMSTb" { // CSI n f does something n times
		bound(t, f, func() int { return max(t.Width(), t.Height()) })
	}
	bound(t, 'r', t.Height)
	bound(t, 's', t.Width)
	return t
}

// bound bounds the parameters of CSI ... f. The terminal's own handler takes
// them from there.
func bound(t *vt.Emulator, f rune, most func() int) {
	t.RegisterCsiHandler(int(f), func(params ansi.Params) bool {
		for i, p := range params {
			if p.Param(0) > most() {
				params[i] = ansi.Param(most())
			}
		}
		return false
	})
}

// Feed writes to an emulator. Bytes over which it stumbles end what it takes of p.
func Feed(t *vt.Emulator, p []byte) {
	defer func() { _ = recover() }() // a bug in the emulator must not end a program that shows a screen
	_, _ = t.Write(p)                // it takes everything
}

// screenWork bounds what it may cost to make a screen, in cells that are
// touched: some tenths of a second.
const screenWork = 50_000_000

// affordable is the end of a terminal's output that makes a screen of the size
// at a bounded cost. What it leaves out has nearly always been scrolled away:
// scrolling is what costs.
func affordable(data []byte, cols, rows int) []byte {
	var total int64
	for rest := data; len(rest) > 0; {
		n, cost := control(rest, int64(cols), int64(rows))
		rest, total = rest[n:], total+cost
	}
	for total > screenWork {
		n, cost := control(data, int64(cols), int64(rows))
		data, total = data[n:], total-cost
	}
	return data
}

// control is the length of the character or sequence that data begins with, and
// about what it costs.
func control(data []byte, cols, rows int64) (n int, cost int64) {
	screen := cols * rows
	switch {
	case data[0] >= '\n' && data[0] <= '\f':
		return 1, screen
	case data[0] != 0x1b:
		return 1, 1 + rows // a line of them scrolls
	case len(data) == 1:
		return 1, 1
	case data[1] != '[':
		if bytes.IndexByte([]byte("DEMc#"), data[1]) >= 0 {
			return 2, screen
		}
		return 2, 1
	}
	n = 2
	for n < len(data) && data[n] >= 0x20 && data[n] < 0x40 {
		n++
	}
	if n == len(data) {
		return n, 1
	}
	switch f := data[n]; {
	case f == 'h' || f == 'l': // only those of another screen or width draw
		if p := data[2:n]; bytes.Contains(p, []byte("47")) || bytes.Contains(p, []byte("104")) || bytes.HasSuffix(p, []byte("?3")) {
			return n + 1, screen
		}
		return n + 1, 1
	case bytes.IndexByte([]byte("LMSTJb"), f) >= 0:
		return n + 1, screen
	case bytes.IndexByte([]byte("IZX@PK"), f) >= 0:
		return n + 1, cols
	}
	return n + 1, 1
}
