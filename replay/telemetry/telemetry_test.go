package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A story is events of one session with rising sequences.
type story struct {
	session string
	seq     uint64
	at      time.Time
	folds   []interface{ Apply(events.Event) }
}

func (s *story) tell(id string, b events.Body) {
	s.seq++
	s.at = s.at.Add(time.Second)
	e := events.Event{Seq: s.seq, ID: events.NewID(), Time: s.at, Session: s.session, Owner: "/root/reviewer", Subject: id, Body: b}
	for _, f := range s.folds {
		f.Apply(e)
		f.Apply(e) // a second time changes nothing
	}
}

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	s := &story{session: "S", at: time.Unix(1000, 0), folds: []interface{ Apply(events.Event) }{m}}
	s.tell("S", events.Opened{})
	s.tell("A", events.Requested{})
	s.tell("A", events.Queued{})
	s.tell("B", events.Requested{})
	s.tell("B", events.Spawned{})
	s.tell("B", events.Stopping{})
	s.tell("C", events.Requested{})
	s.tell("C", events.Spawned{})
	s.tell("C", events.Settled{Status: events.StatusFailed, Termination: events.TermOutputLimit, Outcome: events.OutcomeFailure, DurationMS: 1500, Stdout: events.StreamSum{Bytes: 70}})
	s.tell("D", events.Refused{Reason: "cwd", Request: &events.Requested{}})
	s.tell("M", events.Posted{})
	s.tell("N", events.Posted{})
	s.tell("N", events.Acknowledged{})
	const want = `
# HELP yieldlog_executions Executions that have not ended.
# TYPE yieldlog_executions gauge
yieldlog_executions{state="queued"} 1
yieldlog_executions{state="running"} 0
yieldlog_executions{state="stopping"} 1
# HELP yieldlog_executions_refused_total Executions that were not let start.
# TYPE yieldlog_executions_refused_total counter
yieldlog_executions_refused_total{reason="cwd"} 1
# HELP yieldlog_executions_settled_total Executions that ended.
# TYPE yieldlog_executions_settled_total counter
yieldlog_executions_settled_total{outcome="failure",status="failed",termination="output-limit"} 1
# HELP yieldlog_mailbox_unread Mailbox records that did not reach their owner yet.
# TYPE yieldlog_mailbox_unread gauge
yieldlog_mailbox_unread 1
# HELP yieldlog_output_bytes_total Recorded output of executions that ended.
# TYPE yieldlog_output_bytes_total counter
yieldlog_output_bytes_total{stream="stderr"} 0
yieldlog_output_bytes_total{stream="stdout"} 70
yieldlog_output_bytes_total{stream="tty"} 0
# HELP yieldlog_sessions_open Sessions that have not ended.
# TYPE yieldlog_sessions_open gauge
yieldlog_sessions_open 1
`
	err := testutil.CollectAndCompare(m, strings.NewReader(want), "yieldlog_executions", "yieldlog_executions_refused_total",
		"yieldlog_executions_settled_total", "yieldlog_mailbox_unread", "yieldlog_output_bytes_total", "yieldlog_sessions_open")
	if err != nil {
		t.Error(err)
	}
	s.tell("S", events.Lost{})
	if len(m.OpenSessions()) != 0 || len(m.states) != 0 {
		t.Errorf("after the session: %v, %v", m.OpenSessions(), m.states)
	}
}

func TestHandler(t *testing.T) {
	m := NewMetrics()
	s := &story{session: "S", folds: []interface{ Apply(events.Event) }{m}}
	s.tell("S", events.Opened{})
	h := Handler(Sources{
		Metrics: m,
		Info: func(context.Context) (ledger.Info, error) {
			return ledger.Info{LastSeq: 7, Streams: []ledger.StreamInfo{{Name: "LIFECYCLE", Bytes: 99}}}, nil
		},
		Stats: func(_ context.Context, session string) (ledger.Stats, error) {
			latency := make([]uint64, len(ledger.LatencyBounds)+1)
			latency[1], latency[len(latency)-1] = 3, 1
			return ledger.Stats{Queued: 2, Appended: 4, LatencySum: 20, Latency: latency, Stalls: 1}, nil
		},
	})
	text := scrape(t, h)
	for _, want := range []string{
		`yieldlog_ledger_up 1`, `yieldlog_ledger_last_sequence 7`, `yieldlog_ledger_bytes{stream="LIFECYCLE"} 99`,
		`yieldlog_outbox_events{session="S"} 2`, `yieldlog_append_seconds_bucket{session="S",le="0.001"} 3`,
		`yieldlog_append_seconds_bucket{session="S",le="+Inf"} 4`, `yieldlog_append_stalls_total{session="S"} 1`,
		`yieldlog_events_total{class="session",kind="opened"} 1`, "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	down := Handler(Sources{
		Metrics: NewMetrics(),
		Info:    func(context.Context) (ledger.Info, error) { return ledger.Info{}, errors.New("down") },
	})
	if text := scrape(t, down); !strings.Contains(text, "yieldlog_ledger_up 0") {
		t.Errorf("a ledger that is down is up:\n%s", text)
	}
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// A receiver takes spans, and fails the first requests if it is told to.
type receiver struct {
	*httptest.Server
	fail atomic.Int32

	mu     sync.Mutex
	spans  []otlpSpan
	header http.Header
	path   string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if r.fail.Add(-1) >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var traces otlpTraces
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = json.Unmarshal(body, &traces)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.header, r.path = req.Header, req.URL.Path
	for _, rs := range traces.ResourceSpans {
		for _, s := range rs.ScopeSpans {
			r.spans = append(r.spans, s.Spans...)
		}
	}
	_, _ = w.Write([]byte("{}"))
}

