package ledger

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/yieldlog/yieldlog/events"
)

// subscriber connects as a reader does.
func subscriber(t *testing.T, dir string) *nats.Conn {
	t.Helper()
	s, err := ReadSubscriber(dir)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.URL, nats.UserInfo(s.User, s.Password), nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func appendQueued(t *testing.T, l *Ledger, n int) {
	t.Helper()
	for i := range n {
		if _, err := l.Append(t.Context(), event("S", "E", events.Queued{Ahead: i})); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadersFollowAndCatchUp(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendQueued(t, l, 10)
	nc := subscriber(t, dir)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Stream(t.Context(), lifecycleStream); err != nil {
		t.Errorf("describing the stream: %v", err)
	}
	batch, err := jetstreamext.GetBatch(t.Context(), js, lifecycleStream, 100, jetstreamext.GetBatchSeq(1))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range batch {
		if errors.Is(err, jetstreamext.ErrNoMessages) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 10 {
		t.Errorf("caught up with %d events, want 10", n)
	}
	sub, err := nc.SubscribeSync("yieldlog.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	appendQueued(t, l, 1)
	m, err := sub.NextMsg(10 * time.Second)
	if err != nil || m.Header.Get(nats.JSSequence) != "11" {
		t.Errorf("followed %v, %v", m, err)
	}
}

// TestM119_ReadersCannotWrite tries what a reader must not do, directly and through
// the reply subject of what it may do. The ledger must be as it was.
func TestM119_ReadersCannotWrite(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendQueued(t, l, 10)
	chunk := events.Output{Stream: events.KindStdout, Data: []byte("hello")}
	if _, err := l.Append(t.Context(), event("S", "E", chunk)); err != nil {
		t.Fatal(err)
	}
	before, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard, err := l.store.nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.store.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	nc := subscriber(t, dir)
	settled := events.Subject("S", events.ClassExecution, "E", events.KindSettled)
	forbidden := []string{
		settled, ingestPrefix(lifecycleStream) + settled, controlRoot + "S", hostRoot + orderRotate, hostRoot + orderDelete,
		"$JS.API.STREAM.PURGE." + lifecycleStream, "$JS.API.STREAM.DELETE." + lifecycleStream, "$JS.API.STREAM.DELETE." + segmentName(1),
		"$JS.API.STREAM.UPDATE." + lifecycleStream, "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.MSG.DELETE." + lifecycleStream,
		"$JS.API.CONSUMER.CREATE." + lifecycleStream + ".x", "$JS.API.STREAM.SNAPSHOT." + lifecycleStream,
	}
	allowed := []string{
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO." + lifecycleStream,
		"$JS.API.DIRECT.GET." + lifecycleStream, "$JS.API.DIRECT.GET." + lifecycleStream + "." + settled,
	}
	for _, f := range forbidden {
		publish(t, nc, f, "", `{"seq":999}`)
		for _, a := range allowed {
			for _, body := range []string{"", `{"seq":1}`, `{"seq":999999}`, `{"seq":1,"batch":5}`} {
				publish(t, nc, a, f, body)
			}
		}
	}
	for _, f := range []string{">", "ingest.>", "control.>", "host.>", "$JS.>", "$SYS.>"} {
		if sub, err := nc.SubscribeSync(f); err == nil {
			defer func() { _ = sub.Unsubscribe() }()
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	// What the server does about them it does before it answers the next request.
	if _, err := nc.Request("$JS.API.INFO", nil, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	appendQueued(t, l, 1)
	after, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.LastSeq != before.LastSeq+1 || len(after.Streams) != len(before.Streams) {
		t.Errorf("a reader changed the ledger: %+v, before %+v", after, before)
	}
	for i, s := range after.Streams {
		if s.FirstSeq != before.Streams[i].FirstSeq || s.Messages < before.Streams[i].Messages {
			t.Errorf("a reader removed something: %+v, before %+v", s, before.Streams[i])
		}
	}
	for {
		m, err := heard.NextMsg(100 * time.Millisecond)
		if err != nil {
			break
		}
		for _, f := range forbidden {
			if m.Subject == f && m.Header.Get(nats.JSSequence) == "" {
				t.Errorf("a reader's message reached %s", f)
			}
		}
	}
}

func publish(t *testing.T, nc *nats.Conn, subject, reply, body string) {
	t.Helper()
	if err := nc.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(body)}); err != nil {
		t.Fatal(err)
	}
}

func TestNobodyConnectsWithoutCredentials(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	s, err := ReadSubscriber(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range [][]nats.Option{nil, {nats.UserInfo(s.User, "wrong")}, {nats.UserInfo("", "")}} {
		if nc, err := nats.Connect(s.URL, append(o, nats.NoReconnect())...); err == nil {
			nc.Close()
			t.Error("connected without credentials")
		}
	}
}

// A ledger that is closed while its server restarts is as whole as before:
// nothing of it is kept aside.
func TestRotateAndCloseKeepsNothingAside(t *testing.T) {
	dir := t.TempDir()
	for range 5 {
		l := open(t, dir)
		appendQueued(t, l, 5)
		if err := l.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if kept, _ := filepath.Glob(filepath.Join(dir, "refused-*")); len(kept) > 0 {
		t.Errorf("kept: %q", kept)
	}
}

// TestRotate makes new credentials: the processes of the ledger go on, and the
// old password is void.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	host, joined := open(t, dir), open(t, dir)
	for i, l := range []*Ledger{joined, host} {
		before, err := ReadSubscriber(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*Ledger{host, joined} {
			appendQueued(t, w, 5)
		}
		after, err := ReadSubscriber(dir)
		if err != nil {
			t.Fatal(err)
		}
		if after.URL != before.URL || after.Password == before.Password {
			t.Errorf("round %d: rotated to %s, same password %v", i, after.URL, after.Password == before.Password)
		}
		refused := func() error {
			nc, err := nats.Connect(before.URL, nats.UserInfo(before.User, before.Password), nats.NoReconnect())
			if err == nil {
				nc.Close()
				return fmt.Errorf("round %d: the old password still connects", i)
			}
			return nil
		}
		// The order is answered before the server restarts.
		deadline := time.Now().Add(time.Minute)
		for err = refused(); err != nil && time.Now().Before(deadline); err = refused() {
			time.Sleep(5 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
		subscriber(t, dir)
	}
}
