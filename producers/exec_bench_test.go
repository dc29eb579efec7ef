//go:build unix

package producers

import (
	"os/exec"
	"slices"
	"testing"
	"time"
)

// BenchmarkExec is a whole call: requested, spawned and settled are durable.
func BenchmarkExec(b *testing.B) {
	s := newBench(b)
	r := request("true")
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		if _, err := s.Exec(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkFork is the same command without a ledger.
func BenchmarkFork(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command("/bin/sh", "-c", "true").Output(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOutput is the throughput of a command that writes as fast as it can.
func BenchmarkOutput(b *testing.B) {
	s := newBench(b, func(c *Config) { c.OutputLimit = 0 })
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		if n := s.run(request("head -c 67108864 /dev/zero")); n.Offset != size {
			b.Fatalf("%d bytes", n.Offset)
		}
	}
}
