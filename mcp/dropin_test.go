package mcp

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Clients of YieldShell send such numbers: less than nothing is the least, and
// of a size the default.
func TestY22_Y42_Y51_Y70_Y76_NegativeNumbers(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	got := c.exec("echo hello", "timeout_ms", -1, "max_output_bytes", 0)
	if got.Status != "completed" || *got.Stdout != "hello\n" || got.Truncated {
		t.Errorf("exec: %+v", got)
	}
	for since, most := range map[int64]int{-7: 0, math.MinInt64: -1} {
		if r := c.call("read", map[string]any{"process_id": got.ProcessID, "since_seq": since, "max_output_bytes": most}); *r.Stdout != "hello\n" {
			t.Errorf("read of at most %d from %d: %+v", most, since, r)
		}
	}
	if r := c.call("ps", map[string]any{"limit": -1}); r.Error != "" || len(r.Processes) != 0 {
		t.Errorf("ps: %+v", r)
	}
	id := c.exec("trap '' TERM; sleep 600; sleep 600", "yield_ms", 0).ProcessID
	if r := c.call("wait", map[string]any{"process_id": id, "timeout_ms": -1}); r.Status != "running" {
		t.Errorf("wait: %+v", r)
	}
	if r := c.call("stop", map[string]any{"process_id": id, "force_after_ms": -1}); !r.Stopped {
		t.Errorf("stop: %+v", r)
	}
	if r := c.call("cleanup", map[string]any{"completed_older_than_ms": -1}); r.Removed != 1 {
		t.Errorf("cleanup: %+v", r)
	}
}

// A client need not wait for the answer to one write before it sends the next.
func TestY46_WritesAreInTheOrderOfCalls(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	for range 10 {
		id := c.exec("wc -c", "yield_ms", 0).ProcessID
		write := func(n int, input string, last bool) string {
			return toolCall(n, "write", string(encode(map[string]any{"process_id": id, "input": input, "close_stdin": last})))
		}
		c.send(write(1001, strings.Repeat("x", 200_000), false), write(1002, "y", true))
		c.next()
		c.next()
		if r := c.call("wait", map[string]any{"process_id": id}); strings.TrimSpace(*r.Stdout) != "200001" {
			t.Fatalf("%s bytes arrived", *r.Stdout)
		}
	}
}

func TestY65_StopNamesItsError(t *testing.T) {
	c := newCaller(t, liveServer(t, nil))
	id := c.exec("sleep 600", "yield_ms", 0).ProcessID
	for _, want := range []string{`null`, `"process has already ended"`} {
		var got map[string]json.RawMessage
		if err := json.Unmarshal(c.raw("stop", map[string]any{"process_id": id}).StructuredContent, &got); err != nil {
			t.Fatal(err)
		}
		if string(got["error"]) != want {
			t.Errorf("the error is %s, not %s", got["error"], want)
		}
	}
}

// A client that closes its end, and reads nothing of what it has asked for, is gone.
func TestY116_EndOfInputBehindUnreadAnswers(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the end is seen only when all is read")
	}
	s, _, _ := gated(t)
	in, far, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	outRead, outWrite := io.Pipe() // nobody reads
	defer outRead.Close()
	ended := make(chan error, 1)
	go func() {
		rest, _ := Greeting(in) // as the program does
		ended <- s.ServeStdio(t.Context(), rest, outWrite)
	}()
	// The writer takes what waits once, and then the queue fills.
	if _, err := far.WriteString(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 2*outboxHigh+200)); err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("a client that left is no error: %v", err)
		}
	case <-time.After(patience):
		t.Error("the server did not end")
	}
	_ = outRead.Close() // the writer was left behind
}
