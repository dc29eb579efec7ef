package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/yieldlog/yieldlog/events"
)

const reviewer = "/root/reviewer"

// A clerk serves the sinks of a ledger from a list, as often as it is asked.
type clerk struct {
	l    *Ledger
	acks chan SinkAck
	mail chan uint64 // sequences
}

// newClerk serves two sinks, and connects as each.
func newClerk(t *testing.T) (c *clerk, root, other *nats.Conn) {
	dir := t.TempDir()
	c = &clerk{l: open(t, dir), acks: make(chan SinkAck, 100), mail: make(chan uint64, 100)}
	t.Cleanup(c.l.ServeSinks(c.pull, func(a SinkAck) { a.Answer(); c.acks <- a }))
	for _, owner := range []string{events.RootOwner, reviewer} {
		if err := c.l.AddSink(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
	}
	return c, sinkOf(t, dir, events.RootOwner), sinkOf(t, dir, reviewer)
}

func (c *clerk) pull(ctx context.Context, p *Pull) {
	for p.Left() > 0 {
		select {
		case seq := <-c.mail:
			if !p.Deliver(ctx, seq, 1000+seq, seq%2 == 0) {
				c.mail <- seq
				return
			}
		case <-ctx.Done():
			return
		default:
			if p.NoWait {
				return
			}
			pause(ctx, time.Millisecond)
		}
	}
}

// post appends records, and has them delivered.
func (c *clerk) post(t *testing.T, n int) (seqs []uint64) {
	t.Helper()
	for range n {
		e, err := c.l.Append(t.Context(), event("S", events.NewID(), events.Posted{Mail: events.MailCompletion, Notice: "done"}))
		if err != nil {
			t.Fatal(err)
		}
		c.mail <- e.Seq
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

// sinkOf connects as the sink of an owner, once it is served.
func sinkOf(t *testing.T, dir, owner string) *nats.Conn {
	t.Helper()
	list, err := ReadSinks(dir)
	i := slices.IndexFunc(list, func(s Sink) bool { return s.Owner == owner })
	if err != nil || i < 0 {
		t.Fatalf("the sinks are %+v, %v", list, err)
	}
	nc, err := nats.Connect(list[i].URL, nats.UserInfo(list[i].User, list[i].Password), nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err = nc.Request(sinkInfo, nil, 10*time.Second); err == nil {
			return nc
		}
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// consumer is the sink's, as any client finds it.
func consumer(t *testing.T, nc *nats.Conn) jetstream.Consumer {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), SinkStream, SinkConsumer)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSinkPullsAsFromJetStream(t *testing.T) {
	c, root, _ := newClerk(t)
	take := consumer(t, root)
	seqs := c.post(t, 2)
	for i, seq := range seqs {
		m, err := take.Next()
		if err != nil {
			t.Fatal(err)
		}
		h := m.Headers()
		if h.Get("Nats-Sequence") != fmt.Sprint(seq) || h.Get("ce-type") != "com.yieldlog.mailbox.posted" || string(m.Data()) == "" ||
			(h.Get(headerRedelivered) == "true") != (seq%2 == 0) {
			t.Errorf("record %d: %v %s", i, h, m.Data())
		}
		if err := errors.Join(m.InProgress(), m.DoubleAck(t.Context())); err != nil {
			t.Error(err)
		}
		for _, verb := range []AckVerb{AckProgress, AckTaken} {
			if a := <-c.acks; a.Owner != events.RootOwner || a.Seq != seq || a.Lease != 1000+seq || a.Verb != verb {
				t.Errorf("heard %+v, want %s", a, verb)
			}
		}
	}
	if _, err := take.Next(jetstream.FetchMaxWait(10 * time.Millisecond)); err == nil {
		t.Error("there was more")
	}
	none, err := take.FetchNoWait(10)
	if err != nil || len(none.Messages()) > 0 || none.Error() != nil {
		t.Errorf("without a wait: %v, %v", err, none.Error())
	}
}

func TestSinkConsumesAStream(t *testing.T) {
	c, root, _ := newClerk(t)
	got := make(chan jetstream.Msg, 10)
	// The shortest expiry that the client takes: some requests end empty.
	cc, err := consumer(t, root).Consume(func(m jetstream.Msg) { got <- m }, jetstream.PullExpiry(time.Second), jetstream.PullMaxMessages(2))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Stop()
	for range 5 {
		seqs := c.post(t, 1)
		m := <-got
		if m.Headers().Get("Nats-Sequence") != fmt.Sprint(seqs[0]) {
			t.Errorf("got %v, want %d", m.Headers(), seqs)
		}
		if err := m.Nak(); err != nil {
			t.Error(err)
		}
		if a := <-c.acks; a.Verb != AckReturned {
			t.Errorf("heard %+v", a)
		}
	}
}

func TestSinkRequests(t *testing.T) {
	c, root, _ := newClerk(t)
	inbox := root.NewInbox()
	sub, err := root.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	c.post(t, 1)
	for _, q := range []struct{ body, status string }{
		{"", ""},
		{`{"no_wait":true}`, "404"},
		{`{"expires":1000000}`, "408"},
		{`{"batch":-1}`, "400"},
		{`so many`, "400"},
		{`{"expires":60000000000,"idle_heartbeat":1000000}`, "100"},
	} {
		if err := root.PublishRequest(sinkNext, inbox, []byte(q.body)); err != nil {
			t.Fatal(err)
		}
		if m, err := sub.NextMsg(time.Minute); err != nil || m.Header.Get("Status") != q.status {
			t.Errorf("%s was answered %+v, %v", q.body, m, err)
		}
	}
}

func TestSinkOfTooLittleRoomIsToldSo(t *testing.T) {
	c, root, _ := newClerk(t)
	c.post(t, 1)
	m, err := root.Request(sinkNext, []byte(`{"max_bytes":10}`), time.Minute)
	if err != nil || m.Header.Get("Status") != "409" {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, err = root.Request(sinkNext, nil, time.Minute); err != nil || m.Header.Get("Status") != "" {
		t.Errorf("then %+v, %v", m, err)
	}
}

// TestSinkThatLeftIsNoticed delivers to a request whose program has gone.
func TestSinkThatLeftIsNoticed(t *testing.T) {
	c, root, _ := newClerk(t)
	if err := root.PublishRequest(sinkNext, root.NewInbox(), []byte(`{"batch":10}`)); err != nil {
		t.Fatal(err)
	}
	seq := c.post(t, 1)[0]
	if a := <-c.acks; a.Verb != AckNobody || a.Seq != seq || a.Lease != 1000+seq {
		t.Errorf("heard %+v", a)
	}
	c.post(t, 1)
	if m, err := root.Request(sinkNext, nil, time.Minute); err != nil || m.Header.Get("Status") != "" {
		t.Errorf("the request of who had gone was in the way: %+v, %v", m, err)
	}
}

// TestSinkCanDoNothingElse tries what a sink must not do, directly and through
// the reply subject of what it may do.
func TestSinkCanDoNothingElse(t *testing.T) {
	c, root, other := newClerk(t)
	appendQueued(t, c.l, 10)
	before, err := c.l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard, err := c.l.store.nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.l.store.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	settled := events.Subject("S", events.ClassExecution, "E", events.KindSettled)
	forbidden := []string{
		settled, ingestPrefix(lifecycleStream) + settled, controlRoot + "S", hostRoot + orderRotate, hostRoot + orderSink, nowhere,
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO." + lifecycleStream, "$JS.API.STREAM.INFO." + SinkStream,
		"$JS.API.DIRECT.GET." + lifecycleStream, "$JS.API.STREAM.MSG.GET." + lifecycleStream,
		"$JS.API.STREAM.PURGE." + lifecycleStream, "$JS.API.STREAM.PURGE." + SinkStream, "$JS.API.STREAM.DELETE." + lifecycleStream,
		"$JS.API.STREAM.DELETE." + SinkStream, "$JS.API.STREAM.UPDATE." + lifecycleStream, "$JS.API.STREAM.CREATE.X",
		"$JS.API.STREAM.MSG.DELETE." + lifecycleStream, "$JS.API.CONSUMER.CREATE." + lifecycleStream + ".x",
		"$JS.API.CONSUMER.CREATE." + SinkStream + "." + SinkConsumer, "$JS.API.CONSUMER.DELETE." + SinkStream + "." + SinkConsumer,
		"$JS.API.CONSUMER.MSG.NEXT." + lifecycleStream + ".x", "$JS.API.CONSUMER.NAMES." + SinkStream, "$JS.ACK." + lifecycleStream + ".x.1.1.1.1.1",
		"$SYS.REQ.USER.INFO",
	}
	allowed := []string{sinkNext, sinkInfo, sinkAck + "1.1"}
	reply := root.NewInbox()
	for _, f := range forbidden {
		publish(t, root, f, reply, `{"seq":1}`)
		for _, a := range allowed {
			for _, body := range []string{"", "+ACK", `{"no_wait":true}`, `{"batch":5,"expires":1000000}`} {
				publish(t, root, a, f, body)
			}
		}
	}
	var ears []*nats.Subscription
	for _, f := range []string{">", "yieldlog.>", "ingest.>", "control.>", "$JS.>", "$SYS.>", sinkNext, sinkAck + ">", "MAILBOX.>"} {
		if sub, err := root.SubscribeSync(f); err == nil {
			ears = append(ears, sub)
		}
		if sub, err := root.QueueSubscribeSync(f, "mailbox"); err == nil {
			ears = append(ears, sub)
		}
	}
	if err := root.Flush(); err != nil {
		t.Fatal(err)
	}
	// What reached a clerk it has handled before this.
	if _, err := root.Request(sinkInfo, nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := c.l.store.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for n, _, _ := heard.Pending(); n > 0; n-- {
		m, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		hosts := m.Reply != reply && strings.HasPrefix(m.Reply, inbox) // the host looks after its streams meanwhile
		if slices.Contains(forbidden, m.Subject) && !hosts {
			t.Errorf("a sink's message reached %s", m.Subject)
		}
	}
	// The other owner's mail reaches nobody but its sink.
	seq := c.post(t, 1)[0]
	m, err := other.Request(sinkNext, nil, time.Minute)
	if err != nil || m.Header.Get("Nats-Sequence") != fmt.Sprint(seq) {
		t.Fatalf("the other sink got %+v, %v", m, err)
	}
	after, err := c.l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.LastSeq != before.LastSeq+1 || len(after.Streams) != len(before.Streams) || after.Streams[0].Messages != before.Streams[0].Messages+1 {
		t.Errorf("a sink changed the ledger: %+v, before %+v", after, before)
	}
	for _, sub := range ears {
		if n, _, err := sub.Pending(); err == nil && n > 0 {
			t.Errorf("a sink heard %d messages on %s", n, sub.Subject)
		}
	}
}

func TestSinkCredentials(t *testing.T) {
	dir := t.TempDir()
	l, joined := open(t, dir), open(t, dir)
	for _, owner := range []string{"", "root", "reviewer", "/root\n", "/root/", "/root/a/../b"} {
		if err := joined.AddSink(t.Context(), owner); !errors.Is(err, ErrSink) {
			t.Errorf("a sink of %q: %v", owner, err)
		}
	}
	t.Cleanup(l.ServeSinks(func(context.Context, *Pull) {}, func(SinkAck) {}))
	read := func() Sink {
		t.Helper()
		list, err := ReadSinks(dir)
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0]
	}
	refused := func(s Sink) {
		t.Helper()
		if nc, err := nats.Connect(s.URL, nats.UserInfo(s.User, s.Password), nats.NoReconnect()); err == nil {
			nc.Close()
			t.Error("void credentials connect")
		}
	}
	for range 2 {
		if err := joined.AddSink(t.Context(), events.RootOwner); err != nil {
			t.Fatal(err)
		}
	}
	first := read()
	sinkOf(t, dir, events.RootOwner)
	if info, err := os.Stat(stateDir(dir).credentials()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the credentials: %v, %v", info.Mode(), err)
	}
	if err := joined.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := joined.AddSink(t.Context(), events.RootOwner); err != nil { // it is answered after the restart
		t.Fatal(err)
	}
	second := read()
	refused(first)
	sinkOf(t, dir, events.RootOwner)
	if err := joined.RemoveSink(t.Context(), events.RootOwner); err != nil {
		t.Fatal(err)
	}
	refused(second)
	appendQueued(t, joined, 1)
}

func TestSinksAreBounded(t *testing.T) {
	var c credentials
	for i := range maxSinks {
		var err error
		if c, err = c.withSink(fmt.Sprintf("/root/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.withSink("/root/more"); !errors.Is(err, ErrSink) {
		t.Errorf("one too many: %v", err)
	}
	if got, err := c.withoutSink("/root/3").withSink("/root/more"); err != nil || len(got.Sinks) != maxSinks {
		t.Errorf("after one was removed: %d, %v", len(got.Sinks), err)
	}
}

// TestSinksComeAndGoQuietly restarts the server on purpose, while its host has
// the next order already.
func TestSinksComeAndGoQuietly(t *testing.T) {
	dir := t.TempDir()
	var said bytes.Buffer
	h, err := Open(t.Context(), Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	guest := open(t, dir)
	for i := range 4 {
		owner := fmt.Sprintf("/root/%d", i)
		if err := errors.Join(guest.AddSink(t.Context(), owner), guest.RemoveSink(t.Context(), owner)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil { // no more is said then
		t.Fatal(err)
	}
	if said.Len() > 0 {
		t.Errorf("it warns:\n%s", said.String())
	}
}

// TestSinkThatIsNotInForce holds that a sink that the server does not know yet
// keeps nobody waiting: the credentials are written before the server has them.
func TestSinkThatIsNotInForce(t *testing.T) {
	dir := stateDir(t.TempDir())
	l := open(t, string(dir))
	c, err := dir.readCredentials()
	if err == nil {
		c, err = c.withSink(events.RootOwner)
	}
	if err = errors.Join(err, dir.writeCredentials(c)); err != nil {
		t.Fatal(err)
	}
	stop := l.ServeSinks(func(context.Context, *Pull) {}, func(SinkAck) {})
	time.Sleep(5 * passPause) // it tries, again and again
	began := time.Now()
	stop()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the end took %s", took)
	}
}
