package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// TestMain lets the test binary play a process that uses the ledger.
func TestMain(m *testing.M) {
	if dir := os.Getenv("YIELDLOG_TEST_WRITER"); dir != "" {
		if err := writer(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if step := os.Getenv("YIELDLOG_TEST_PACK"); step != "" {
		if err := killedAtPackStep(os.Getenv("YIELDLOG_TEST_PACK_DIR"), step); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const writerChunk = 900

// writer appends lifecycle events and output until its standard input ends. It
// prints a line for each acknowledgement.
func writer(dir string) error {
	l, err := Open(context.Background(), Options{Dir: dir, SegmentBytes: 1 << 20})
	if err != nil {
		return err
	}
	fmt.Println("open")
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	session := fmt.Sprintf("W%d", os.Getpid())
	var wg sync.WaitGroup
	wg.Go(func() { write(ctx, l, session, "L", func(i int) events.Body { return events.Queued{Ahead: i} }) })
	wg.Go(func() {
		write(ctx, l, session, "O", func(i int) events.Body {
			return events.Output{Stream: events.KindStdout, Offset: int64(i * writerChunk), Data: chunk(i)}
		})
	})
	wg.Wait()
	if err := l.Close(); err != nil {
		return err
	}
	fmt.Println("closed")
	return nil
}

func chunk(i int) []byte {
	return []byte(strings.Repeat(fmt.Sprintf("%08d ", i), writerChunk/9))
}

// write keeps 100 posts on their way until ctx ends.
func write(ctx context.Context, l *Ledger, session, word string, body func(int) events.Body) {
	window := make(chan struct{}, 100)
	for i := 0; ctx.Err() == nil; i++ {
		window <- struct{}{}
		err := l.Post(ctx, event(session, "E", body(i)), func(_ events.Event, err error) {
			<-window
			if err != nil {
				fmt.Println("error", err)
				return
			}
			fmt.Println(word, i)
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			fmt.Println("error", err)
			return
		}
	}
}

// A writerProcess is a child that runs writer.
type writerProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when its output ended

	mu     sync.Mutex
	acked  map[string]int // the last acknowledged number of each word
	errs   []string
	opened chan struct{}
	closed bool
	moved  chan struct{} // a token when something was acknowledged
}

func startWriter(t *testing.T, dir string) *writerProcess {
	t.Helper()
	w := &writerProcess{
		cmd: exec.Command(os.Args[0]), done: make(chan struct{}), opened: make(chan struct{}),
		acked: map[string]int{"L": -1, "O": -1}, moved: make(chan struct{}, 1),
	}
	w.cmd.Env = append(os.Environ(), "YIELDLOG_TEST_WRITER="+dir)
	w.cmd.Stderr = os.Stderr
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.cmd.Process.Kill() })
	go w.read(out)
	return w
}

func (w *writerProcess) read(out io.Reader) {
	defer close(w.done)
	for s := bufio.NewScanner(out); s.Scan(); {
		w.mu.Lock()
		word, rest, _ := strings.Cut(s.Text(), " ")
		switch word {
		case "open":
			close(w.opened)
		case "closed":
			w.closed = true
		case "L", "O":
			var i int
			_, _ = fmt.Sscan(rest, &i)
			if i != w.acked[word]+1 {
				w.errs = append(w.errs, fmt.Sprintf("%s %d acknowledged after %d", word, i, w.acked[word]))
			}
			w.acked[word] = i
			select {
			case w.moved <- struct{}{}:
			default:
			}
		default:
			w.errs = append(w.errs, s.Text())
		}
		w.mu.Unlock()
	}
}

// progress waits until n more lifecycle events and chunks were acknowledged.
func (w *writerProcess) progress(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	l, o := w.acked["L"]+n, w.acked["O"]+n
	w.mu.Unlock()
	deadline := time.After(time.Minute)
	for {
		w.mu.Lock()
		there := w.acked["L"] >= l && w.acked["O"] >= o
		w.mu.Unlock()
		if there {
			return
		}
		select {
		case <-w.moved:
		case <-w.done:
			t.Fatalf("the writer ended: %v", w.errs)
		case <-deadline:
			t.Fatalf("no progress: %v", w.acked)
		}
	}
}

func TestReconnectingSlowsDown(t *testing.T) {
	s := &store{}
	if wait := s.onReconnecting(1); wait > 2*reconnectWait {
		t.Errorf("the first attempt to reconnect waits for %v", wait)
	}
	if wait := s.onReconnecting(reconnectSoon + 1); wait < reconnectLater {
		t.Errorf("after %d attempts it waits for %v", reconnectSoon, wait)
	}
}

// TestSurvivorTakesOver kills the host with SIGKILL under load, again and
// again. What was acknowledged must be there, once, in order.
func TestSurvivorTakesOver(t *testing.T) {
	dir := t.TempDir()
	var all, alive []*writerProcess
	add := func() {
		w := startWriter(t, dir)
		select {
		case <-w.opened:
		case <-time.After(time.Minute):
			t.Fatal("the writer did not open the ledger")
		}
		all, alive = append(all, w), append(alive, w)
	}
	for range 3 {
		add()
	}
	rounds := 4
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		for _, w := range alive {
			w.progress(t, 50)
		}
		alive = killHost(t, dir, alive)
		killed := time.Now()
		for _, w := range alive {
			w.progress(t, 20)
		}
		t.Log("went on after", time.Since(killed))
		add()
	}
	for _, w := range alive {
		if err := w.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		<-w.done
		if err := w.cmd.Wait(); err != nil || !w.closed {
			t.Errorf("the writer ended with %v, closed %v", err, w.closed)
		}
	}
	l := open(t, dir)
	for _, w := range all {
		checkWriter(t, l, w)
	}
}

// killHost kills the process that hosts and returns the others.
func killHost(t *testing.T, dir string, alive []*writerProcess) []*writerProcess {
	t.Helper()
	var ep endpoint
	for deadline := time.Now().Add(time.Minute); readJSON(stateDir(dir).endpoint(), &ep) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("nobody takes over")
		}
		time.Sleep(time.Millisecond)
	}
	var left []*writerProcess
	for _, w := range alive {
		if w.cmd.Process.Pid != ep.PID {
			left = append(left, w)
			continue
		}
		if err := w.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-w.done
		_ = w.cmd.Wait()
	}
	if len(left) != len(alive)-1 {
		t.Fatalf("the host %d is none of the writers", ep.PID)
	}
	return left
}

