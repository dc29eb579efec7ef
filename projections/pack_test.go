package projections

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/yieldlog/yieldlog/events"
)

func TestPackIsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		num := rapid.Int64Range(-5, 1<<40)
		when := rapid.Custom(func(t *rapid.T) time.Time {
			if rapid.Bool().Draw(t, "zero") {
				return time.Time{}
			}
			return time.Unix(rapid.Int64Range(-1e11, 1e11).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
		})
		list := rapid.SampledFrom([][]string{nil, {}, {"NONE"}, {"A", "B"}, {"", ""}})
		sum := rapid.Custom(func(t *rapid.T) events.StreamSum {
			return events.StreamSum{
				Bytes: num.Draw(t, "bytes"), Raw: num.Draw(t, "raw"),
				SHA256: rapid.SampledFrom([]string{"", "x", emptySHA256, "01BA", fmt.Sprintf("%064x", 77)}).Draw(t, "sha"),
			}
		})
		s := &events.Settled{
			Status: events.StatusCompleted, Termination: "exited", Outcome: "success", Signal: text.Draw(t, "signal"),
			DurationMS: num.Draw(t, "duration"), Offset: num.Draw(t, "offset"), Stdout: sum.Draw(t, "stdout"),
			Stderr: sum.Draw(t, "stderr"), TTY: sum.Draw(t, "tty"), CutOff: rapid.Bool().Draw(t, "cut"), Error: text.Draw(t, "error"),
		}
		if rapid.Bool().Draw(t, "plain") {
			s.Stdout.Bytes, s.Stdout.Raw, s.Stderr, s.TTY = s.Offset, s.Offset, events.StreamSum{}, events.StreamSum{}
		}
		if rapid.Bool().Draw(t, "code") {
			code := rapid.IntRange(-64, 255).Draw(t, "exit")
			s.ExitCode = &code
			s.Descendants = []events.Descendant{{PID: 9, Name: text.Draw(t, "name"), Killed: true}, {Left: true}}
		}
		v := process{outEnd: num.Draw(t, "outEnd"), Process: Process{
			Execution: text.Draw(t, "id"), Session: "s", Owner: "/root", State: StateCompleted, Status: s.Status, Settled: s,
			Requested: events.Requested{
				Command: text.Draw(t, "command"), Name: text.Draw(t, "name"), Cwd: "/", SideEffects: list.Draw(t, "effects"),
				Env: list.Draw(t, "env"), StdinBytes: 3, YieldMS: num.Draw(t, "yield"), TimeoutMS: num.Draw(t, "timeout"),
				Monitor: rapid.Bool().Draw(t, "monitor"), Trace: text.Draw(t, "trace"),
			},
			RequestedSeq: 5, Seq: 5 + rapid.Uint64Range(0, 100).Draw(t, "seq"), RequestedAt: when.Draw(t, "requested"),
			SpawnedAt: when.Draw(t, "spawned"), EndedAt: when.Draw(t, "ended"), LastOutputAt: when.Draw(t, "last"),
			YieldedAt: when.Draw(t, "yielded"), PID: rapid.Int().Draw(t, "pid"), PGID: 4, Start: rapid.Uint64().Draw(t, "start"),
			Boot: text.Draw(t, "boot"), Offset: num.Draw(t, "reach"), Yielded: rapid.Bool().Draw(t, "yielded"),
			Forgotten: rapid.Bool().Draw(t, "forgotten"), Rewound: rapid.Bool().Draw(t, "rewound"),
			StdoutBytes: s.Stdout.Raw, StderrBytes: s.Stderr.Raw, TTYBytes: s.TTY.Raw,
		}}
		if rapid.Bool().Draw(t, "rich") {
			v.Requested.TTY, v.Requested.Client = &events.Size{Rows: 3, Cols: 4}, map[string]string{"a": "b", "": text.Draw(t, "client")}
			v.Size = events.Size{Rows: rapid.IntRange(1, 200).Draw(t, "rows"), Cols: 500}
			v.Pruned = []Span{{1, 2}, {7, 9}}
		}
		var d dictionary
		if diff := cmp.Diff(v, d.unpack(d.pack(&v)), cmp.AllowUnexported(process{})); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestProcessesMemory holds the fold to its bound for a million executions,
// measured on a part of them.
func TestProcessesMemory(t *testing.T) {
	const n, bound = 100_000, 300 // bytes each
	before := heap()
	p := NewProcesses()
	for i := range n {
		fold(p, i)
	}
	each := (int64(heap()) - int64(before)) / n
	t.Logf("%d bytes for each execution", each)
	if each > bound {
		t.Errorf("an execution takes %d bytes, over %d", each, bound)
	}
	runtime.KeepAlive(p)
}

// fold applies the life of an execution.
func fold(p *Processes, i int) {
	id, code, at := fmt.Sprintf("01JX%022d", i), 0, time.Unix(1_800_000_000+int64(i), int64(i*7919%1e9)).UTC()
	e := events.Event{Session: "01JX0000000000000000000000", Owner: "/root", Subject: id}
	for j, b := range []events.Body{
		events.Requested{
			Command: fmt.Sprintf("go test ./pkg/%d -run TestSomething", i), Cwd: "/home/me/project", SideEffects: []string{"NONE"},
			YieldMS: 5000, OutputLimit: 64 << 20,
		},
		events.Spawned{PID: 1000 + i%30000, PGID: 1000 + i%30000, Start: uint64(i) * 1000, Boot: "3b0c1f4e-1111-2222-3333-444455556666"},
		events.Settled{
			Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess, ExitCode: &code,
			DurationMS: 1234, Offset: 5000,
			Stdout: events.StreamSum{Bytes: 5000, Raw: 5000, SHA256: fmt.Sprintf("%064x", i)}, Stderr: events.StreamSum{SHA256: emptySHA256},
		},
	} {
		e.Seq, e.Time, e.Body = uint64(i*3+j+1), at.Add(time.Duration(j)*time.Second), b
		p.Apply(e)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkProcesses(b *testing.B) {
	p := NewProcesses()
	for i := range b.N {
		fold(p, i)
	}
}
