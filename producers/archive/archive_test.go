package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func open(t *testing.T) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{Dir: t.TempDir(), Sync: ledger.SyncRelaxed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func post(t *testing.T, l *ledger.Ledger, session, about string, b events.Body) events.Event {
	t.Helper()
	var stored events.Event
	done := make(chan error, 1)
	e := events.Event{Session: session, Subject: about, Owner: events.RootOwner, Body: b}
	if err := l.Post(t.Context(), e, func(e events.Event, err error) { stored = e; done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return stored
}

// record writes a session with n executions, one of them running, and returns
// the sequence of the second one's request.
func recordSession(t *testing.T, l *ledger.Ledger, session string, n int) (second uint64) {
	t.Helper()
	post(t, l, session, session, events.Opened{Program: "test"})
	for i := range n {
		id := fmt.Sprintf("%s-%d", session, i)
		if e := post(t, l, session, id, events.Requested{Command: "x"}); i == 1 {
			second = e.Seq
		}
		post(t, l, session, id, events.Spawned{PID: 5})
		size := int64(0)
		for j := range 10 {
			data := []byte(strings.Repeat(fmt.Sprint(i, j, "\n"), 1+j*500))
			post(t, l, session, id, events.Output{Stream: events.KindStdout, Offset: size, Data: data})
			size += int64(len(data))
		}
		if i < n-1 {
			post(t, l, session, id, events.Settled{Status: events.StatusCompleted, Offset: size})
		}
	}
	return second
}

// contents is everything that the ledger has of a session, without sequences.
func contents(t *testing.T, l *ledger.Ledger, session string) []events.Message {
	t.Helper()
	var all []events.Message
	executions := map[string]bool{}
	for r, err := range l.ReadRaw(t.Context(), events.Filter{Session: session}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ledger.Portable(r.Message))
		e, err := events.Decode(r.Message)
		if err != nil {
			t.Fatal(err)
		}
		if id := e.Execution(); id != "" && !executions[id] {
			executions[id] = true
			for r, err := range l.OutputRaw(t.Context(), session, id, 0) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, ledger.Portable(r.Message))
			}
		}
	}
	return all
}

