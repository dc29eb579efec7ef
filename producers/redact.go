package producers

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

const (
	redacted = "[REDACTED]"
	// minSecret is the shortest value that is redacted, in bytes: a shorter
	// one would hit ordinary text.
	minSecret = 4
	// minLine is the shortest line of a longer value that is redacted by itself.
	minLine = 8
)

// secretValues is the values worth redacting, the longest first. Space around
// a value is no part of it: shells drop it. Of a value of several lines, such as
// a private key, each line is one too: programs indent and number them, and a
// terminal ends them in its own way.
func secretValues(values []string) []string {
	var secrets []string
	for _, v := range values {
		if v = strings.TrimSpace(v); len(v) < minSecret {
			continue
		}
		secrets = append(secrets, v)
		if !strings.Contains(v, "\n") {
			continue
		}
		for line := range strings.SplitSeq(v, "\n") {
			if line = strings.TrimSpace(line); len(line) >= minLine {
				secrets = append(secrets, line)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	return slices.Compact(secrets)
}

// redactor replaces secret values in a stream of bytes, also those that a
// chunk border cuts: it holds back what may be the beginning of one. Values
// that overlap are replaced together. It is for one goroutine.
type redactor struct {
	find *finder
	// held is the end of the stream so far that may begin a secret. Its first
	// covered bytes belong to one that was replaced already.
	held    []byte
	covered int
	out     []byte
}

// newRedactor returns a redactor of the secrets; see [environment.secrets].
func newRedactor(secrets []string) *redactor {
	if len(secrets) == 0 {
		return &redactor{}
	}
	return &redactor{find: newFinder(secrets)}
}

// Write takes the next bytes and returns those that are safe to show so far.
// The result may alias p, and is valid until the next call.
func (r *redactor) Write(p []byte) []byte {
	if r.find == nil {
		return p
	}
	if len(r.held) > 0 {
		p = append(r.held, p...)
	}
	hold := r.find.partial(p)
	out := r.replace(p, hold)
	r.held = append([]byte(nil), p[hold:]...)
	return out
}

// Flush returns what was held back, at the end of the stream.
func (r *redactor) Flush() []byte {
	p := r.held
	r.held = nil
	return r.replace(p, len(p))
}

// replace is p up to end, without secrets. It notes how far one that is not
// longer than p reaches past end.
func (r *redactor) replace(p []byte, end int) []byte {
	from := r.covered // what was not copied yet
	r.covered = 0
	if r.find == nil {
		return p
	}
	r.out = r.out[:0]
	copied := false
	for at := 0; ; {
		start, stop := r.find.next(p, at)
		if start < 0 || start >= end {
			break
		}
		at = start + 1
		if start >= from { // else it continues the secret before
			r.out = append(append(r.out, p[from:start]...), redacted...)
			copied = true
		}
		from = max(from, stop)
	}
	if from >= end {
		r.covered = from - end
		return r.out
	}
	if !copied {
		return p[from:end]
	}
	return append(r.out, p[from:end]...)
}

// whole is a text, all of it, with the secrets replaced.
func (r *redactor) whole(text string) string {
	// The first result lives until the next call.
	out := string(r.Write([]byte(text)))
	return out + string(r.Flush())
}

// finder finds any of several values, skipping most bytes: it looks at the
// last two bytes of a window as long as the shortest value, and shift says how
// far the window can move on because no value has these bytes further right
// (Wu and Manber).
type finder struct {
	secrets [][]byte // the longest first
	window  int
	shift   [pairs]uint8
	first   [256]bool // the bytes that values begin with
}

const pairs = 1 << 12

func pair(a, b byte) uint16 { return (uint16(a)<<5 ^ uint16(b)) % pairs }

func newFinder(secrets []string) *finder {
	f := &finder{window: 1 << 7}
	for _, s := range secrets {
		f.secrets = append(f.secrets, []byte(s))
		f.window = min(f.window, len(s))
		f.first[s[0]] = true
	}
	for i := range f.shift {
		f.shift[i] = uint8(f.window - 1)
	}
	for _, s := range f.secrets {
		for i := 1; i < f.window; i++ {
			h := pair(s[i-1], s[i])
			f.shift[h] = min(f.shift[h], uint8(f.window-1-i))
		}
	}
	return f
}

// next is the first value in p that starts at from or later, the longest one
// there; start is -1 where there is none.
func (f *finder) next(p []byte, from int) (start, stop int) {
	w := f.window - 1
	for i := from + w; i < len(p); {
		if s := f.shift[pair(p[i-1], p[i])]; s > 0 {
			i += int(s)
			continue
		}
		if at := i - w; f.first[p[at]] {
			for _, s := range f.secrets {
				if bytes.HasPrefix(p[at:], s) {
					return at, at + len(s)
				}
			}
		}
		i++
	}
	return -1, -1
}

// partial is where the earliest end of p starts that begins a value and is
// shorter than it; len(p) where there is none.
func (f *finder) partial(p []byte) int {
	longest := len(f.secrets[0])
	for i := max(0, len(p)-longest+1); i < len(p); i++ {
		if !f.first[p[i]] {
			continue
		}
		for _, s := range f.secrets {
			if len(s) <= len(p)-i {
				break
			}
			if bytes.HasPrefix(s, p[i:]) {
				return i
			}
		}
	}
	return len(p)
}
