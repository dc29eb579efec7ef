package examples

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/projections"
)

// A record is what the examples print of mail.
type record struct {
	Seq         uint64        `json:"seq"`
	Owner       string        `json:"owner"`
	Redelivered bool          `json:"redelivered"`
	Body        events.Posted `json:"body"`
}

// sink makes a sink of the owner, which serves what sessions leave that ended,
// and hands its credentials to the examples.
func (s *stage) sink(owner string) {
	s.t.Helper()
	stop := producers.ServeSinks(s.l, nil)
	s.t.Cleanup(stop)
	if err := s.l.AddSink(s.t.Context(), owner); err != nil {
		s.t.Fatal(err)
	}
	list, err := ledger.ReadSinks(s.dir)
	if err != nil || len(list) != 1 {
		s.t.Fatalf("the sinks are %+v, %v", list, err)
	}
	s.env = append(s.env, "NATS_URL="+list[0].URL, "NATS_USER="+list[0].User, "NATS_PASSWORD="+list[0].Password)
}

// leave posts records of an owner, in a session that then ends.
func (s *stage) leave(owner string, n int) (posted []record) {
	s.t.Helper()
	before := s.session
	s.session = events.NewID()
	s.append(events.Event{Subject: s.session, Body: events.Opened{Program: "test", Cwd: "/"}})
	for range n {
		e := s.append(events.Event{Subject: events.NewID(), Owner: owner, Body: events.Posted{
			Mail: events.MailCompletion, Execution: "E", Notice: `● Background command "ü" completed (exit code 0)`,
		}})
		body, _ := e.Body.(events.Posted)
		posted = append(posted, record{Seq: e.Seq, Owner: owner, Body: body})
	}
	s.append(events.Event{Subject: s.session, Body: events.Closed{}})
	s.session = before
	return posted
}

// unread is the records that nobody has taken, of what is in the ledger.
func (s *stage) unread() []uint64 {
	s.t.Helper()
	box := projections.NewMailbox()
	for e, err := range s.l.Read(s.t.Context(), events.Filter{Class: events.ClassMailbox}, 1, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		box.Apply(e)
	}
	var left []uint64
	for _, r := range box.List("", "") {
		if r.State != projections.MailAcknowledged {
			left = append(left, r.Seq)
		} else if r.By != "sink" {
			s.t.Errorf("record %d was taken by %s", r.Seq, r.By)
		}
	}
	return left
}

func TestExampleTakesMail(t *testing.T) {
	command := []string{python(t), "python/sink.py", "--once"}
	s := newStage(t)
	want := slices.Concat(s.leave(events.RootOwner, 12), s.leave(events.RootOwner, 3))
	other := s.leave("/root/reviewer", 1)
	s.sink(events.RootOwner)
	var got []record
	for text := range strings.Lines(string(s.output(command))) {
		var r record
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatalf("printed %q: %v", text, err)
		}
		got = append(got, r)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the mail (-posted +printed):\n%s", diff)
	}
	if diff := cmp.Diff([]uint64{other[0].Seq}, s.unread()); diff != "" {
		t.Errorf("unread (-want +got):\n%s", diff)
	}
}

// TestNATSCommandTakesMail takes mail with the official command.
func TestNATSCommandTakesMail(t *testing.T) {
	nats := natsCommand(t)
	s := newStage(t)
	posted := s.leave(events.RootOwner, 2)
	s.sink(events.RootOwner)
	s.output([]string{nats, "consumer", "info", ledger.SinkStream, ledger.SinkConsumer})
	out := string(s.output([]string{nats, "consumer", "next", ledger.SinkStream, ledger.SinkConsumer, "--ack"}))
	if !strings.Contains(out, posted[0].Body.Notice[:10]) {
		t.Errorf("printed %s", out)
	}
	s.until(func() bool { return len(s.unread()) == 1 })
	if out, err := s.command(t.Context(), []string{nats, "--timeout", "2s", "stream", "purge", "LIFECYCLE", "--force"}).CombinedOutput(); err == nil {
		t.Errorf("it could purge: %s", out)
	}
	if left := s.unread(); len(left) != 1 || left[0] != posted[1].Seq {
		t.Errorf("unread: %v", left)
	}
}

// until waits for what an example does without an answer.
func (s *stage) until(is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			s.t.Fatal("it did not come")
		}
	}
}
