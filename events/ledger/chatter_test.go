package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
)

// chatter is executions that write small lines, interleaved, in both streams.
type chatter struct {
	ledger *Ledger
	ids    []string
	at     map[string]int64
	sums   map[string]map[events.Kind][]byte
	posted sync.WaitGroup
}

func newChatter(l *Ledger, ids ...string) *chatter {
	return &chatter{ledger: l, ids: ids, at: map[string]int64{}, sums: map[string]map[events.Kind][]byte{}}
}

// lines has each execution write n lines, and a large chunk now and then.
func (c *chatter) lines(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		for _, id := range c.ids {
			kind := events.KindStdout
			if i%7 > 4 {
				kind = events.KindStderr
			}
			line := fmt.Sprintf("%s: line %d of what it has to say\n", id, i)
			if i%100 == 50 {
				line = strings.Repeat(line, 300)
			}
			c.post(t, id, kind, []byte(line))
		}
	}
	c.posted.Wait()
}

func (c *chatter) post(t *testing.T, id string, kind events.Kind, data []byte) {
	t.Helper()
	c.posted.Add(1)
	err := c.ledger.Post(t.Context(), event("S", id, events.Output{Stream: kind, Offset: c.at[id], Data: data}), func(_ events.Event, err error) {
		if err != nil {
			t.Error(err)
		}
		c.posted.Done()
	})
	if err != nil {
		t.Fatal(err)
	}
	c.at[id] += int64(len(data))
	if c.sums[id] == nil {
		c.sums[id] = map[events.Kind][]byte{}
	}
	c.sums[id][kind] = append(c.sums[id][kind], data...)
}

func (c *chatter) settle(t *testing.T) {
	t.Helper()
	for _, id := range c.ids {
		sum := func(k events.Kind) events.StreamSum {
			h := sha256.Sum256(c.sums[id][k])
			return events.StreamSum{Bytes: int64(len(c.sums[id][k])), SHA256: hex.EncodeToString(h[:])}
		}
		_, err := c.ledger.Append(t.Context(), event("S", id, events.Settled{
			Status: events.StatusCompleted, Offset: c.at[id], Stdout: sum(events.KindStdout), Stderr: sum(events.KindStderr),
		}))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// said is what a reader sees of an execution: its chunks, without what the store
// may change: ids and sequences.
func said(t *testing.T, list iter.Seq2[events.Event, error]) []events.Event {
	t.Helper()
	var all []events.Event
	for e, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.Seq = "", 0
		all = append(all, e)
	}
	return all
}

// raw is OutputRaw, decoded.
func (c *chatter) raw(t *testing.T, id string) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for r, err := range c.ledger.OutputRaw(t.Context(), "S", id, 0) {
			if err != nil {
				yield(events.Event{}, err)
				return
			}
			e, err := decode(r)
			if !yield(e, err) {
				return
			}
		}
	}
}

func (c *chatter) everything(t *testing.T) map[string][]events.Event {
	t.Helper()
	all := map[string][]events.Event{}
	for _, id := range c.ids {
		all[id] = said(t, c.ledger.Output(t.Context(), "S", id, 0, -1))
		all["raw "+id] = said(t, c.raw(t, id))
		end, err := c.ledger.OutputEnd(t.Context(), "S", id)
		if err != nil || end != c.at[id] {
			t.Errorf("%s ends at %d, want %d: %v", id, end, c.at[id], err)
		}
	}
	return all
}

// same fails unless the readers see what they saw.
func same(t *testing.T, before, after map[string][]events.Event) {
	t.Helper()
	if !reflect.DeepEqual(before, after) { // quicker than a diff of everything
		t.Errorf("something else is read (-before +after):\n%s", cmp.Diff(before, after))
	}
}

func pack(t *testing.T, l *Ledger) PackReport {
	t.Helper()
	r, err := l.Pack(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func bytesOf(list []events.Event) (s string) {
	for _, e := range list {
		s += string(e.Body.(events.Output).Data)
	}
	return s
}
