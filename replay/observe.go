package replay

import (
	"bytes"
	"slices"

	"github.com/yieldlog/yieldlog/events"
)

// observation cuts pages out of a beginning and an end of the output.
type observation struct {
	*reader
	// head and tail are what was read; nothing was read between them.
	head, tail run
	// headShare says that half the limit goes to the beginning.
	headShare bool
	page      Page
}

// newest is the last bytes of each stream.
func (b *reader) newest() (Page, error) {
	end, err := b.length()
	if err != nil {
		return Page{}, err
	}
	from := min(b.request.From, end)
	o := observation{reader: b, head: run{start: from, end: from}}
	for _, span := range b.spans(end - from) {
		if o.tail, err = b.collect(max(from, end-span), end, 0); err != nil {
			return Page{}, err
		}
		if o.enough() {
			break
		}
	}
	if o.ahead() {
		return b.forward()
	}
	o.toEnd(end)
	o.cut()
	o.page.Start = from
	if o.page.OmittedBytes > 0 {
		o.page.Start = o.page.OmittedTo
	}
	return o.page, nil
}

// headTail is the first and the last bytes of each stream.
func (b *reader) headTail() (Page, error) {
	end, err := b.length()
	if err != nil {
		return Page{}, err
	}
	from := min(b.request.From, end)
	o := observation{reader: b, headShare: true}
	for _, span := range b.spans(end - from) {
		if err := o.bothEnds(from, end, min(span, end-from)); err != nil {
			return Page{}, err
		}
		if o.enough() {
			break
		}
	}
	if o.ahead() {
		return b.forward()
	}
	o.toEnd(end)
	o.cut()
	o.page.Start = from
	return o.page, nil
}

// bothEnds reads the first and the last of [from, end): span bytes together, or
// all of it.
func (o *observation) bothEnds(from, end, span int64) (err error) {
	o.head = run{start: from, end: from}
	if start := end - span; start > from {
		if o.head, err = o.collect(from, from+span/2, 0); err != nil {
			return err
		}
		if o.head.end < from+span/2 {
			o.head.gap(from + span/2) // else the tail, which is later, would not be there
		}
		from = end - span/2
	}
	o.tail, err = o.collect(from, end, 0)
	return err
}

// toEnd notes what was deleted at the end of an output to which nothing comes.
func (o *observation) toEnd(end int64) {
	if o.request.Final && o.tail.end < end {
		o.tail.gap(end)
	}
}

// ahead reports whether the output is not recorded up to where it is known to
// be: a yield says how far it had come, and may be on disk before it. What is
// not there then must not pass for shown: only a forward page can tell.
func (o *observation) ahead() bool {
	return !o.request.Final && o.unread() && len(o.tail.pieces) == 0
}

// length is the length of the output.
func (b *reader) length() (int64, error) {
	if b.request.End > 0 {
		return b.request.End, nil
	}
	var end int64
	for e, err := range b.read(0, -1) {
		if err != nil {
			return 0, err
		}
		if out, ok := e.Body.(events.Output); ok {
			end = max(end, out.End())
		}
	}
	return end, nil
}

// spans are how far back to look for the newest bytes: first where they are in
// most outputs, at last as far as it may cost.
func (b *reader) spans(all int64) []int64 {
	limit := int64(b.request.Limit)
	if limit == 0 || all <= 2*limit {
		return []int64{all}
	}
	spans := []int64{2*limit + 64, max(window, 4*limit)}
	if b.request.Totals != nil {
		spans = append(spans, max(skipAtMost, 4*limit))
	}
	return spans
}

// enough reports whether what was read holds all that the page may show.
func (o *observation) enough() bool {
	if !o.unread() {
		return true
	}
	if o.ahead() {
		return false
	}
	for _, k := range streams {
		n := int64(len(o.head.of(k).data) + len(o.tail.of(k).data))
		total, known := o.total(k)
		if !o.wants(k) || n >= int64(o.request.Limit) || known && n >= total {
			continue
		}
		if _, ok := o.apart(k); !ok {
			return false
		}
	}
	return true
}

// A pair is the beginning and the end of a stream, to cut from.
type pair struct {
	head, tail strip
	// whole says that head is all of the stream.
	whole bool
	// apart says that the source keeps the two, wherever they are in the output,
	// and knows how many bytes are between them. unread of all are where nothing
	// else was read.
	apart           bool
	between, unread int64
}

// pair is what was read of a stream, or, where some of it is missing there, what
// the source keeps of it.
func (o *observation) pair(k events.Kind) pair {
	p := pair{head: o.head.of(k), tail: o.tail.of(k)}
	n := int64(len(p.head.data) + len(p.tail.data))
	if total, known := o.total(k); !o.unread() || known && n == total {
		return pair{head: p.head.and(p.tail), whole: true}
	}
	if kept, ok := o.apart(k); ok {
		kept.unread = int64(len(kept.head.data)+len(kept.tail.data)) + kept.between - n
		return kept
	}
	return p
}

// apart is the two ends of a stream that the source keeps, if they hold all
// that the page may show of it.
func (o *observation) apart(k events.Kind) (p pair, ok bool) {
	if o.sides == nil || o.request.Limit == 0 {
		return p, false
	}
	p.head, p.tail, p.between, ok = o.sides.sidesOf(o.execution, k, o.head.start, o.tail.end)
	p.apart, p.whole = true, p.between == 0
	first, last := 0, o.request.Limit
	if o.headShare {
		first, last = last/2, last-last/2
	}
	return p, ok && (p.whole || len(p.head.data) >= first && len(p.tail.data) >= last)
}

