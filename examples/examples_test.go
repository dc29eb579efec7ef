package examples

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

const settled = "yieldlog.*.execution.*.settled"

// patience bounds what is waited for: a machine may be slow.
const patience = 2 * time.Minute

// A line is what every example prints for an event.
type line struct {
	Seq     uint64         `json:"seq"`
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Subject string         `json:"subject"`
	Body    map[string]any `json:"body"`
}

// A client is one of the examples: how to start it, unless its tools are missing.
type client struct {
	name    string
	command func(t *testing.T) []string
	noSince bool
}

var clients = []client{
	{name: "go", command: goExample},
	{name: "node", command: nodeExample},
	{name: "python", command: func(t *testing.T) []string { return []string{python(t), "python/follow.py"} }},
	{name: "shell", command: func(t *testing.T) []string { natsCommand(t); return []string{"sh", "shell/follow.sh"} }, noSince: true},
}

func TestExamplesFollow(t *testing.T) {
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			command := c.command(t)
			s := newStage(t)
			cursor := filepath.Join(t.TempDir(), "cursor")
			first := s.settle(3)
			got := s.once(command, settled, cursor)
			if diff := cmp.Diff(first, got); diff != "" {
				t.Fatalf("the past (-appended +printed):\n%s", diff)
			}
			if got := s.once(command, settled, cursor); len(got) != 0 {
				t.Fatalf("with nothing new it printed %v", got)
			}
			since := time.Now()
			second := s.settle(2)
			if diff := cmp.Diff(second, s.once(command, settled, cursor)); diff != "" {
				t.Fatalf("after the cursor (-appended +printed):\n%s", diff)
			}
			if !c.noSince {
				fresh := filepath.Join(t.TempDir(), "cursor")
				got := s.once(append(slices.Clone(command), "--since", since.UTC().Format(time.RFC3339Nano)), settled, fresh)
				if diff := cmp.Diff(second, got); diff != "" {
					t.Fatalf("since a time (-appended +printed):\n%s", diff)
				}
			}
			s.live(command, cursor)
		})
	}
}

// live follows events as they come, over a change of the host.
func (s *stage) live(command []string, cursor string) {
	s.t.Helper()
	lines := s.start(command, settled, cursor)
	for round := range 2 {
		want := s.settle(1)[0]
		select {
		case got, ok := <-lines:
			if !ok {
				s.t.Fatal("the example ended")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				s.t.Fatalf("live (-appended +printed):\n%s", diff)
			}
		case <-time.After(patience):
			s.t.Fatalf("the event of round %d did not come", round)
		}
		if round == 0 && !s.reopen() {
			return
		}
	}
}

func TestExampleReadsOutput(t *testing.T) {
	command := []string{python(t), "python/output.py"}
	s := newStage(t)
	execution, want := events.NewID(), []byte(nil)
	for i := range 40 {
		chunk := []byte(strings.Repeat("line of chunk\n", 1+i*40)) // some long enough to be compressed
		s.append(events.Event{Subject: execution, Body: events.Output{Stream: events.KindStdout, Offset: int64(len(want)), Data: chunk}})
		want = append(want, chunk...)
	}
	if got := s.output(append(command, s.session, execution)); !bytes.Equal(got, want) {
		t.Errorf("printed %d bytes, want %d", len(got), len(want))
	}
}

// TestNATSCommand reads with the official command, and finds that it may do no more.
func TestNATSCommand(t *testing.T) {
	nats := natsCommand(t)
	s := newStage(t)
	want := s.settle(3)
	out := string(s.output([]string{nats, "sub", "--stream", "LIFECYCLE", "--direct", "--start-sequence", "1", "--terminate-at-end"}))
	for _, w := range want {
		if !strings.Contains(out, w.ID) {
			t.Errorf("the command did not print event %s:\n%s", w.ID, out)
		}
	}
	last := s.last()
	for name, args := range map[string][]string{
		"publish":  {"pub", "yieldlog.forged.execution.x.settled", "{}"},
		"ingest":   {"pub", "ingest.LIFECYCLE.yieldlog.forged.execution.x.settled", "{}"},
		"purge":    {"stream", "purge", "LIFECYCLE", "--force"},
		"delete":   {"stream", "rm", "LIFECYCLE", "--force"},
		"consumer": {"consumer", "add", "LIFECYCLE", "c", "--pull", "--defaults"},
	} {
		t.Run(name, func(t *testing.T) {
			// pub does not wait for the server's refusal: what counts is the ledger.
			out, err := s.command(t.Context(), append([]string{nats, "--timeout", "2s"}, args...)).CombinedOutput()
			if err == nil && args[0] != "pub" {
				t.Errorf("it may:\n%s", out)
			}
		})
	}
	if now := s.last(); now != last {
		t.Errorf("the ledger changed: %d events, there were %d", now, last)
	}
}

