package telemetry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// maxPending bounds the executions that a tracer keeps until they end.
const maxPending = 10_000

// Tracer makes a span of each execution that ends: a child of the caller's
// span where the request carries one. It is a fold, and safe for concurrent use.
type Tracer struct {
	provider *sdktrace.TracerProvider
	exporter sdktrace.SpanExporter
	tracer   trace.Tracer

	mu      sync.Mutex
	seq     uint64
	pending map[string]*pending
}

// A pending execution is one that has not ended.
type pending struct {
	requested events.Event
	facts     []events.Event
}

// NewTracer makes a tracer. It sends spans from a goroutine of its own, in
// batches, and drops some when the receiver does not keep up. What fails is
// logged.
func NewTracer(exporter sdktrace.SpanExporter, service, version string, log *slog.Logger) *Tracer {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry", "error", err) }))
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service), attribute.String("service.version", version))),
	)
	return &Tracer{provider: p, exporter: exporter, tracer: p.Tracer("github.com/yieldlog/yieldlog"), pending: map[string]*pending{}}
}

// Close sends what is left, until ctx ends, and ends the goroutines.
func (t *Tracer) Close(ctx context.Context) error {
	if err := errors.Join(t.provider.Shutdown(ctx), t.exporter.Shutdown(ctx)); err != nil {
		return fmt.Errorf("sending the last spans: %w", err)
	}
	return nil
}

// Apply takes an event. It does not wait for the receiver.
func (t *Tracer) Apply(e events.Event) {
	if e.Class() != events.ClassExecution {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Seq <= t.seq {
		return
	}
	t.seq = e.Seq
	switch b := e.Body.(type) {
	case events.Requested:
		if len(t.pending) < maxPending {
			t.pending[e.Subject] = &pending{requested: e}
		}
	case events.Settled:
		if p := t.pending[e.Subject]; p != nil {
			delete(t.pending, e.Subject)
			t.span(p, e, settledSpan(b))
		}
	case events.Refused:
		p := t.pending[e.Subject]
		if p == nil && b.Request != nil {
			p = &pending{requested: events.Event{Time: e.Time, Session: e.Session, Owner: e.Owner, Subject: e.Subject, Body: *b.Request}}
		}
		if p != nil {
			delete(t.pending, e.Subject)
			t.span(p, e, refusedSpan(b))
		}
	default:
		if p := t.pending[e.Subject]; p != nil && len(p.facts) < 100 {
			p.facts = append(p.facts, e)
		}
	}
}

// An ending is how a span ends.
type ending struct {
	attributes []attribute.KeyValue
	code       codes.Code
	text       string
}

func (t *Tracer) span(p *pending, end events.Event, how ending) {
	r, ok := p.requested.Body.(events.Requested)
	if !ok {
		return
	}
	ctx := context.WithValue(context.Background(), executionKey{}, p.requested.Subject)
	if r.Trace != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": r.Trace})
	}
	_, span := t.tracer.Start(ctx, "execution "+projections.Label(r),
		trace.WithTimestamp(p.requested.Time), trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(
			attribute.String("yieldlog.session", p.requested.Session),
			attribute.String("yieldlog.execution", p.requested.Subject),
			attribute.String("yieldlog.owner", p.requested.Owner),
			attribute.String("yieldlog.cwd", r.Cwd),
			attribute.StringSlice("yieldlog.side_effects", r.SideEffects),
			attribute.String("process.command_line", r.Command)))
	for _, f := range p.facts {
		span.AddEvent(string(f.Kind()), trace.WithTimestamp(f.Time), trace.WithAttributes(factAttributes(f)...))
	}
	span.SetAttributes(how.attributes...)
	span.SetStatus(how.code, how.text)
	at := end.Time
	if at.Before(p.requested.Time) { // the clock was set back
		at = p.requested.Time
	}
	span.End(trace.WithTimestamp(at))
}

func settledSpan(b events.Settled) ending {
	e := ending{attributes: []attribute.KeyValue{
		attribute.String("yieldlog.status", string(b.Status)),
		attribute.String("yieldlog.termination", string(b.Termination)),
		attribute.String("yieldlog.outcome", string(b.Outcome)),
		attribute.Int64("yieldlog.output_bytes", b.Offset),
	}, code: codes.Ok}
	if b.ExitCode != nil {
		e.attributes = append(e.attributes, attribute.Int("process.exit.code", *b.ExitCode))
	}
	if b.Outcome == events.OutcomeFailure {
		e.code, e.text = codes.Error, b.Error
		if e.text == "" {
			e.text = string(b.Status)
		}
	}
	return e
}

func refusedSpan(b events.Refused) ending {
	return ending{attributes: []attribute.KeyValue{attribute.String("yieldlog.refused", b.Reason)}, code: codes.Error, text: b.Message}
}

func factAttributes(e events.Event) []attribute.KeyValue {
	switch b := e.Body.(type) {
	case events.Spawned:
		return []attribute.KeyValue{attribute.Int("process.pid", b.PID)}
	case events.Queued:
		return []attribute.KeyValue{attribute.Int("ahead", b.Ahead)}
	case events.Yielded:
		return []attribute.KeyValue{attribute.Int64("offset", b.Offset)}
	case events.Input:
		return []attribute.KeyValue{attribute.Int("bytes", b.Bytes)}
	case events.Stopping:
		return []attribute.KeyValue{attribute.String("cause", string(b.Cause)), attribute.String("signal", b.Signal)}
	}
	return nil
}

// ids makes the ids of spans of the ids of executions: a span that is sent
// again, from the ledger, is the same span.
type ids struct{}

type executionKey struct{}

// NewIDs implements [sdktrace.IDGenerator], for a span without a parent.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, err := executionID(ctx)
	if err != nil {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return trace.TraceID(id), g.NewSpanID(ctx, trace.TraceID(id))
}

// NewSpanID implements [sdktrace.IDGenerator]. The end of a ULID is random.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	var s trace.SpanID
	if id, err := executionID(ctx); err == nil {
		copy(s[:], id[8:])
	}
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}

func executionID(ctx context.Context) (ulid.ULID, error) {
	id, _ := ctx.Value(executionKey{}).(string)
	return ulid.ParseStrict(id)
}
