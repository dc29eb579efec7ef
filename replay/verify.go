package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"iter"
	"strings"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
	"github.com/yieldlog/yieldlog/projections"
)

// Evidence is what a verification reads; *ledger.Ledger is one.
type Evidence interface {
	Outputs
	// ReadRaw is the lifecycle messages of [from, to] as they are stored.
	ReadRaw(ctx context.Context, f events.Filter, from, to uint64) iter.Seq2[ledger.Raw, error]
}

// Check names what a verification looks at.
type Check string

// The checks.
const (
	// CheckSequence: the lifecycle stream has no gaps. Only of a whole ledger.
	CheckSequence Check = "sequence"
	// CheckDecode: every message is an event.
	CheckDecode Check = "decode"
	// CheckChain: each event carries the hash of its session's previous one.
	CheckChain Check = "chain"
	// CheckOrder: the rules of package events hold: one end for each execution,
	// one acknowledgement for each record, nothing before its cause.
	CheckOrder Check = "order"
	// CheckOffsets: output has no gaps but those that were pruned, no overlaps,
	// and ends where the settlement says.
	CheckOffsets Check = "offsets"
	// CheckCounts: each stream has the bytes that the settlement says.
	CheckCounts Check = "counts"
	// CheckDigest: each stream has the SHA-256 that the settlement says.
	CheckDigest Check = "digest"
)

// Finding is one thing that is wrong.
type Finding struct {
	Check     Check  `json:"check"`
	Seq       uint64 `json:"seq,omitempty"`
	Session   string `json:"session,omitempty"`
	Execution string `json:"execution,omitempty"`
	Text      string `json:"text"`
}

// Verification is what was looked at, and what is wrong with it.
type Verification struct {
	Events     int `json:"events"`
	Sessions   int `json:"sessions"`
	Executions int `json:"executions"`
	// OutputBytes counts the output that was read, PrunedBytes what was deleted
	// on purpose, and UnsettledExecutions those without digests to compare with.
	OutputBytes         int64     `json:"output_bytes"`
	PrunedBytes         int64     `json:"pruned_bytes"`
	UnsettledExecutions int       `json:"unsettled_executions"`
	Findings            []Finding `json:"findings"`
}

// OK reports whether nothing is wrong.
func (v Verification) OK() bool { return len(v.Findings) == 0 }

// Verify checks a whole ledger, or one session of it. What is wrong is in the
// result; an error means that it could not be read to the end.
func Verify(ctx context.Context, src Evidence, session string) (Verification, error) {
	v := verifier{
		hashes: map[string]link{}, processes: projections.NewProcesses(),
		sessions: projections.NewSessions(), mailbox: projections.NewMailbox(),
		result: Verification{Findings: []Finding{}},
	}
	var last uint64
	for raw, err := range src.ReadRaw(ctx, events.Filter{Session: session}, 1, 0) {
		if err != nil {
			return v.result, fmt.Errorf("verifying after sequence %d: %w", last, err)
		}
		if session == "" && raw.Seq != last+1 {
			v.find(Finding{Check: CheckSequence, Seq: raw.Seq, Text: fmt.Sprintf("sequences %d to %d are missing", last+1, raw.Seq-1)})
		}
		last = raw.Seq
		v.message(raw)
	}
	v.folds()
	for p := range v.processes.Everything() {
		if err := v.output(ctx, src, p); err != nil {
			return v.result, err
		}
	}
	return v.result, nil
}

type verifier struct {
	hashes    map[string]link
	processes *projections.Processes
	sessions  *projections.Sessions
	mailbox   *projections.Mailbox
	result    Verification
}

// link is the newest event of a session's chain.
type link struct {
	hash string
	seq  uint64
}

func (v *verifier) find(f Finding) { v.result.Findings = append(v.result.Findings, f) }

// message checks one lifecycle message and folds it.
func (v *verifier) message(raw ledger.Raw) {
	v.result.Events++
	var session string
	if tokens := strings.Split(raw.Subject, "."); len(tokens) > 1 {
		session = tokens[1]
	}
	before := v.hashes[session]
	v.hashes[session] = link{hash: events.Hash(raw.Message), seq: raw.Seq}
	e, err := events.Decode(raw.Message)
	if err != nil {
		v.find(Finding{Check: CheckDecode, Seq: raw.Seq, Session: session, Text: err.Error()})
		return
	}
	e.Seq = raw.Seq
	if e.Prev != before.hash {
		v.find(Finding{Check: CheckChain, Seq: e.Seq, Session: session, Execution: e.Execution(), Text: broken(e, before)})
	}
	v.processes.Apply(e)
	v.sessions.Apply(e)
	v.mailbox.Apply(e)
}

