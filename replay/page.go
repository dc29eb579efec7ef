package replay

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Outputs reads recorded output; *ledger.Ledger does.
type Outputs interface {
	// Output is the output events of an execution, in offset order, trimmed to
	// [from, to); to < 0 means the end as it is now.
	Output(ctx context.Context, session, execution string, from, to int64) iter.Seq2[events.Event, error]
}

// sided is an [Outputs] that keeps the ends of some streams at hand.
type sided interface {
	// sidesOf is the first and the last bytes of a stream within [from, to), and
	// how many are between them. ok is false where it does not know.
	sidesOf(execution string, stream events.Kind, from, to int64) (head, tail strip, between int64, ok bool)
}

// PageRequest says which page of an output is wanted. The zero value asks for
// everything from the start.
type PageRequest struct {
	// From is where a forward page starts, in bytes of the one output order.
	From int64
	// Newest asks for the last bytes of each stream instead.
	Newest bool
	// HeadTail asks for the beginning and the end of each stream, from From on,
	// cut at line ends where that costs little.
	HeadTail bool
	// TailLines, if not 0, asks for the last lines of each stream only.
	TailLines int
	// Limit is the most bytes of each stream, 0 for no limit.
	Limit int
	// Streams selects output kinds; none selects all.
	Streams []events.Kind
	// Totals, where known, are the bytes of each stream up to End. With them a
	// page of the newest or a head and tail looks further for a stream that has
	// few, and not at all for one that has none.
	Totals map[events.Kind]int64
	// End is the known length of the output: the page shows nothing beyond. 0
	// means as it is now.
	End int64
	// Final says that no more bytes will come: the execution has settled.
	Final bool
}

// Page is a part of an output. What it holds of a stream is that stream's
// bytes as they are recorded, invalid ones too.
type Page struct {
	// Start is where the page begins, and Next where the next forward page goes
	// on: nothing between them is in no page, nothing is in two.
	Start, Next int64
	// Latest is the length of the output as it was known.
	Latest              int64
	Stdout, Stderr, TTY []byte
	// Truncated says that recorded bytes are missing from this page: those after
	// Next, or those of the omitted range.
	Truncated bool
	// OmittedFrom and OmittedTo bound what was left out of a newest or a
	// head-and-tail page, and OmittedBytes counts it. Forward pages over that
	// range give it.
	OmittedFrom, OmittedTo int64
	OmittedBytes           int64
	// StdoutCut, StderrCut and TTYCut say where in the bytes above the omission
	// of a head-and-tail page stands: 0 if there is none.
	StdoutCut, StderrCut, TTYCut int
}

const (
	// holdBack bounds, in bytes, how much may follow an unfinished character
	// before a page gives up waiting for its rest. Within it a page ends before
	// the character, because its rest is still to come.
	holdBack = 4 << 10
	// window is the most, in bytes, that a newest or a head-and-tail page reads
	// at each end, or a few times its limit if that is more.
	window = 128 << 10
	// skipAtMost bounds, in bytes, how far a forward page looks for a stream
	// that was asked for among those that were not.
	skipAtMost = 8 << 20
)

// Of is the request about an execution: the page ends where its output ends, as
// far as it is known.
func (r PageRequest) Of(p projections.Process) PageRequest {
	r.End, r.Final = p.Offset, p.Settled != nil
	r.Totals = map[events.Kind]int64{
		events.KindStdout: p.StdoutBytes, events.KindStderr: p.StderrBytes, events.KindTTY: p.TTYBytes,
	}
	if s := p.Settled; s != nil {
		r.Totals = map[events.Kind]int64{
			events.KindStdout: s.Stdout.Bytes, events.KindStderr: s.Stderr.Bytes, events.KindTTY: s.TTY.Bytes,
		}
	}
	return r
}

