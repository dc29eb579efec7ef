//go:build linux

package producers

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
)

func monitored(r *Request) { r.Monitor = true }

// content is the output that a record is about.
func (b *bench) content(m Mail) string {
	b.t.Helper()
	var out bytes.Buffer
	if m.To > m.From {
		for e, err := range b.ledger.Output(b.t.Context(), b.ID(), m.Execution, m.From, m.To) {
			if err != nil {
				b.t.Fatal(err)
			}
			if o, ok := e.Body.(events.Output); ok {
				out.Write(o.Data)
			}
		}
	}
	return out.String()
}

// watchAll collects a monitor's records up to its terminal one.
func (b *bench) watchAll(id string) []Mail {
	b.t.Helper()
	var all []Mail
	for {
		list, claim := b.collect("")
		claim.Delivered()
		all = append(all, list...)
		if slices.ContainsFunc(list, func(m Mail) bool { return m.ID == id }) {
			return all
		}
	}
}

func TestM34_MonitorDeliversEachLineOnce(t *testing.T) {
	b := newBench(t)
	id := b.background("seq 1 1000; printf end", monitored)
	all := b.watchAll(id)
	var text strings.Builder
	lines := 0
	for _, m := range all[:len(all)-1] {
		if m.Mail != events.MailMonitor || m.Count > batchLines || m.To-m.From > batchBytes {
			t.Errorf("a batch: %+v", m)
		}
		text.WriteString(b.content(m))
		lines += m.Count
	}
	var want strings.Builder
	for i := range 1000 {
		fmt.Fprintln(&want, i+1)
	}
	want.WriteString("end")
	if text.String() != want.String() {
		t.Errorf("delivered %d bytes of %d", text.Len(), want.Len())
	}
	end := all[len(all)-1]
	if lines != 1001 || end.Count != 1001 || end.Mail != events.MailCompletion || !strings.HasSuffix(end.Notice, "· 1001 events") {
		t.Errorf("%d lines; the end: %+v", lines, end)
	}
}

func TestM34_BatchInFlightHoldsBackTheNext(t *testing.T) {
	b := newBench(t)
	g := newGate(b)
	id := b.background("echo first; read x; seq 1 10; read x", func(r *Request) { r.Monitor = true })
	first := <-g.asked // and is not acknowledged
	if err := b.Write("", id, Input{Data: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	b.prints(id, "10\n")
	select {
	case second := <-g.asked:
		t.Errorf("%s is in flight, and %s was begun", first, second)
	case <-time.After(3 * batchDelay / 2): // long enough for one that does not wait
	}
	g.release()
	second := <-g.asked
	m := b.record(second)
	if got := b.content(m); !strings.HasPrefix(got, "1\n2\n") || m.Count != 10 || m.From != 6 {
		t.Errorf("the next batch has %q, %+v", got, m)
	}
}

// record is the posted record of that name.
func (b *bench) record(id string) Mail {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for from := 0; ; {
		for ; from < len(b.seen); from++ {
			if p, ok := b.seen[from].Body.(events.Posted); ok && b.seen[from].Subject == id {
				return Mail{ID: id, Posted: p}
			}
		}
		b.news.Wait()
	}
}

// Whatever a command prints and however its chunks fall, the batches are its
// output: whole lines where they fit, in order, without gaps.
func TestBatchesAreTheOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &monitor{poke: make(chan struct{}, 1)}
		var offset int64
		for _, chunk := range rapid.SliceOf(rapid.SliceOfN(rapid.SampledFrom([]byte("ab\n\xc3\xa9")), 0, 9000)).Draw(t, "chunks") {
			m.add(offset, chunk)
			offset += int64(len(chunk))
		}
		total := m.finish()
		m.leave(true)
		var at int64
		lines, posted := 0, 0
		for {
			b, _, over := m.next(time.Now(), false)
			if over {
				break
			}
			if posted++; posted == unreadMost {
				break // the rest may have been joined
			}
			if b.from != at || b.to <= b.from || b.to-b.from > batchBytes || b.lines > batchLines || b.lines < 1 {
				t.Fatalf("the batch %+v follows %d", b, at)
			}
			at = b.to
			lines += b.lines
		}
		if (at != offset || lines != total) && posted < unreadMost {
			t.Fatalf("%d of %d bytes, %d of %d lines", at, offset, lines, total)
		}
	})
}