// A stage is a real ledger that this process hosts, with one session in it.
type stage struct {
	t       *testing.T
	dir     string
	l       *ledger.Ledger
	session string
	env     []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), session: events.NewID()}
	s.open()
	t.Cleanup(func() {
		if err := s.l.Close(); err != nil {
			t.Error(err)
		}
	})
	sub, err := ledger.ReadSubscriber(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if !sub.Hosted {
		t.Error("the ledger is hosted, and the subscriber is told otherwise")
	}
	s.env = append(os.Environ(), "NATS_URL="+sub.URL, "NATS_USER="+sub.User, "NATS_PASSWORD="+sub.Password,
		"XDG_CONFIG_HOME="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	s.append(events.Event{Subject: s.session, Body: events.Opened{Program: "test", Cwd: "/"}})
	return s
}

func (s *stage) open() {
	s.t.Helper()
	l, err := ledger.Open(s.t.Context(), ledger.Options{Dir: s.dir, Sync: ledger.SyncRelaxed})
	if err != nil {
		s.t.Fatal(err)
	}
	s.l = l
}

// reopen ends the host and starts another. It reports whether that one has the
// same port: somebody may have taken it in between.
func (s *stage) reopen() bool {
	s.t.Helper()
	before, err := ledger.ReadSubscriber(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.l.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.open()
	after, err := ledger.ReadSubscriber(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return before.URL == after.URL
}

func (s *stage) append(e events.Event) events.Event {
	s.t.Helper()
	e.Session = s.session
	done := make(chan error, 1)
	err := s.l.Post(s.t.Context(), e, func(stored events.Event, err error) { e = stored; done <- err })
	if err == nil {
		err = <-done
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

// settle appends n executions and returns what an example prints of their ends.
func (s *stage) settle(n int) []line {
	s.t.Helper()
	var lines []line
	for i := range n {
		id := events.NewID()
		s.append(events.Event{Subject: id, Owner: events.RootOwner, Body: events.Requested{Command: "echo 'ü' \"x\"", Cwd: "/"}})
		e := s.append(events.Event{Subject: id, Owner: events.RootOwner, Body: events.Settled{
			Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeFailure, ExitCode: &i, Error: "é",
		}})
		data, err := json.Marshal(e.Body)
		if err != nil {
			s.t.Fatal(err)
		}
		l := line{Seq: e.Seq, Type: "com.yieldlog.execution.settled", ID: e.ID, Subject: id}
		if err := json.Unmarshal(data, &l.Body); err != nil {
			s.t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func (s *stage) last() uint64 {
	s.t.Helper()
	seq, err := s.l.LastSeq(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return seq
}

func (s *stage) command(ctx context.Context, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = s.env
	c.WaitDelay = 10 * time.Second
	return c
}

func (s *stage) output(args []string) []byte {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	c := s.command(ctx, args)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s%s", args, err, out, errs.Bytes())
	}
	return out
}

// once runs an example until it has nothing more to print.
func (s *stage) once(command []string, subject, cursor string) []line {
	s.t.Helper()
	var lines []line
	for text := range strings.Lines(string(s.output(append(slices.Clone(command), "--once", subject, cursor)))) {
		lines = append(lines, s.parse(text))
	}
	return lines
}

// start runs an example until the test ends. Its lines come through the channel.
func (s *stage) start(command []string, subject, cursor string) <-chan line {
	s.t.Helper()
	c := s.command(s.t.Context(), append(slices.Clone(command), subject, cursor))
	c.Stderr = s.t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	ownGroup(c)
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	lines, ended := make(chan line, 64), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			lines <- s.parse(scan.Text())
		}
	}()
	s.t.Cleanup(func() {
		endGroup(c)
		<-ended
		_ = c.Wait() // it was killed
	})
	return lines
}

func (s *stage) parse(text string) line {
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		s.t.Errorf("printed %q: %v", text, err)
	}
	return l
}

func natsCommand(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("nats")
	if err != nil {
		t.Skip("the nats command is not installed: go install github.com/nats-io/natscli/nats@latest")
	}
	return path
}

func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("YIELDLOG_TEST_PYTHON")
	if path == "" || !exists(path) {
		path = "python3"
	}
	if out, err := exec.Command(path, "-c", "import nats, zstandard").CombinedOutput(); err != nil {
		t.Skipf("python has no NATS client: pip install -r examples/python/requirements.txt (%v)\n%s", err, out)
	}
	return path
}

func nodeExample(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	if _, err := os.Stat("node/node_modules/@nats-io/jetstream"); err != nil {
		t.Skip("node has no NATS client: npm install --prefix examples/node")
	}
	return []string{"node", "node/follow.mjs"}
}

// goExample builds the Go example, which is a module of its own.
func goExample(t *testing.T) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "follow")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = "go"
	build.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("GOPROXY=off")) {
			t.Skipf("the modules of the Go example are not here: (cd examples/go && go mod download)\n%s", out)
		}
		t.Fatalf("building: %v\n%s", err, out)
	}
	return []string{binary}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