// ReadPage reads a page. It never splits a UTF-8 character at the end of a page
// while more may come, and never skips a byte. A forward page costs what it
// returns, wherever it starts; the other kinds cost a bounded amount.
func ReadPage(ctx context.Context, src Outputs, session, execution string, r PageRequest) (Page, error) {
	b := reader{request: r, execution: execution, read: func(from, to int64) iter.Seq2[events.Event, error] {
		return src.Output(ctx, session, execution, from, to)
	}}
	b.sides, _ = src.(sided)
	page, err := b.page()
	if err != nil {
		return Page{}, fmt.Errorf("reading a page of %s: %w", execution, err)
	}
	return page, nil
}

// reader makes one page.
type reader struct {
	request   PageRequest
	execution string
	read      func(from, to int64) iter.Seq2[events.Event, error]
	sides     sided // or nil
}

func (b *reader) page() (Page, error) {
	b.request.From = max(b.request.From, 0)
	if b.request.Newest || b.request.TailLines > 0 {
		return b.newest()
	}
	if b.request.HeadTail && b.request.Limit > 0 {
		return b.headTail()
	}
	return b.forward()
}

func (b *reader) wants(k events.Kind) bool {
	return len(b.request.Streams) == 0 || slices.Contains(b.request.Streams, k)
}

// end is the `to` of a read.
func (b *reader) end() int64 {
	if b.request.End > 0 {
		return b.request.End
	}
	return -1
}

// piece is a run of bytes of one stream.
type piece struct {
	stream events.Kind
	offset int64
	data   []byte
}

func (p piece) end() int64 { return p.offset + int64(len(p.data)) }

// forward reads from From until a stream reaches its limit.
func (b *reader) forward() (Page, error) {
	from := b.request.From
	r, err := b.collect(from, b.end(), b.request.Limit)
	if err != nil {
		return Page{}, err
	}
	page := Page{Start: from, Next: r.end, Truncated: r.full}
	if r.full || !b.request.Final {
		page.Next = r.whole()
	}
	if r.full && page.Next == from {
		if r, err = b.least(from); err != nil {
			return Page{}, err
		}
		page.Next, page.Truncated = r.end, r.full
	}
	if b.request.Final && !r.full && r.end < b.request.End {
		r.gap(b.request.End) // pruned to the end
		page.Next = r.end
	}
	page.Latest = max(b.request.End, r.seen, from)
	page.OmittedFrom, page.OmittedTo, page.OmittedBytes = r.missingFrom, r.missingTo, r.missing
	page.Truncated = page.Truncated || r.missing > 0
	page.fill(r.pieces, page.Next)
	return page, nil
}

// least is the least output that splits no character, for a limit that is
// smaller than one, or that another stream reaches in the middle of one. It is
// empty while the character's rest is not recorded.
func (b *reader) least(from int64) (run, error) {
	r, err := b.collect(from, b.end(), b.request.Limit+2*holdBack)
	if err != nil {
		return run{}, err
	}
	for end := from + 1; end <= r.end; end++ {
		if some := r.upTo(end); some.whole() == end {
			some.full = r.full || end < r.end
			return some, nil
		}
	}
	if b.request.Final {
		return r, nil
	}
	return run{start: from, end: from, seen: r.seen}, nil
}

// run is consecutive output: what was wanted of it.
type run struct {
	pieces []piece
	// start and end bound it, and seen is the end of what was looked at.
	start, end, seen int64
	// full says that it ended at a limit, with more bytes recorded.
	full bool
	// missing counts the bytes within it that are recorded no more, between
	// missingFrom and missingTo.
	missing, missingFrom, missingTo int64
}

// gap notes that nothing is recorded between the run's end and an offset.
func (r *run) gap(to int64) {
	if r.missing == 0 {
		r.missingFrom = r.end
	}
	r.missing += to - r.end
	r.missingTo, r.end = to, to
	r.seen = max(r.seen, to)
}