func (r *receiver) exporter(t *testing.T) *OTLP {
	t.Helper()
	o, err := OTLPFromEnv(func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL + "/", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestSpanOfAnExecution(t *testing.T) {
	r := newReceiver(t)
	r.fail.Store(2)
	tracer := NewTracer(r.exporter(t), "yieldlog", "1.2.3", slog.New(slog.DiscardHandler))
	s := &story{session: "S", at: time.Unix(1000, 0), folds: []interface{ Apply(events.Event) }{tracer}}
	child, alone, refused := "01JE0000000000000000000002", "01JE0000000000000000000003", "01JE0000000000000000000004"
	code := 3
	s.tell(child, events.Requested{Command: "make", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	s.tell(alone, events.Requested{Command: "true"})
	s.tell(child, events.Spawned{PID: 9})
	s.tell(child, events.Yielded{Offset: 4})
	s.tell(child, events.Settled{Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeFailure, ExitCode: &code})
	s.tell(alone, events.Settled{Status: events.StatusCompleted, Outcome: events.OutcomeSuccess})
	s.tell(refused, events.Refused{Reason: "cwd", Message: "not there", Request: &events.Requested{Command: "x"}})
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spans) != 3 || r.path != "/v1/traces" || r.header.Get("x-key") != "a b" || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("received %d spans at %s with %v", len(r.spans), r.path, r.header)
	}
	got := r.spans[0]
	if got.TraceID != "0af7651916cd43dd8448eb211c80319c" || got.ParentSpanID != "b7ad6b7169203331" {
		t.Errorf("trace %s, parent %s", got.TraceID, got.ParentSpanID)
	}
	if got.Start != "1001000000000" || got.End != "1005000000000" || got.Name != `execution "make"` || got.Status.Code != 2 {
		t.Errorf("%+v", got)
	}
	var facts []string
	for _, e := range got.Events {
		facts = append(facts, e.Name)
	}
	if diff := cmp.Diff([]string{"spawned", "yielded"}, facts); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	values := map[string]any{}
	for _, a := range got.Attributes {
		for _, v := range a.Value {
			values[a.Key] = v
		}
	}
	if values["yieldlog.execution"] != child || values["process.exit.code"] != "3" || values["yieldlog.owner"] != "/root/reviewer" {
		t.Errorf("attributes %v", values)
	}
	if r.spans[1].ParentSpanID != "" || r.spans[1].TraceID != "01938000000000000000000000000003" || r.spans[1].Status.Code != 1 {
		t.Errorf("alone: %+v", r.spans[1])
	}
	if r.spans[2].Status.Message != "not there" {
		t.Errorf("refused: %+v", r.spans[2])
	}
}

// TestAReceiverThatHangsHoldsNothingUp closes a tracer whose receiver never answers.
func TestAReceiverThatHangsHoldsNothingUp(t *testing.T) {
	done := make(chan struct{})
	hang := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-done }))
	defer hang.Close()
	defer close(done)
	o, err := OTLPFromEnv(func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": hang.URL}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	tracer := NewTracer(o, "yieldlog", "", slog.New(slog.DiscardHandler))
	s := &story{session: "S", folds: []interface{ Apply(events.Event) }{tracer}}
	for range 5000 {
		id := events.NewID()
		s.tell(id, events.Requested{})
		s.tell(id, events.Settled{})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := tracer.Close(ctx); err == nil {
		t.Error("it says that all was sent")
	}
}

func TestOTLPFromEnv(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
		bad  bool
	}{
		"nothing":  {},
		"disabled": {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}},
		"none":     {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}},
		"general":  {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, want: "http://x:4318/v1/traces"},
		"traces":   {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://y/z"}, want: "http://y/z"},
		"no url":   {env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "localhost:4317"}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := OTLPFromEnv(func(n string) string { return tc.env[n] })
			if (err != nil) != tc.bad {
				t.Fatal(err)
			}
			if got := o; got != nil && got.endpoint != tc.want || got == nil && tc.want != "" {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}
