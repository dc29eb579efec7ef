package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// OTLP sends spans to an OpenTelemetry receiver over HTTP, as JSON. (The
// official exporter speaks protobuf, and its packages cost every start of
// yieldlog 5 ms and 10 MB.)
type OTLP struct {
	endpoint string
	headers  map[string]string
	client   *http.Client
	closed   chan struct{}
	close    func()
}

// OTLPFromEnv is the exporter that the OTEL_ variables ask for, or nil when
// they ask for none. It connects to nobody yet.
func OTLPFromEnv(getenv func(string) string) (*OTLP, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	endpoint := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if endpoint == "" && getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		endpoint = strings.TrimSuffix(getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "/") + "/v1/traces"
	}
	if endpoint == "" {
		return nil, nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %q is no http address", endpoint)
	}
	closed := make(chan struct{})
	o := &OTLP{
		endpoint: endpoint, headers: map[string]string{}, client: &http.Client{Timeout: 10 * time.Second},
		closed: closed, close: sync.OnceFunc(func() { close(closed) }),
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(getenv(name), ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				continue
			}
			if v, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
				value = v
			}
			o.headers[strings.TrimSpace(key)] = value
		}
	}
	return o, nil
}

// Shutdown implements [sdktrace.SpanExporter]. It ends what is being sent.
func (o *OTLP) Shutdown(context.Context) error {
	o.close()
	o.client.CloseIdleConnections()
	return nil
}

// ExportSpans implements [sdktrace.SpanExporter]. It tries a few times when the
// receiver is busy or not there.
func (o *OTLP) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	body, err := json.Marshal(toOTLP(spans))
	if err != nil {
		return fmt.Errorf("encoding spans: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ExportSpans
		select {
		case <-o.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	for try, pause := 0, 250*time.Millisecond; ; try, pause = try+1, 2*pause {
		again, err := o.post(ctx, body)
		if err == nil || !again || try == 4 {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

func (o *OTLP) post(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.endpoint, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("sending spans: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	for k, v := range o.headers {
		req.Header.Set(k, v)
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return true, fmt.Errorf("sending spans: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	if resp.StatusCode/100 != 2 {
		return again, fmt.Errorf("sending spans to %s: %s", o.endpoint, resp.Status)
	}
	return false, nil
}

// The message of OTLP, as its JSON mapping has it.
type (
	otlpTraces struct {
		ResourceSpans []otlpResource `json:"resourceSpans"`
	}
	otlpResource struct {
		Resource   otlpAttributes `json:"resource"`
		ScopeSpans []otlpScope    `json:"scopeSpans"`
	}
	otlpAttributes struct {
		Attributes []otlpAttribute `json:"attributes"`
	}
	otlpScope struct {
		Scope struct {
			Name string `json:"name"`
		} `json:"scope"`
		Spans []otlpSpan `json:"spans"`
	}
	otlpSpan struct {
		TraceID      string          `json:"traceId"`
		SpanID       string          `json:"spanId"`
		TraceState   string          `json:"traceState,omitempty"`
		ParentSpanID string          `json:"parentSpanId,omitempty"`
		Name         string          `json:"name"`
		Kind         int             `json:"kind"`
		Start        string          `json:"startTimeUnixNano"`
		End          string          `json:"endTimeUnixNano"`
		Attributes   []otlpAttribute `json:"attributes"`
		Events       []otlpEvent     `json:"events,omitempty"`
		Status       otlpStatus      `json:"status"`
	}
	otlpEvent struct {
		Time       string          `json:"timeUnixNano"`
		Name       string          `json:"name"`
		Attributes []otlpAttribute `json:"attributes,omitempty"`
	}
	otlpStatus struct {
		Code    int    `json:"code,omitempty"`
		Message string `json:"message,omitempty"`
	}
	otlpAttribute struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

// toOTLP takes spans of one provider: they share its resource and scope.
func toOTLP(spans []sdktrace.ReadOnlySpan) otlpTraces {
	var r otlpResource
	var scope otlpScope
	for _, s := range spans {
		r.Resource.Attributes = attributes(s.Resource().Attributes())
		scope.Scope.Name = s.InstrumentationScope().Name
		scope.Spans = append(scope.Spans, toOTLPSpan(s))
	}
	r.ScopeSpans = []otlpScope{scope}
	return otlpTraces{ResourceSpans: []otlpResource{r}}
}

func toOTLPSpan(s sdktrace.ReadOnlySpan) otlpSpan {
	o := otlpSpan{
		TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(),
		TraceState: s.SpanContext().TraceState().String(),
		Name:       s.Name(), Kind: int(s.SpanKind()), // the numbers are the same
		Start: nanos(s.StartTime()), End: nanos(s.EndTime()),
		Attributes: attributes(s.Attributes()),
		Status:     otlpStatus{Message: s.Status().Description},
	}
	if s.Parent().SpanID().IsValid() {
		o.ParentSpanID = s.Parent().SpanID().String()
	}
	switch s.Status().Code {
	case codes.Ok:
		o.Status.Code = 1
	case codes.Error:
		o.Status.Code = 2
	}
	for _, e := range s.Events() {
		o.Events = append(o.Events, otlpEvent{Time: nanos(e.Time), Name: e.Name, Attributes: attributes(e.Attributes)})
	}
	return o
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func attributes(kvs []attribute.KeyValue) []otlpAttribute {
	out := make([]otlpAttribute, 0, len(kvs))
	for _, kv := range kvs {
		out = append(out, otlpAttribute{Key: string(kv.Key), Value: otlpValue(kv.Value)})
	}
	return out
}

func otlpValue(v attribute.Value) map[string]any {
	switch v.Type() {
	case attribute.BOOL:
		return map[string]any{"boolValue": v.AsBool()}
	case attribute.INT64:
		return map[string]any{"intValue": strconv.FormatInt(v.AsInt64(), 10)}
	case attribute.FLOAT64:
		return map[string]any{"doubleValue": v.AsFloat64()}
	case attribute.STRINGSLICE:
		values := []map[string]any{}
		for _, s := range v.AsStringSlice() {
			values = append(values, map[string]any{"stringValue": s})
		}
		return map[string]any{"arrayValue": map[string]any{"values": values}}
	default:
		return map[string]any{"stringValue": v.String()}
	}
}
