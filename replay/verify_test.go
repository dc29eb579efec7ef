package replay_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/replay"
)

// forged is a ledger that somebody changed after the fact.
type forged struct {
	messages []ledger.Raw
	chunks   []events.Output
}

func (f forged) ReadRaw(context.Context, events.Filter, uint64, uint64) iter.Seq2[ledger.Raw, error] {
	return func(yield func(ledger.Raw, error) bool) {
		for _, m := range f.messages {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (f forged) Output(context.Context, string, string, int64, int64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		for _, o := range f.chunks {
			if !yield(events.Event{Body: o}, nil) {
				return
			}
		}
	}
}

func digest(s string) string {
	d := sha256.Sum256([]byte(s))
	return hex.EncodeToString(d[:])
}

// honest is a small history on a real ledger, and what it holds.
func honest(t *testing.T) (*ledger.Ledger, forged) {
	t.Helper()
	l := openLedger(t)
	zero := 0
	done := make(chan error, 2)
	output := func(offset int64, stream events.Kind, text string) {
		e := events.Event{Session: "s", Owner: "/root", Subject: "e", Body: events.Output{Stream: stream, Offset: offset, Data: []byte(text)}}
		if err := l.Post(t.Context(), e, func(_ events.Event, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range []events.Body{
		events.Opened{Program: "test"},
		events.Requested{Command: "make"},
		events.Spawned{PID: 7},
		events.Yielded{Offset: 3},
		events.Settled{
			Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess, ExitCode: &zero, Offset: 6,
			Stdout: events.StreamSum{Bytes: 3, Raw: 3, SHA256: digest("out")}, Stderr: events.StreamSum{Bytes: 3, Raw: 3, SHA256: digest("err")},
		},
		events.Closed{Reason: "done"},
	} {
		subject := "e"
		if b.Class() == events.ClassSession {
			subject = "s"
		}
		if _, err := l.Append(t.Context(), events.Event{Session: "s", Owner: "/root", Subject: subject, Body: b}); err != nil {
			t.Fatal(err)
		}
		switch b.(type) {
		case events.Spawned:
			output(0, events.KindStdout, "out")
		case events.Yielded:
			output(3, events.KindStderr, "err")
		}
	}
	var f forged
	for m, err := range l.ReadRaw(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		f.messages = append(f.messages, m)
	}
	for e, err := range l.Output(t.Context(), "s", "e", 0, -1) {
		if err != nil {
			t.Fatal(err)
		}
		f.chunks = append(f.chunks, e.Body.(events.Output))
	}
	return l, f
}

func TestVerifyOfAnHonestLedger(t *testing.T) {
	l, _ := honest(t)
	for _, session := range []string{"", "s"} {
		got, err := replay.Verify(t.Context(), l, session)
		if err != nil {
			t.Fatal(err)
		}
		want := replay.Verification{Events: 6, Sessions: 1, Executions: 1, OutputBytes: 6, Findings: []replay.Finding{}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestM89_VerifyNamesWhatWasChanged: each kind of damage is found, where it is.
func TestM89_VerifyNamesWhatWasChanged(t *testing.T) {
	_, clean := honest(t)
	for name, c := range map[string]struct {
		forge func(f *forged)
		want  []string
	}{
		"altered event": {func(f *forged) {
			f.messages[1].Data = bytes.Replace(f.messages[1].Data, []byte("make"), []byte("fake"), 1)
		}, []string{"chain: spawned does not follow event 2"}},
		"removed event": {
			func(f *forged) { f.messages = slices.Delete(f.messages, 3, 4) },
			[]string{"sequence: sequences 4 to 4 are missing", "chain: settled does not follow event 3"},
		},
		"removed first": {
			func(f *forged) { f.messages = f.messages[1:] },
			[]string{"sequence: sequences 1 to 1", "chain: requested is the session's first", "order: seq 2: begins with requested"},
		},
		"settled twice": {
			func(f *forged) { f.messages = slices.Insert(f.messages, 5, f.messages[4]); renumber(f) },
			[]string{"chain: settled does not follow event 5", "order: seq 6: e settled, not running", "order: seq 6: settled after the end"},
		},
		"no event": {
			func(f *forged) { f.messages[2].Data = []byte("{") },
			[]string{"decode: ", "chain: yielded does not follow event 3", "order: seq 5: settled with exit code 0, never spawned"},
		},
		"altered byte": {func(f *forged) { f.chunks[1].Data = []byte("eRr") }, []string{"digest: stderr"}},
		"missing end":  {func(f *forged) { f.chunks = f.chunks[:1] }, []string{"offsets: bytes 3 to 6 are missing", "counts: stderr has 0 bytes", "digest: stderr"}},
		"chunk twice": {
			func(f *forged) { f.chunks = append(f.chunks, f.chunks[1]) },
			[]string{"offsets: bytes 3 to 6 are there twice", "counts: stderr has 6 bytes", "digest: stderr"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := forged{chunks: slices.Clone(clean.chunks)}
			for _, m := range clean.messages {
				m.Data = bytes.Clone(m.Data)
				f.messages = append(f.messages, m)
			}
			c.forge(&f)
			got, err := replay.Verify(t.Context(), f, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Findings) != len(c.want) {
				t.Errorf("%d findings, want %d: %+v", len(got.Findings), len(c.want), got.Findings)
			}
			for i, want := range c.want {
				if i < len(got.Findings) && !strings.HasPrefix(string(got.Findings[i].Check)+": "+got.Findings[i].Text, want) {
					t.Errorf("found %+v, want %s", got.Findings[i], want)
				}
			}
		})
	}
}

func renumber(f *forged) {
	for i := range f.messages {
		f.messages[i].Seq = uint64(i + 1)
	}
}

// TestVerifyOfPrunedOutput: what was pruned by an event is no damage.
func TestVerifyOfPrunedOutput(t *testing.T) {
	l, f := honest(t)
	if _, err := l.Append(t.Context(), events.Event{Session: "s", Owner: "/root", Subject: "e", Body: events.Pruned{From: 0, To: 3, Reason: "size"}}); err != nil {
		t.Fatal(err)
	}
	f.messages = nil
	for m, err := range l.ReadRaw(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		f.messages = append(f.messages, m)
	}
	f.chunks = f.chunks[1:]
	got, err := replay.Verify(t.Context(), f, "")
	if err != nil {
		t.Fatal(err)
	}
	if !got.OK() || got.PrunedBytes != 3 || got.OutputBytes != 3 {
		t.Errorf("%+v", got)
	}
}