// cut fills the page.
func (o *observation) cut() {
	next := o.tail.end
	if !o.request.Final {
		next = o.tail.whole()
	}
	o.page.Next, o.page.Latest = next, max(o.request.End, o.tail.seen, next)
	for _, r := range []run{o.head, o.tail} {
		if r.missing > 0 { // it was deleted
			o.omit(r.missingFrom, min(r.missingTo, next), r.missing)
		}
	}
	o.tail = o.tail.upTo(next)
	unread, complete := o.tail.start-o.head.end, true
	for _, k := range streams {
		if !o.wants(k) {
			continue
		}
		p := o.pair(k)
		o.cutStream(k, p)
		complete = complete && (p.whole || p.apart)
		unread -= p.unread
	}
	if !complete {
		o.omit(o.head.end, o.tail.start, unread)
	}
	o.page.Truncated = o.page.OmittedBytes > 0
}

// unread reports whether bytes between head and tail were not read.
func (o *observation) unread() bool { return o.tail.start > o.head.end }

// total is the bytes of a stream, if they are known.
func (o *observation) total(k events.Kind) (int64, bool) {
	return o.request.Totals[k], o.request.Totals != nil
}

// omit adds a range to what the page leaves out, n bytes of it.
func (o *observation) omit(from, to, n int64) {
	if p := &o.page; p.OmittedBytes == 0 {
		p.OmittedFrom, p.OmittedTo = from, to
	} else {
		p.OmittedFrom, p.OmittedTo = min(p.OmittedFrom, from), max(p.OmittedTo, to)
	}
	o.page.OmittedBytes += n
}

// cutStream puts what fits of a stream into the page.
func (o *observation) cutStream(k events.Kind, p pair) {
	head, tail := p.head, p.tail
	if p.whole {
		tail = head
	}
	limit := o.request.Limit
	if limit == 0 {
		limit = len(head.data) + len(tail.data)
	}
	if p.whole && len(head.data) <= limit && o.request.TailLines == 0 {
		*o.page.bytes(k) = head.data
		return
	}
	first, last := o.bounds(head.data, tail.data, limit)
	if !p.whole { // what was not read may have split a character at either side
		first = splitAt(head.data[:first])
		last = max(last, nextStart(tail.data, 0))
	}
	*o.page.bytes(k) = slices.Concat(head.data[:first], tail.data[last:])
	*o.page.cutAt(k) = first
	switch n := int64(len(head.data) - first); {
	case p.whole && last > first:
		o.omit(head.offset(first), head.before(last), int64(last-first))
	case p.whole:
	case p.apart:
		o.omit(head.offset(first), tail.before(last), n+p.between+int64(last))
	default:
		if n > 0 {
			o.omit(head.offset(first), o.head.end, n)
		}
		if last > 0 {
			o.omit(o.tail.start, tail.before(last), int64(last))
		}
	}
}

// bounds are how many of the head's bytes to show, and from where on the tail's.
func (o *observation) bounds(head, tail []byte, limit int) (first, last int) {
	if o.headShare {
		first, last = cutHead(head, limit/2), cutTail(tail, limit-limit/2)
	} else {
		last = nextStart(tail, max(0, len(tail)-limit))
	}
	if n := o.request.TailLines; n > 0 {
		last = max(last, len(tail)-len(lastLines(tail, n)))
	}
	return first, last
}

// cutAt is where the page keeps the place of a stream's omission.
func (p *Page) cutAt(stream events.Kind) *int {
	switch stream {
	case events.KindStderr:
		return &p.StderrCut
	case events.KindTTY:
		return &p.TTYCut
	}
	return &p.StdoutCut
}

// strip is the bytes of one stream, with the pieces that say where they are.
type strip struct {
	data   []byte
	pieces []piece
}

func (r run) of(stream events.Kind) strip {
	var of []piece
	for _, p := range r.pieces {
		if p.stream == stream {
			of = append(of, p)
		}
	}
	return stripOf(of)
}

// stripOf is the strip of pieces of one stream.
func stripOf(pieces []piece) strip {
	s := strip{pieces: pieces}
	for _, p := range pieces {
		s.data = append(s.data, p.data...)
	}
	return s
}

// and is s with t after it.
func (s strip) and(t strip) strip {
	return strip{data: slices.Concat(s.data, t.data), pieces: slices.Concat(s.pieces, t.pieces)}
}

// offset is where the i-th byte of the strip is in the output, or where the
// strip ends.
func (s strip) offset(i int) (at int64) {
	for _, p := range s.pieces {
		if i < len(p.data) {
			return p.offset + int64(i)
		}
		i -= len(p.data)
		at = p.end()
	}
	return at
}

// before is where the bytes before the i-th one end in the output.
func (s strip) before(i int) int64 {
	if i == 0 {
		return s.offset(0)
	}
	return s.offset(i-1) + 1
}

// cutHead is how much of b's first n bytes to show: up to the end of a line if
// at least half remains, otherwise up to the end of a character.
func cutHead(b []byte, n int) int {
	if len(b) <= n {
		return len(b)
	}
	if i := bytes.LastIndexByte(b[:n], '\n') + 1; i >= (n+1)/2 && i > 0 {
		return i
	}
	return splitAt(b[:n])
}

// cutTail is where b's last n bytes begin: at a line if at least half remains,
// otherwise at a character.
func cutTail(b []byte, n int) int {
	from := len(b) - n
	if from <= 0 {
		return 0
	}
	if b[from-1] == '\n' {
		return from
	}
	if i := bytes.IndexByte(b[from:], '\n') + 1; i > 0 && i <= n/2 {
		return from + i
	}
	return nextStart(b, from)
}
