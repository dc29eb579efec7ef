//go:build linux

package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/yieldlog/yieldlog/events/ledger"
)

// A sighting is an event that was stored a moment ago, as its subject tells.
type sighting struct{ session, class, id, kind string }

// A watcher follows the events of a ledger as any tool may: over the socket,
// with the read-only credentials. Unlike whoever opens the ledger it never
// becomes the host.
type watcher struct {
	dir string

	mu   sync.Mutex
	want func(sighting) bool
	got  chan sighting
	pids map[string]int // the process of each session, as far as it was seen opening
}

func newWatcher(dir string) *watcher { return &watcher{dir: dir, pids: map[string]int{}} }

// run follows until ctx ends, from one host to the next.
func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = w.follow(ctx) // it ends with each host
		time.Sleep(time.Millisecond)
	}
}

// await is the next event that is wanted, if it comes in time.
func (w *watcher) await(d time.Duration, want func(sighting) bool) (sighting, bool) {
	got := make(chan sighting, 1)
	w.mu.Lock()
	w.want, w.got = want, got
	w.mu.Unlock()
	select {
	case s := <-got:
		return s, true
	case <-time.After(d):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.want = nil
		return sighting{}, false
	}
}

// pid is the process that writes the session, 0 if it was not seen opening.
func (w *watcher) pid(session string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pids[session]
}

func (w *watcher) follow(ctx context.Context) error {
	s, err := ledger.ReadSubscriber(w.dir)
	if err != nil {
		return err
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "nats://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	hello, err := json.Marshal(map[string]any{"user": s.User, "pass": s.Password, "headers": true, "protocol": 1, "verbose": false})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %s\r\nSUB yieldlog.> 1\r\n", hello); err != nil {
		return err
	}
	for r := bufio.NewReaderSize(conn, 1<<20); ; {
		if err := w.message(conn, r); err != nil {
			return err
		}
	}
}

// message takes one line of the NATS protocol, and what it announces.
func (w *watcher) message(conn io.Writer, r *bufio.Reader) error {
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	f := strings.Fields(line)
	switch {
	case len(f) == 0:
		return nil
	case f[0] == "PING":
		_, err := io.WriteString(conn, "PONG\r\n")
		return err
	case f[0] == "-ERR":
		return fmt.Errorf("the server says %s", strings.TrimSpace(line))
	case f[0] != "HMSG" || len(f) < 5:
		return nil
	}
	var head, total int
	if _, err := fmt.Sscan(f[len(f)-2], &head); err != nil {
		return err
	}
	if _, err := fmt.Sscan(f[len(f)-1], &total); err != nil {
		return err
	}
	data := make([]byte, total+2)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	w.see(f[1], data[head:total])
	return nil
}

func (w *watcher) see(subject string, body []byte) {
	t := strings.Split(subject, ".")
	if len(t) != 5 {
		return
	}
	s := sighting{session: t[1], class: t[2], id: t[3], kind: t[4]}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.kind == "opened" {
		var opened struct{ PID int }
		if json.Unmarshal(body, &opened) == nil {
			w.pids[s.session] = opened.PID
		}
	}
	if w.want != nil && w.want(s) {
		w.want = nil
		w.got <- s
	}
}