func checkWriter(t *testing.T, l *Ledger, w *writerProcess) {
	t.Helper()
	for _, e := range w.errs {
		t.Errorf("writer %d: %s", w.cmd.Process.Pid, e)
	}
	session := fmt.Sprintf("W%d", w.cmd.Process.Pid)
	next, prev := 0, ""
	for r, err := range l.ReadRaw(t.Context(), events.Filter{Session: session}, 1, 0) {
		if err != nil {
			t.Fatal(err)
		}
		e, err := decode(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Body.(events.Queued).Ahead; got != next {
			t.Fatalf("%s: lifecycle event %d at %d", session, got, next)
		}
		if e.Prev != prev {
			t.Fatalf("%s: the chain breaks at %d", session, next)
		}
		prev = events.Hash(r.Message)
		next++
	}
	if next <= w.acked["L"] {
		t.Errorf("%s: %d lifecycle events were acknowledged and %d are there", session, w.acked["L"]+1, next)
	}
	checkOutput(t, l, session, w.acked["O"])
}

func checkOutput(t *testing.T, l *Ledger, session string, acked int) {
	t.Helper()
	subject := events.Filter{Session: session, Class: events.ClassOutput}.Subject()
	i := 0
	for _, segment := range l.dir().segments() {
		for r, err := range l.scan(t.Context(), segment, subject, 1, batchBytes) {
			if err != nil {
				t.Fatal(err)
			}
			e, err := decode(r)
			if err != nil {
				t.Fatal(err)
			}
			o := e.Body.(events.Output)
			if o.Offset != int64(i*writerChunk) || string(o.Data) != string(chunk(i)) {
				t.Fatalf("%s: chunk at offset %d, want %d (%s, sequence %d)", session, o.Offset, i*writerChunk, segment, r.Seq)
			}
			i++
		}
	}
	if i <= acked {
		t.Errorf("%s: %d chunks were acknowledged and %d are there", session, acked+1, i)
	}
}