// broken says what a broken link means.
func broken(e events.Event, before link) string {
	switch {
	case before.seq == 0:
		return fmt.Sprintf("%s is the session's first event and names one before it: that was removed", e.Kind())
	case e.Prev == "":
		return fmt.Sprintf("%s names no event before it, where event %d is: one of them was inserted or altered", e.Kind(), before.seq)
	}
	return fmt.Sprintf("%s does not follow event %d as it is stored: that one was altered, or one between them was removed, or one of them was inserted", e.Kind(), before.seq)
}

// folds makes findings of the anomalies that the folds saw.
func (v *verifier) folds() {
	for _, s := range v.sessions.List() {
		v.result.Sessions++
		for _, a := range s.Anomalies {
			v.find(Finding{Check: CheckOrder, Session: s.ID, Text: a})
		}
	}
	for _, r := range v.mailbox.List("", "") {
		for _, a := range r.Anomalies {
			v.find(Finding{Check: CheckOrder, Session: r.Session, Execution: r.Execution, Text: "mailbox record " + r.ID + ": " + a})
		}
	}
}

// output checks an execution and what it wrote.
func (v *verifier) output(ctx context.Context, src Outputs, p projections.Process) error {
	v.result.Executions++
	if p.Settled == nil && p.Refused == nil {
		v.result.UnsettledExecutions++
	}
	c := checker{verifier: v, process: p, sums: map[events.Kind]*sum{}}
	for _, a := range p.Anomalies {
		c.find(CheckOrder, "%s", a)
	}
	for e, err := range src.Output(ctx, p.Session, p.Execution, 0, -1) {
		if ctx.Err() != nil {
			return fmt.Errorf("verifying the output of %s: %w", p.Execution, context.Cause(ctx))
		}
		if err != nil {
			c.find(CheckDecode, "output after offset %d: %v", c.end, err)
			return nil
		}
		if out, ok := e.Body.(events.Output); ok {
			c.chunk(out)
		}
	}
	c.settled()
	return nil
}

// checker checks the output of one execution.
type checker struct {
	*verifier
	process projections.Process
	end     int64
	pruned  bool
	sums    map[events.Kind]*sum
}

type sum struct {
	bytes int64
	hash  hash.Hash
}

func (c *checker) find(check Check, format string, args ...any) {
	c.verifier.find(Finding{
		Check: check, Session: c.process.Session, Execution: c.process.Execution, Text: fmt.Sprintf(format, args...),
	})
}

func (c *checker) chunk(out events.Output) {
	if out.Offset < c.end {
		c.find(CheckOffsets, "bytes %d to %d are there twice", out.Offset, min(c.end, out.End()))
	}
	c.gap(out.Offset)
	c.end = max(c.end, out.End())
	c.result.OutputBytes += int64(len(out.Data))
	s := c.sums[out.Stream]
	if s == nil {
		s = &sum{hash: sha256.New()}
		c.sums[out.Stream] = s
	}
	s.bytes += int64(len(out.Data))
	s.hash.Write(out.Data)
}

// gap checks that what is missing before an offset was pruned.
func (c *checker) gap(to int64) {
	for _, span := range c.process.Pruned {
		if c.end < to && span.From <= c.end && span.To > c.end {
			c.pruned = true
			c.result.PrunedBytes += min(span.To, to) - c.end
			c.end = min(span.To, to)
		}
	}
	if c.end < to {
		c.find(CheckOffsets, "bytes %d to %d are missing", c.end, to)
		c.end = to
	}
}

// settled compares the output with what the settlement says.
func (c *checker) settled() {
	s := c.process.Settled
	if s == nil {
		return
	}
	if c.end > s.Offset {
		c.find(CheckOffsets, "the output ends at %d, beyond the settled length %d", c.end, s.Offset)
	}
	c.gap(s.Offset)
	if c.pruned {
		return // the rest cannot be told from a part
	}
	for _, stream := range []struct {
		kind events.Kind
		want events.StreamSum
	}{{events.KindStdout, s.Stdout}, {events.KindStderr, s.Stderr}, {events.KindTTY, s.TTY}} {
		got := c.sums[stream.kind]
		if got == nil {
			got = &sum{hash: sha256.New()}
		}
		if got.bytes != stream.want.Bytes {
			c.find(CheckCounts, "%s has %d bytes, settled with %d", stream.kind, got.bytes, stream.want.Bytes)
		}
		if digest := hex.EncodeToString(got.hash.Sum(nil)); stream.want.SHA256 != "" && digest != stream.want.SHA256 {
			c.find(CheckDigest, "%s has the SHA-256 %s, settled with %s", stream.kind, digest, stream.want.SHA256)
		}
	}
}
