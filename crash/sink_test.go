//go:build linux

package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// TestSinkRace lets programs outside, polls and the mailbox race for
// completions, while hosts and owners are killed: each completion is taken once,
// and whoever is told of one again is told so.
func TestSinkRace(t *testing.T) {
	for i := range *rounds {
		r := newRound(t, *seed+uint64(i))
		actors := map[string]actor{"serve": r.serve, "harness0": r.harness, "harness1": r.harness}
		for i := range 3 {
			actors[fmt.Sprintf("racer%d", i)] = func(ctx context.Context, p *planner) error { return r.client(ctx, p, r.raced) }
		}
		told, _ := windowNamed("told")
		mail, _ := windowNamed("mail")
		told.targets, mail.targets = []target{host, host, owner}, []target{host, owner}
		told.after, mail.after = 20, 20
		r.under([]window{told, mail, told, told, mail, told}, r.act(actors))
		if t.Failed() {
			return
		}
	}
}

// raced is a command in the background, and who asks for its end.
func (r *round) raced(c *client, p *planner) error {
	return r.exec(c, p.quick(), func(o observation) error {
		switch p.rng.IntN(3) {
		case 0:
			_, err := c.call("wait", map[string]any{"process_id": o.ProcessID, "timeout_ms": 1 + p.rng.IntN(50)})
			return err
		case 1:
			_, err := r.collect(c, p.rng.IntN(50))
			return err
		}
		return nil
	}, "yield_ms", 0)
}

