package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// Metrics counts what the lifecycle events say, since the beginning of the
// ledger. It is a fold and a Prometheus collector, and safe for concurrent use.
type Metrics struct {
	mu       sync.Mutex
	seq      uint64
	states   map[string]string              // of live executions
	sessions map[string]map[string]struct{} // of open sessions: their live executions
	mail     map[string]struct{}            // records that were not acknowledged

	events    *prometheus.CounterVec
	settled   *prometheus.CounterVec
	refused   *prometheus.CounterVec
	ended     *prometheus.CounterVec
	output    *prometheus.CounterVec
	pruned    prometheus.Counter
	duration  *prometheus.HistogramVec
	queueTime prometheus.Histogram
	live      *prometheus.GaugeVec
	open      prometheus.Gauge
	unread    prometheus.Gauge
	lastEvent prometheus.Gauge
}

// NewMetrics returns metrics that have seen nothing.
func NewMetrics() *Metrics {
	m := &Metrics{states: map[string]string{}, sessions: map[string]map[string]struct{}{}, mail: map[string]struct{}{}}
	m.events = counter("events_total", "Lifecycle events.", "class", "kind")
	m.settled = counter("executions_settled_total", "Executions that ended.", "status", "termination", "outcome")
	m.refused = counter("executions_refused_total", "Executions that were not let start.", "reason")
	m.ended = counter("sessions_ended_total", "Sessions that ended.", "state")
	m.output = counter("output_bytes_total", "Recorded output of executions that ended.", "stream")
	m.pruned = prometheus.NewCounter(prometheus.CounterOpts(named("output_pruned_bytes_total", "Output that was deleted to make room.")))
	m.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "yieldlog_execution_seconds", Help: "How long executions ran.",
		Buckets: []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 14400},
	}, []string{"status"})
	m.queueTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "yieldlog_queue_seconds", Help: "How long executions waited for their lane.",
		Buckets: []float64{.01, .1, .5, 1, 5, 15, 60, 300, 900},
	})
	m.live = prometheus.NewGaugeVec(prometheus.GaugeOpts(named("executions", "Executions that have not ended.")), []string{"state"})
	m.open = prometheus.NewGauge(prometheus.GaugeOpts(named("sessions_open", "Sessions that have not ended.")))
	m.unread = prometheus.NewGauge(prometheus.GaugeOpts(named("mailbox_unread", "Mailbox records that did not reach their owner yet.")))
	m.lastEvent = prometheus.NewGauge(prometheus.GaugeOpts(named("last_event_timestamp_seconds", "When the newest event was made.")))
	for _, s := range []string{projections.StateQueued, projections.StateRunning, projections.StateStopping} {
		m.live.WithLabelValues(s)
	}
	return m
}

func named(name, help string) prometheus.Opts {
	return prometheus.Opts{Name: "yieldlog_" + name, Help: help}
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts(named(name, help)), labels)
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.events, m.settled, m.refused, m.ended, m.output, m.pruned, m.duration, m.queueTime, m.live, m.open, m.unread, m.lastEvent}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(c chan<- *prometheus.Desc) {
	for _, v := range m.collectors() {
		v.Describe(c)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(c chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.collectors() {
		v.Collect(c)
	}
}

// OpenSessions lists the sessions that have not ended.
func (m *Metrics) OpenSessions() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, 0, len(m.sessions))
	for id := range m.sessions {
		ids = append(ids, id)
	}
	return ids
}

// Apply counts an event. It is idempotent by sequence; output is not counted
// before its settlement sums it up.
func (m *Metrics) Apply(e events.Event) {
	if e.Class() == events.ClassOutput {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Seq <= m.seq {
		return
	}
	m.seq = e.Seq
	m.events.WithLabelValues(string(e.Class()), string(e.Kind())).Inc()
	m.lastEvent.Set(float64(e.Time.UnixMicro()) / 1e6)
	switch b := e.Body.(type) {
	case events.Opened:
		m.sessions[e.Session] = map[string]struct{}{}
	case events.Closed:
		m.endSession(e.Session, "closed")
	case events.Lost:
		m.endSession(e.Session, "lost")
	case events.Posted:
		m.mail[e.Subject] = struct{}{}
	case events.Acknowledged:
		delete(m.mail, e.Subject)
	default:
		m.execution(e, b)
	}
	m.open.Set(float64(len(m.sessions)))
	m.unread.Set(float64(len(m.mail)))
}

func (m *Metrics) execution(e events.Event, body events.Body) {
	switch b := body.(type) {
	case events.Queued:
		m.enter(e, projections.StateQueued)
	case events.Admitted:
		m.queueTime.Observe(millis(b.WaitedMS).Seconds())
	case events.Spawned:
		m.enter(e, projections.StateRunning)
	case events.Stopping:
		m.enter(e, projections.StateStopping)
	case events.Refused:
		m.leave(e.Session, e.Subject)
		m.refused.WithLabelValues(b.Reason).Inc()
	case events.Settled:
		m.leave(e.Session, e.Subject)
		m.settled.WithLabelValues(string(b.Status), string(b.Termination), string(b.Outcome)).Inc()
		m.duration.WithLabelValues(string(b.Status)).Observe(millis(b.DurationMS).Seconds())
		for stream, sum := range map[events.Kind]events.StreamSum{events.KindStdout: b.Stdout, events.KindStderr: b.Stderr, events.KindTTY: b.TTY} {
			m.output.WithLabelValues(string(stream)).Add(float64(max(sum.Bytes, 0)))
		}
	case events.Pruned:
		m.pruned.Add(float64(max(b.To-b.From, 0)))
	}
}

// enter moves an execution to a state.
func (m *Metrics) enter(e events.Event, state string) {
	if was, ok := m.states[e.Subject]; ok {
		m.live.WithLabelValues(was).Dec()
	}
	m.states[e.Subject] = state
	m.live.WithLabelValues(state).Inc()
	if of := m.sessions[e.Session]; of != nil {
		of[e.Subject] = struct{}{}
	}
}

func (m *Metrics) leave(session, execution string) {
	if was, ok := m.states[execution]; ok {
		m.live.WithLabelValues(was).Dec()
		delete(m.states, execution)
	}
	delete(m.sessions[session], execution)
}

// endSession ends a session, and what it left without an end.
func (m *Metrics) endSession(session, state string) {
	for id := range m.sessions[session] {
		m.leave(session, id)
	}
	delete(m.sessions, session)
	m.ended.WithLabelValues(state).Inc()
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