func export(t *testing.T, l *ledger.Ledger, sessions ...string) []byte {
	t.Helper()
	var buf bytes.Buffer
	if _, err := Export(t.Context(), l, &buf, sessions); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestImportKeepsEveryByteAndAddsNothingTwice(t *testing.T) {
	from, to := open(t), open(t)
	post(t, to, "OTHER", "OTHER", events.Opened{}) // sequences differ
	recordSession(t, from, "S", 3)
	recordSession(t, from, "T", 1)
	data := export(t, from, "S", "T")
	sum, err := Import(t.Context(), to, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{Sessions: []string{"S", "T"}, Open: []string{"S", "T"}, Appended: 39 + 13}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("the summary (-want +got):\n%s", diff)
	}
	for _, s := range sum.Sessions {
		if diff := cmp.Diff(contents(t, from, s), contents(t, to, s)); diff != "" {
			t.Errorf("session %s (-exported +imported):\n%s", s, diff)
		}
	}
	sum, err = Import(t.Context(), to, bytes.NewReader(data))
	if err != nil || sum.Appended != 0 || sum.Present != 39+13 {
		t.Errorf("the second time: %+v, %v", sum, err)
	}
	// The session goes on, and is exported again.
	post(t, from, "S", "S-2", events.Settled{Status: events.StatusCompleted})
	post(t, from, "S", "S", events.Closed{})
	sum, err = Import(t.Context(), to, bytes.NewReader(export(t, from, "S")))
	if err != nil || sum.Appended != 2 || len(sum.Open) != 0 {
		t.Errorf("the rest: %+v, %v", sum, err)
	}
	if diff := cmp.Diff(contents(t, from, "S"), contents(t, to, "S")); diff != "" {
		t.Errorf("session S (-exported +imported):\n%s", diff)
	}
	if claimed, err := to.Claimed(); err != nil || len(claimed) > 0 {
		t.Errorf("claims are left: %v, %v", claimed, err)
	}
}

// TestImportGoesOnAfterACut cuts the archive at many places.
func TestImportGoesOnAfterACut(t *testing.T) {
	from, to := open(t), open(t)
	recordSession(t, from, "S", 3)
	var records []record
	for r, err := range read(bytes.NewReader(export(t, from, "S"))) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	cut := errors.New("cut off")
	for _, n := range []int{0, 1, 5, 14, 15, 30, len(records)} {
		sum, err := importAll(t.Context(), to, func(yield func(record, error) bool) {
			for _, r := range records[:n] {
				if !yield(r, nil) {
					return
				}
			}
			yield(record{}, cut)
		})
		if !errors.Is(err, cut) || sum.Appended+sum.Present != n {
			t.Fatalf("cut after %d: %+v, %v", n, sum, err)
		}
	}
	if diff := cmp.Diff(contents(t, from, "S"), contents(t, to, "S")); diff != "" {
		t.Errorf("(-exported +imported):\n%s", diff)
	}
}

func TestImportRefusesAnotherHistory(t *testing.T) {
	from, to := open(t), open(t)
	recordSession(t, from, "S", 2)
	recordSession(t, to, "S", 2)
	before := contents(t, to, "S")
	if _, err := Import(t.Context(), to, bytes.NewReader(export(t, from, "S"))); !errors.Is(err, ErrDiffers) {
		t.Errorf("imported: %v", err)
	}
	if diff := cmp.Diff(before, contents(t, to, "S")); diff != "" {
		t.Errorf("it changed:\n%s", diff)
	}
}

func TestImportRefusesASessionThatIsLive(t *testing.T) {
	from, to := open(t), open(t)
	recordSession(t, from, "S", 1)
	claim, err := to.ClaimSession("S")
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Release()
	if _, err := Import(t.Context(), to, bytes.NewReader(export(t, from, "S"))); err == nil || !strings.Contains(err.Error(), "belongs to this ledger") {
		t.Errorf("imported: %v", err)
	}
}

func TestImportRefusesAnAlteredArchive(t *testing.T) {
	from, to := open(t), open(t)
	recordSession(t, from, "S", 2)
	var altered []record
	for r, err := range read(bytes.NewReader(export(t, from, "S"))) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(r.Subject, ".requested") {
			r.Data = bytes.Replace(r.Data, []byte(`"x"`), []byte(`"y"`), 1)
		}
		altered = append(altered, r)
	}
	_, err := importAll(t.Context(), to, func(yield func(record, error) bool) {
		for _, r := range altered {
			if !yield(r, nil) {
				return
			}
		}
	})
	if !errors.Is(err, ledger.ErrChain) {
		t.Errorf("imported: %v", err)
	}
}

// TestImportedForkMeansTheSamePlace moves a session and its fork.
func TestImportedForkMeansTheSamePlace(t *testing.T) {
	from, to := open(t), open(t)
	post(t, to, "OTHER", "OTHER", events.Opened{})
	at := recordSession(t, from, "S", 2)
	post(t, from, "F", "F", events.Opened{})
	post(t, from, "F", "F", events.Forked{From: "S", At: at})
	if _, err := Import(t.Context(), to, bytes.NewReader(export(t, from, "S", "F"))); err != nil {
		t.Fatal(err)
	}
	for e, err := range to.Read(t.Context(), events.Filter{Kind: events.KindForked}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if b := e.Body.(events.Forked); b.At != at+1 { // this ledger has one event more before it
			t.Errorf("forked at %d, want %d", b.At, at+1)
		}
	}
}

// TestImportedRewindMeansTheSamePlace moves a session that was rewound to a
// ledger with other sequences, and from there to a third.
func TestImportedRewindMeansTheSamePlace(t *testing.T) {
	ledgers := []*ledger.Ledger{open(t), open(t), open(t)}
	second := recordSession(t, ledgers[0], "S", 3)
	post(t, ledgers[0], "S", "S", events.Rewound{To: second - 1})
	for i, l := range ledgers[1:] {
		for range 7 * (i + 1) {
			post(t, l, "OTHER", "OTHER", events.Queued{})
		}
		if _, err := Import(t.Context(), l, bytes.NewReader(export(t, ledgers[i], "S"))); err != nil {
			t.Fatal(err)
		}
		var to, last uint64
		for e, err := range l.Read(t.Context(), events.Filter{Session: "S"}, 1, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Subject == "S-0" {
				last = e.Seq
			}
			if b, ok := e.Body.(events.Rewound); ok {
				to = b.To
			}
		}
		if to != last {
			t.Errorf("ledger %d: rewound to %d, want %d", i+1, to, last)
		}
	}
}

