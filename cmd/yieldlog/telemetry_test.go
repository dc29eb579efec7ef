//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeMetrics scrapes a server while commands run in other processes.
func TestServeMetrics(t *testing.T) {
	dir := t.TempDir()
	serve := exec.Command(binary, "--dir", dir, "serve", "--metrics", "127.0.0.1:0")
	serve.Env = append(os.Environ(), "YIELDLOG_SYNC=relaxed")
	stderr, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = serve.Process.Signal(syscall.SIGTERM)
		if err := serve.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}()
	url := ""
	for lines := bufio.NewScanner(stderr); url == "" && lines.Scan(); {
		if _, at, ok := strings.Cut(lines.Text(), "metrics at "); ok {
			url = at
		}
	}
	runYieldlog(t, dir, nil, "exec", "echo hello; exit 3")
	sleeper := exec.Command(binary, "--dir", dir, "exec", "exec sleep 600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = sleeper.Process.Signal(syscall.SIGTERM)
		_ = sleeper.Wait() // it ends with the status of its command
	}()
	awaitMetrics(t, url,
		`yieldlog_executions\{state="running"\} 1`,
		`yieldlog_executions_settled_total\{outcome="failure",status="completed",termination="exited"\} 1`,
		`yieldlog_output_bytes_total\{stream="stdout"\} 6`,
		`yieldlog_append_seconds_count\{session="[0-9A-Z]{26}"\} [1-9]`,
		`yieldlog_ledger_up 1`,
	)
}

// awaitMetrics scrapes until everything is there.
func awaitMetrics(t *testing.T, url string, want ...string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		text, missing := get(t, url), ""
		for _, w := range want {
			if !regexp.MustCompile(w).MatchString(text) {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s in:\n%s", missing, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// runYieldlog runs a command whose status does not matter.
func runYieldlog(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, binary, append([]string{"--dir", dir}, args...)...)
	c.Env = append(append(os.Environ(), "YIELDLOG_SYNC=relaxed"), env...)
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestTraceOfACommand gives a command the trace context of its caller.
func TestTraceOfACommand(t *testing.T) {
	bodies := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- string(data)
	}))
	defer receiver.Close()
	for range 3 { // a command does not wait for ever until its spans are taken
		out := runYieldlog(t, t.TempDir(), []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.URL,
			"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}, "exec", "echo hello")
		if !strings.HasPrefix(out, "hello\n") {
			t.Errorf("printed %q", out)
		}
		select {
		case body := <-bodies:
			for _, want := range []string{`"traceId":"0af7651916cd43dd8448eb211c80319c"`, `"parentSpanId":"b7ad6b7169203331"`, `"name":"spawned"`, `{"stringValue":"yieldlog"}`} {
				if !strings.Contains(body, want) {
					t.Errorf("no %s in %s", want, body)
				}
			}
			return
		default:
		}
	}
	t.Error("no span came before the command ended")
}