// Lines that come close to each other are one batch, and none waits for long.
func TestM34_LinesGatherForAMoment(t *testing.T) {
	m := &monitor{poke: make(chan struct{}, 1)}
	m.add(0, []byte("one\n"))
	began := m.since
	if b, wait, _ := m.next(began, false); b.lines != 0 || wait != batchDelay {
		t.Errorf("at once: %+v, or in %s", b, wait)
	}
	m.add(4, []byte("two\nth"))
	if b, wait, _ := m.next(began.Add(batchDelay-1), false); b.lines != 0 || wait != 1 {
		t.Errorf("soon: %+v, or in %s", b, wait)
	}
	if b, _, _ := m.next(began.Add(batchDelay), false); b != (batch{from: 0, to: 8, lines: 2}) {
		t.Errorf("then: %+v", b)
	}
	for i := range int64(batchLines) { // a full one waits for nothing
		m.add(10+2*i, []byte("\n."))
	}
	if b, _, _ := m.next(time.Now(), false); b.lines != batchLines || b.from != 8 {
		t.Errorf("a full one: %+v", b)
	}
}

// A line without an end is cut where a batch is full, in however small pieces it
// comes, and never within a character.
func TestM34_M135_ALongLineIsCutBetweenCharacters(t *testing.T) {
	for _, text := range []string{strings.Repeat(".", 3*batchBytes+5), "x" + strings.Repeat("é", 2*batchBytes), "xx" + strings.Repeat("漢", 2*batchBytes), strings.Repeat("🙂", batchBytes)} {
		for _, size := range []int{1, 2, 3, 5, batchBytes - 1, batchBytes, batchBytes + 1} {
			m := &monitor{poke: make(chan struct{}, 1)}
			offset := 0
			for chunk := range slices.Chunk([]byte(text), size) {
				m.add(int64(offset), chunk)
				offset += len(chunk)
			}
			if want := (len(text) - 1) / batchBytes; len(m.full) < want {
				t.Errorf("%d bytes in pieces of %d: %d batches before the end, want %d", len(text), size, len(m.full), want)
			}
			m.finish()
			var at int64
			for _, b := range m.full {
				if b.from != at || b.to-b.from > batchBytes || !utf8.ValidString(text[b.from:b.to]) {
					t.Fatalf("%d bytes in pieces of %d: the batch %+v follows %d", len(text), size, b, at)
				}
				at = b.to
			}
			if at != int64(len(text)) {
				t.Errorf("%d bytes in pieces of %d: %d are mailed", len(text), size, at)
			}
		}
	}
}

// An owner that reads nothing is mailed so many batches and no more, whatever
// the command prints, and the end of the command brings the rest.
func TestM34_UnreadBatchesAreBounded(t *testing.T) {
	for _, closing := range []bool{false, true} {
		m := &monitor{poke: make(chan struct{}, 1)}
		const lines = 3 * unreadMost * batchLines
		const first = unreadMost * batchLines
		m.add(0, bytes.Repeat([]byte("\n"), first))
		var at int64
		posted, counted := 0, 0
		drain := func(closing bool) {
			t.Helper()
			for {
				b, _, over := m.next(time.Now(), closing)
				if over || b.lines == 0 {
					return
				}
				if b.from != at || b.to-b.from != int64(b.lines) {
					t.Fatalf("the batch %+v follows %d", b, at)
				}
				at = b.to
				posted, counted = posted+1, counted+b.lines
			}
		}
		drain(false)
		m.add(first, bytes.Repeat([]byte("\n"), lines-first))
		if drain(false); posted != unreadMost || counted != unreadMost*batchLines {
			t.Errorf("%d batches, %d lines are unread", posted, counted)
		}
		m.read()
		if drain(false); posted != unreadMost+1 {
			t.Errorf("after one was read, %d were posted", posted)
		}
		if total := m.finish(); total != lines {
			t.Errorf("%d lines in all", total)
		}
		m.leave(true)
		drain(closing)
		if counted != lines || posted != unreadMost+2 {
			t.Errorf("%d lines in %d batches, not %d", counted, posted, unreadMost+2)
		}
	}
}

// BenchmarkMail is from a settlement to its durable mailbox record, and how
// long the producer is held up by handing it over.
func BenchmarkMail(b *testing.B) {
	s := newBench(b)
	var blocked []time.Duration
	post := s.mail.append
	s.mail.append = func(ctx context.Context, e events.Event, done func(events.Event, error)) error {
		began := time.Now()
		err := post(ctx, e, done)
		if e.Kind() == events.KindPosted {
			blocked = append(blocked, time.Since(began))
		}
		return err
	}
	arrived := make(chan time.Time, 1)
	s.Mailed(func(Mail) { arrived <- time.Now() })
	var taken []time.Duration
	for b.Loop() {
		id := s.background("read x")
		e, err := s.find("", id)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Write("", id, Input{Close: true}); err != nil {
			b.Fatal(err)
		}
		<-e.done
		settled := time.Now()
		taken = append(taken, max(0, (<-arrived).Sub(settled)))
	}
	p50 := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds())
	}
	b.ReportMetric(p50(taken), "p50-durable-µs")
	b.ReportMetric(p50(blocked), "p50-blocked-µs")
}
