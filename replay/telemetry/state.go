package telemetry

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/yieldlog/yieldlog/events/ledger"
)

// Sources is where the state at the moment of a scrape comes from.
type Sources struct {
	Metrics *Metrics
	// Info describes the ledger.
	Info func(context.Context) (ledger.Info, error)
	// Stats asks the process of a session how its appends go.
	Stats func(ctx context.Context, session string) (ledger.Stats, error)
}

// scrapeMost bounds how long a scrape waits for the ledger and for processes.
const scrapeMost = 2 * time.Second

// Handler answers Prometheus. Processes that do not answer in time are left out.
func Handler(s Sources) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(s.Metrics, &state{Sources: s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// state collects what is not in the events.
type state struct{ Sources }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("yieldlog_"+name, help, labels, nil)
}

var (
	ledgerBytes    = desc("ledger_bytes", "Size of a stream on disk.", "stream")
	ledgerMax      = desc("ledger_max_bytes", "Size at which the oldest output is deleted.")
	ledgerFree     = desc("disk_free_bytes", "Free space where the ledger is.")
	ledgerLast     = desc("ledger_last_sequence", "Sequence of the newest lifecycle event.")
	ledgerUp       = desc("ledger_up", "1 when the ledger answered.")
	outboxEvents   = desc("outbox_events", "Events that wait for their acknowledgement.", "session")
	outboxBytes    = desc("outbox_bytes", "Data of the events that wait for their acknowledgement.", "session")
	appendSeconds  = desc("append_seconds", "Time from sending an event to its acknowledgement.", "session")
	appendsRefused = desc("appends_refused_total", "Events that were not taken.", "session")
	stallSeconds   = desc("append_stalled_seconds", "How long appends have not gone through.", "session")
	stalls         = desc("append_stalls_total", "Times that appends did not go through.", "session")
)

// Describe implements [prometheus.Collector].
func (*state) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ledgerBytes, ledgerMax, ledgerFree, ledgerLast, ledgerUp,
		outboxEvents, outboxBytes, appendSeconds, appendsRefused, stallSeconds, stalls,
	} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *state) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeMost)
	defer cancel()
	var asked sync.WaitGroup
	for _, id := range s.Metrics.OpenSessions() {
		asked.Go(func() {
			if stats, err := s.Stats(ctx, id); err == nil {
				collectStats(c, id, stats)
			}
		})
	}
	s.collectInfo(ctx, c)
	asked.Wait()
}

func (s *state) collectInfo(ctx context.Context, c chan<- prometheus.Metric) {
	info, err := s.Info(ctx)
	if err != nil {
		c <- gauge(ledgerUp, 0)
		return
	}
	c <- gauge(ledgerUp, 1)
	c <- gauge(ledgerMax, float64(info.MaxBytes))
	c <- gauge(ledgerFree, float64(info.Free))
	c <- gauge(ledgerLast, float64(info.LastSeq))
	for _, stream := range info.Streams {
		c <- gauge(ledgerBytes, float64(stream.Bytes), stream.Name)
	}
}

func collectStats(c chan<- prometheus.Metric, session string, s ledger.Stats) {
	c <- gauge(outboxEvents, float64(s.Queued), session)
	c <- gauge(outboxBytes, float64(s.QueuedBytes), session)
	c <- gauge(stallSeconds, s.StalledSeconds, session)
	c <- prometheus.MustNewConstMetric(stalls, prometheus.CounterValue, float64(s.Stalls), session)
	c <- prometheus.MustNewConstMetric(appendsRefused, prometheus.CounterValue, float64(s.Refused), session)
	buckets, sum := map[float64]uint64{}, uint64(0)
	for i, bound := range ledger.LatencyBounds[:min(len(ledger.LatencyBounds), len(s.Latency))] {
		sum += s.Latency[i]
		buckets[bound] = sum
	}
	c <- prometheus.MustNewConstHistogram(appendSeconds, s.Appended, s.LatencySum, buckets, session)
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}