func TestCutOffArchivesAreTold(t *testing.T) {
	l := open(t)
	recordSession(t, l, "S", 2)
	data := export(t, l, "S")
	for _, n := range []int{0, 3, 20, len(data) / 2, len(data) - 5} {
		err := error(nil)
		for _, e := range read(bytes.NewReader(data[:n])) {
			err = e
		}
		if err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(data))
		}
	}
}

const castV3 = `{"version":3,"term":{"cols":80,"rows":24},"timestamp":1700000000,"command":"make","title":"Build"}
# a comment
[0.5, "o", "hello\r\n"]
[0.25, "i", "\u0003"]
[0.0, "r", "100x30"]
[1.0, "m", "here"]
[0.25, "o", "ü\r\n"]
[0.0, "x", "2"]
`

func TestImportAsciicast(t *testing.T) {
	l := open(t)
	var first Summary
	for i := range 2 {
		sum, err := ImportAsciicast(t.Context(), l, []byte(castV3))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = sum
		} else if sum.Appended != 0 || sum.Present != first.Appended || !slices.Equal(sum.Sessions, first.Sessions) {
			t.Errorf("the second time: %+v", sum)
		}
	}
	var kinds []string
	var settled events.Settled
	var execution string
	for e, err := range l.Read(t.Context(), events.Filter{}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(e.Kind()))
		if b, ok := e.Body.(events.Settled); ok {
			settled, execution = b, e.Subject
		}
	}
	if got := strings.Join(kinds, " "); got != "opened requested spawned input input settled closed" {
		t.Errorf("events: %s", got)
	}
	if settled.ExitCode == nil || *settled.ExitCode != 2 || settled.DurationMS != 2000 || settled.Offset != 11 || settled.Outcome != events.OutcomeFailure {
		t.Errorf("settled %+v", settled)
	}
	var out []byte
	for e, err := range l.Output(t.Context(), first.Sessions[0], execution, 0, -1) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e.Body.(events.Output).Data...)
	}
	if string(out) != "hello\r\nü\r\n" {
		t.Errorf("output %q", out)
	}
	_, err := ImportAsciicast(t.Context(), l, []byte(`{"version":2,"width":80,"height":24}`+"\n[1.5,\"o\",\"x\"]\n[3.5,\"o\",\"y\"]\n"))
	if err != nil {
		t.Error(err)
	}
	if _, err := ImportAsciicast(t.Context(), l, []byte(`{"version":1}`)); err == nil {
		t.Error("version 1 was taken")
	}
}

func FuzzRead(f *testing.F) {
	var buf bytes.Buffer
	w, err := newWriter(&buf)
	if err != nil {
		f.Fatal(err)
	}
	if err := w.write(record{seq: 4, Message: events.Message{Subject: "s", Header: map[string][]string{"a": {"b"}}, Data: []byte("data")}}); err != nil {
		f.Fatal(err)
	}
	if err := w.close(); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(_ *testing.T, data []byte) {
		for _, err := range read(io.LimitReader(bytes.NewReader(data), 1<<20)) {
			if err != nil {
				return
			}
		}
	})
}

func FuzzAsciicast(f *testing.F) {
	f.Add([]byte(castV3))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := fromAsciicast(data)
		if err != nil {
			return
		}
		for _, r := range records {
			if _, err := events.Decode(r.Message); err != nil {
				t.Fatalf("made a message that is no event: %v", err)
			}
		}
	})
}

func TestImportEndsWithItsContext(t *testing.T) {
	from, to := open(t), open(t)
	recordSession(t, from, "S", 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Import(ctx, to, bytes.NewReader(export(t, from, "S"))); err == nil {
		t.Error("imported")
	}
}