// collect reads [from, to) until a wanted stream has limit bytes; 0 is no limit.
func (b *reader) collect(from, to int64, limit int) (run, error) {
	var r run
	r.start, r.end, r.seen = from, from, from
	counts := map[events.Kind]int{}
	for e, err := range b.stretch(from, to, limit) {
		if err != nil {
			return run{}, err
		}
		out, ok := e.Body.(events.Output)
		if !ok || out.End() <= r.end {
			continue
		}
		if out.Offset < r.end {
			out.Data, out.Offset = out.Data[r.end-out.Offset:], r.end
		}
		r.seen = max(r.seen, out.End())
		if limit > 0 && !b.wants(out.Stream) && out.End()-from > skipAtMost {
			r.full = true
			return r, nil
		}
		room := len(out.Data)
		if limit > 0 && b.wants(out.Stream) {
			room = min(room, limit-counts[out.Stream])
			r.full = room < len(out.Data)
		}
		if room > 0 {
			if out.Offset > r.end {
				r.gap(out.Offset)
			}
			if b.wants(out.Stream) {
				counts[out.Stream] += room
				r.pieces = append(r.pieces, piece{out.Stream, out.Offset, out.Data[:room]})
			}
			r.end = out.Offset + int64(room)
		}
		if r.full {
			return r, nil
		}
	}
	return r, nil
}

// stretch reads [from, to) by and by: a page with a limit rarely needs more than
// the first part, and a read that says where it ends is cheaper.
func (b *reader) stretch(from, to int64, limit int) iter.Seq2[events.Event, error] {
	if limit == 0 || to < 0 {
		return b.read(from, to)
	}
	return func(yield func(events.Event, error) bool) {
		for span := int64(2*limit) + 64; from < to; span *= 4 {
			end := min(from+span, to)
			for e, err := range b.read(from, end) {
				if !yield(e, err) {
					return
				}
			}
			from = end
		}
	}
}

// whole is where the run may end so that no stream's last character is split:
// before the first that is unfinished, unless too much follows it.
func (r run) whole() int64 {
	end := r.end
	for _, stream := range streams {
		at, unfinished := r.unfinished(stream)
		if unfinished && r.end-at <= holdBack {
			end = min(end, at)
		}
	}
	if end < r.end {
		// What is cut off now may have finished a character of another stream.
		return r.upTo(end).whole()
	}
	return end
}

var streams = []events.Kind{events.KindStdout, events.KindStderr, events.KindTTY}

// upTo is the run's part before an offset.
func (r run) upTo(end int64) run {
	cut := run{start: r.start, end: end, seen: r.seen}
	for _, p := range r.pieces {
		if p.offset >= end {
			break
		}
		if p.end() > end {
			p.data = p.data[:end-p.offset]
		}
		cut.pieces = append(cut.pieces, p)
	}
	return cut
}

// unfinished is the offset of the stream's last character, if its bytes may go
// on after the run.
func (r run) unfinished(stream events.Kind) (at int64, ok bool) {
	var tail []byte     // the last bytes of the stream, latest first
	var offsets []int64 // and where they are
	for _, p := range slices.Backward(r.pieces) {
		if p.stream != stream {
			continue
		}
		for i := len(p.data) - 1; i >= 0; i-- {
			tail, offsets = append(tail, p.data[i]), append(offsets, p.offset+int64(i))
			if !continuation(p.data[i]) || len(tail) == 3 {
				slices.Reverse(tail)
				return offsets[len(offsets)-1], splitAt(tail) == 0
			}
		}
	}
	return 0, false
}

// fill copies the pieces before an offset into the page.
func (p *Page) fill(pieces []piece, end int64) {
	for _, piece := range pieces {
		if piece.offset >= end {
			return
		}
		data := piece.data[:min(int64(len(piece.data)), end-piece.offset)]
		buf := p.bytes(piece.stream)
		*buf = append(*buf, data...)
	}
}

func (p *Page) bytes(stream events.Kind) *[]byte {
	switch stream {
	case events.KindStderr:
		return &p.Stderr
	case events.KindTTY:
		return &p.TTY
	}
	return &p.Stdout
}

// lastLines is the end of b with at most n lines.
func lastLines(b []byte, n int) []byte {
	i := len(b)
	if i > 0 && b[i-1] == '\n' {
		i--
	}
	for ; n > 0; n-- {
		if i = bytes.LastIndexByte(b[:i], '\n'); i < 0 {
			return b
		}
	}
	return b[i+1:]
}
