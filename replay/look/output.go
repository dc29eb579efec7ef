package look

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// Piece is a run of output of one stream, as harmless text.
type Piece struct {
	// Stream is stdout, stderr or tty.
	Stream string
	Text   string
}

// Output is a part of an execution's output: bytes [From, To) of End.
type Output struct {
	Pieces        []Piece
	From, To, End int64
	// Gone counts the bytes of the range that were pruned.
	Gone int64
}

// Empty reports whether there is nothing to show.
func (o Output) Empty() bool { return len(o.Pieces) == 0 }

// Text is the pieces in one.
func (o Output) Text() string {
	var b strings.Builder
	for _, p := range o.Pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}

// ReadOutput reads the output bytes [from, to) of an execution, as far as they
// were there at the moment until; a zero until is now. It claims nothing.
func ReadOutput(ctx context.Context, l *ledger.Ledger, p projections.Process, from, to int64, until time.Time) (Output, error) {
	o := Output{From: max(from, 0), End: p.Offset}
	o.To = o.From
	var runs []run
	for e, err := range l.Output(ctx, p.Session, p.Execution, o.From, to) {
		if err != nil {
			return o, fmt.Errorf("reading the output of %s: %w", p.Execution, err)
		}
		c, ok := e.Body.(events.Output)
		if !ok || (!until.IsZero() && e.Time.After(until)) {
			continue
		}
		o.Gone += max(c.Offset-o.To, 0)
		runs = appendRun(runs, c)
		o.To = c.End()
	}
	o.Gone += p.PrunedIn(o.To, to) // at the end
	o.End = max(o.End, o.To)
	for i, r := range runs {
		if i == 0 && o.From > 0 {
			r.data = trimStart(r.data)
		}
		if text := Text(r.data); text != "" {
			o.Pieces = append(o.Pieces, Piece{Stream: string(r.stream), Text: text})
		}
	}
	return o, nil
}

// run is bytes that came from one stream without a break. An escape sequence
// or a character may be spread over several chunks, so they are joined first.
type run struct {
	stream events.Kind
	data   []byte
}

func appendRun(runs []run, c events.Output) []run {
	if n := len(runs); n > 0 && runs[n-1].stream == c.Stream {
		runs[n-1].data = append(runs[n-1].data, c.Data...)
		return runs
	}
	return append(runs, run{c.Stream, bytes.Clone(c.Data)})
}

// trimStart drops the rest of a character that begins before the data.
func trimStart(data []byte) []byte {
	for i := 0; i < len(data) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(data[i]) {
			return data[i:]
		}
	}
	return data
}

// ReadTail reads the last bytes of an execution's output, at most n, beginning
// with a whole line where it can.
func ReadTail(ctx context.Context, l *ledger.Ledger, p projections.Process, n int64, until time.Time) (Output, error) {
	if p.Live() && until.IsZero() {
		end, err := outputEnd(ctx, l, p)
		if err != nil {
			return Output{}, err
		}
		p.Offset = end
	}
	from := max(p.Offset-n, 0)
	o, err := ReadOutput(ctx, l, p, from, -1, until)
	if err != nil || len(o.Pieces) == 0 {
		return o, err
	}
	if o.From > 0 {
		first := &o.Pieces[0]
		if _, rest, ok := strings.Cut(first.Text, "\n"); ok {
			first.Text = rest
		}
	}
	return o, nil
}

// gallop is the first step of the search for the end of a live output, in bytes.
const gallop = 64 << 10

// outputEnd is about where a live execution's output ends: at most gallop bytes
// are beyond. It looks in steps that double and halve, so it reads a few
// chunks, however much there is.
func outputEnd(ctx context.Context, l *ledger.Ledger, p projections.Process) (int64, error) {
	end := p.Offset
	for step := int64(gallop); step >= gallop; {
		next, err := chunkEnd(ctx, l, p, end+step)
		switch {
		case err != nil:
			return 0, err
		case next > 0:
			end, step = next, step*2
		default:
			step /= 2
		}
	}
	return end, nil
}

// chunkEnd is the end of the chunk at or after an offset, and 0 if there is none.
func chunkEnd(ctx context.Context, l *ledger.Ledger, p projections.Process, from int64) (int64, error) {
	for e, err := range l.Output(ctx, p.Session, p.Execution, from, -1) {
		if err != nil {
			return 0, fmt.Errorf("reading the output of %s: %w", p.Execution, err)
		}
		if c, ok := e.Body.(events.Output); ok {
			return c.End(), nil
		}
	}
	return 0, nil
}
