package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
)

// comparedBytes is how much of each stream is compared line by line.
const comparedBytes = 4 << 20

// Comparison is what differs between two executions, A and B.
type Comparison struct {
	A string `json:"a"`
	B string `json:"b"`
	// Facts lists the facts that differ. Times and durations always do, and are
	// not among them.
	Facts []Difference `json:"facts"`
	// Streams lists the output streams that differ.
	Streams []StreamDifference `json:"streams"`
	// PrunedA and PrunedB count the bytes that were pruned, which cannot be compared.
	PrunedA int64 `json:"pruned_a,omitempty"`
	PrunedB int64 `json:"pruned_b,omitempty"`
	// DurationA and DurationB are how long they took, in milliseconds.
	DurationA int64 `json:"duration_a_ms"`
	DurationB int64 `json:"duration_b_ms"`
}

// Difference is a fact that differs.
type Difference struct {
	Fact string `json:"fact"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// StreamDifference is an output stream that differs.
type StreamDifference struct {
	Stream events.Kind `json:"stream"`
	BytesA int64       `json:"bytes_a"`
	BytesB int64       `json:"bytes_b"`
	// Diff is a unified diff of the lines, of their beginning if Partial is set.
	Diff    string `json:"diff"`
	Partial bool   `json:"partial,omitempty"`
}

// Same reports whether nothing differs.
func (c Comparison) Same() bool { return len(c.Facts) == 0 && len(c.Streams) == 0 }

// Compare compares the facts and the output of two executions.
func Compare(ctx context.Context, src Outputs, a, b projections.Process) (Comparison, error) {
	c := Comparison{
		A: a.Execution, B: b.Execution, Facts: []Difference{}, Streams: []StreamDifference{},
		PrunedA: a.PrunedIn(0, -1), PrunedB: b.PrunedIn(0, -1),
		DurationA: a.Duration().Milliseconds(), DurationB: b.Duration().Milliseconds(),
	}
	factsA, factsB := comparedFacts(a), comparedFacts(b)
	for i, f := range factsA {
		if g := factsB[i]; f.A != g.A {
			c.Facts = append(c.Facts, Difference{Fact: f.Fact, A: f.A, B: g.A})
		}
	}
	textA, err := beginnings(ctx, src, a)
	if err != nil {
		return Comparison{}, err
	}
	textB, err := beginnings(ctx, src, b)
	if err != nil {
		return Comparison{}, err
	}
	for _, k := range streams {
		if d, ok := compareStream(k, textA[k], textB[k], a.Execution, b.Execution); ok {
			c.Streams = append(c.Streams, d)
		}
	}
	return c, nil
}

// comparedFacts are the facts of an execution by name, in one order.
func comparedFacts(p projections.Process) []Difference {
	facts := []Difference{
		{Fact: "command", A: p.Requested.Command},
		{Fact: "directory", A: p.Requested.Cwd},
		{Fact: "owner", A: p.Owner},
		{Fact: "declared", A: strings.Join(p.Requested.SideEffects, ", ")},
		{Fact: "environment", A: strings.Join(p.Requested.Env, ", ")},
		{Fact: "state", A: p.State},
		{Fact: "status", A: string(p.Status)},
		{Fact: "yielded", A: strconv.FormatBool(p.Yielded)},
	}
	var s events.Settled
	if p.Settled != nil {
		s = *p.Settled
	}
	exit := ""
	if s.ExitCode != nil {
		exit = strconv.Itoa(*s.ExitCode)
	}
	return append(facts,
		Difference{Fact: "termination", A: string(s.Termination)}, Difference{Fact: "outcome", A: string(s.Outcome)},
		Difference{Fact: "exit code", A: exit}, Difference{Fact: "signal", A: s.Signal}, Difference{Fact: "error", A: s.Error})
}

// beginning is the beginning of a stream, and the size and digest of it all.
type beginning struct {
	text []byte
	size int64
	hash hash.Hash
}

func (b *beginning) digest() string {
	if b == nil {
		return ""
	}
	return string(b.hash.Sum(nil))
}

// beginnings reads what is compared of an output.
func beginnings(ctx context.Context, src Outputs, p projections.Process) (map[events.Kind]*beginning, error) {
	found := map[events.Kind]*beginning{}
	for e, err := range src.Output(ctx, p.Session, p.Execution, 0, -1) {
		if err != nil {
			return nil, fmt.Errorf("comparing the output of %s: %w", p.Execution, err)
		}
		out, ok := e.Body.(events.Output)
		if !ok {
			continue
		}
		b := found[out.Stream]
		if b == nil {
			b = &beginning{hash: sha256.New()}
			found[out.Stream] = b
		}
		b.size += int64(len(out.Data))
		b.hash.Write(out.Data)
		b.text = append(b.text, out.Data[:min(len(out.Data), comparedBytes-len(b.text))]...)
	}
	return found, nil
}

// compareStream is what differs in a stream; either side may be nil.
func compareStream(k events.Kind, a, b *beginning, nameA, nameB string) (StreamDifference, bool) {
	if a.digest() == b.digest() {
		return StreamDifference{}, false
	}
	none := &beginning{}
	a, b = cmp.Or(a, none), cmp.Or(b, none)
	return StreamDifference{
		Stream: k, BytesA: a.size, BytesB: b.size, Partial: max(a.size, b.size) > comparedBytes,
		Diff: string(diff.Diff(nameA+" "+string(k), a.text, nameB+" "+string(k), b.text)),
	}, true
}