// harness is a program outside that takes the mail of the root agent, until ctx
// ends, from one host to the next. It is as careless as programs are: some
// records it does not answer, some it returns, and at times it leaves.
func (r *round) harness(ctx context.Context, p *planner) error {
	for ctx.Err() == nil {
		s, ok := r.sink()
		if !ok {
			r.makeSink(ctx)
			continue
		}
		if err := r.take(ctx, s, p.rng); err != nil && !errors.Is(err, errGone) {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// sink is how to connect, once it was made.
func (r *round) sink() (ledger.Sink, bool) {
	list, err := ledger.ReadSinks(r.dir)
	if err != nil || len(list) == 0 {
		return ledger.Sink{}, false
	}
	return list[0], true
}

func (r *round) makeSink(ctx context.Context) {
	soon(patience, func() bool { return r.locker(hostLock) != 0 || ctx.Err() != nil })
	cmd := exec.Command(binary, "sink", events.RootOwner)
	cmd.Env = r.env
	_ = cmd.Run() // whom it asked may have been killed: it is made again
}

// take takes records over one connection, until that or the context ends.
func (r *round) take(ctx context.Context, s ledger.Sink, rng *rand.Rand) error {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "nats://"))
	if err != nil {
		return errGone
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	hello, err := json.Marshal(map[string]any{"user": s.User, "pass": s.Password, "headers": true, "no_responders": true, "protocol": 1, "verbose": false})
	if err != nil {
		return err
	}
	w := &wire{conn: conn, r: bufio.NewReaderSize(conn, 1<<20), inbox: fmt.Sprintf("_INBOX.%d.", rng.Uint64())}
	w.write("CONNECT " + string(hello))
	w.write("SUB " + w.inbox + "* 1")
	for w.err == nil {
		w.publish("$JS.API.CONSUMER.MSG.NEXT."+s.Stream+"."+s.Consumer, w.inbox+"pull", fmt.Sprintf(`{"batch":%d,"expires":200000000}`, 1+rng.IntN(3)))
		for {
			m := w.next()
			if m.subject == "" || m.header["Status"] != "" {
				break // the request ended, or the connection
			}
			if m.subject != w.inbox+"pull" {
				continue
			}
			if err := r.given(w, m, rng); err != nil {
				return err
			}
		}
	}
	return w.err
}

// given notes a record, and answers in one way or the other.
func (r *round) given(w *wire, m message, rng *rand.Rand) error {
	var posted events.Posted
	if err := json.Unmarshal(m.body, &posted); err != nil {
		return fmt.Errorf("a sink was given %q: %w", m.body, err)
	}
	r.mu.Lock()
	r.letters = append(r.letters, letter{
		Kind: posted.Mail, ProcessID: posted.Execution, Redelivered: m.header["ce-redelivered"] == "true",
		Session: strings.TrimPrefix(m.header["ce-source"], "/yieldlog/"), by: "sink",
	})
	r.mu.Unlock()
	switch n := rng.IntN(20); {
	case n == 0:
		w.err = errGone // it leaves
	case n == 1:
		w.publish(m.reply, "", "-NAK")
	case n == 2: // it forgets
	case n < 10:
		w.publish(m.reply, "", "+ACK")
	default:
		w.publish(m.reply, w.inbox+"ack", "+ACK")
		if got := w.await(w.inbox + "ack"); got.subject != "" && got.header["Status"] == "" {
			r.mu.Lock()
			r.confirmed = append(r.confirmed, m.header["ce-subject"])
			r.mu.Unlock()
		}
	}
	return nil
}

// taken holds that what a sink was told it took, it took.
func (h *history) taken() {
	by := map[string]string{}
	for _, rec := range h.mailbox.List("", "") {
		by[rec.ID] = rec.By
	}
	for _, id := range h.confirmed {
		if by[id] != "sink" {
			h.t.Errorf("a sink was told that it had taken %s, which the ledger says was taken by %q", id, by[id])
		}
	}
}

// tellers counts who told of the records.
func (h *history) tellers() map[string]int {
	by := map[string]int{}
	for _, rec := range h.mailbox.List("", "") {
		by[rec.By]++
	}
	return by
}

// A wire speaks the NATS protocol. Its first error stays, and is errGone.
type wire struct {
	conn io.Writer
	r    *bufio.Reader
	// inbox begins the subjects that nobody else hears.
	inbox string
	later []message // that came while another was waited for
	err   error
}

// A message is one that came in. Without a subject none did.
type message struct {
	subject, reply string
	header         map[string]string
	body           []byte
}

func (w *wire) write(line string) {
	if _, err := io.WriteString(w.conn, line+"\r\n"); err != nil {
		w.err = errGone
	}
}

func (w *wire) publish(subject, reply, body string) {
	w.write(fmt.Sprintf("PUB %s %s %d\r\n%s", subject, reply, len(body), body))
}

// await is the next message on a subject. What else comes is kept.
func (w *wire) await(subject string) message {
	for {
		m := w.read()
		if m.subject == subject || m.subject == "" {
			return m
		}
		w.later = append(w.later, m)
	}
}

func (w *wire) next() message {
	if len(w.later) > 0 {
		m := w.later[0]
		w.later = w.later[1:]
		return m
	}
	return w.read()
}

func (w *wire) read() message {
	for w.err == nil {
		line, err := w.r.ReadString('\n')
		if err != nil {
			w.err = errGone
			break
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "PING":
			w.write("PONG")
		case "-ERR":
			w.err = errGone
		case "MSG", "HMSG":
			return w.message(f)
		}
	}
	return message{}
}

func (w *wire) message(f []string) message {
	head, total := 0, 0
	var err error
	last := len(f) - 1
	if _, err = fmt.Sscan(f[last], &total); err == nil && f[0] == "HMSG" {
		last--
		_, err = fmt.Sscan(f[last], &head)
	}
	data := make([]byte, total+2)
	if err == nil {
		_, err = io.ReadFull(w.r, data)
	}
	if err != nil {
		w.err = errGone
		return message{}
	}
	m := message{subject: f[1], header: map[string]string{}, body: data[head:total]}
	if last > 3 {
		m.reply = f[3]
	}
	for i, line := range strings.Split(string(data[:head]), "\r\n") {
		if i == 0 {
			if _, status, _ := strings.Cut(line, " "); status != "" {
				m.header["Status"] = strings.Fields(status)[0]
			}
			continue
		}
		if k, v, ok := strings.Cut(line, ":"); ok {
			m.header[k] = strings.TrimSpace(v)
		}
	}
	return m
}
