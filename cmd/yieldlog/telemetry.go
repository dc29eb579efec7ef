package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/producers"
	"github.com/yieldlog/yieldlog/replay"
	"github.com/yieldlog/yieldlog/replay/telemetry"
)

// flushGrace is how long a process waits for its last spans to be taken.
const flushGrace = 5 * time.Second

// trace makes spans of what the ledger's process runs, when the OTEL_ variables
// ask for that. flush sends what is left.
func (a *app) trace(ctx context.Context, l *ledger.Ledger) (flush func()) {
	exporter, err := telemetry.OTLPFromEnv(os.Getenv)
	if err != nil {
		a.logger().Warn("no traces are sent", "error", err)
	}
	if exporter == nil {
		return func() {}
	}
	service := os.Getenv("OTEL_SERVICE_NAME")
	if service == "" {
		service = "yieldlog"
	}
	tracer := telemetry.NewTracer(exporter, service, buildVersion(), a.logger())
	l.Tap(tracer.Apply)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushGrace)
		defer cancel()
		if err := tracer.Close(ctx); err != nil {
			a.logger().Warn("traces are missing", "error", err)
		}
	}
}

// serveMetrics answers Prometheus on an address until ctx ends.
func (a *app) serveMetrics(ctx context.Context, l *ledger.Ledger, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return usageError{fmt.Errorf("listening on %s: %w", address, err)}
	}
	m := telemetry.NewMetrics()
	engine := replay.NewEngine(m)
	last, err := l.LastSeq(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	following, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(engine.Live(following, l, events.Filter{})) }() // ends with serveMetrics
	if err := engine.WaitFor(following, last); err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", telemetry.Handler(telemetry.Sources{
		Metrics: m, Info: l.Info,
		Stats: func(ctx context.Context, session string) (ledger.Stats, error) {
			return producers.AskStats(ctx, l, session)
		},
	}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Close
	fmt.Fprintf(a.err, "yieldlog: metrics at http://%s/metrics\n", listener.Addr())
	select {
	case <-following.Done():
		err = context.Cause(following)
	case err = <-served:
	}
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, server.Close())
}
