package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

// ImportAsciicast appends a terminal recording, asciicast v2 or v3, as a
// session of one execution. Its ids are made of its bytes: doing it again
// changes nothing.
func ImportAsciicast(ctx context.Context, l *ledger.Ledger, cast []byte) (Summary, error) {
	records, err := fromAsciicast(cast)
	if err != nil {
		return Summary{}, fmt.Errorf("reading the asciicast: %w", err)
	}
	return importAll(ctx, l, func(yield func(record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	})
}

// IsAsciicast reports whether a file that begins like this may be one.
func IsAsciicast(head []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(head), []byte("{"))
}

type castHeader struct {
	Version   int    `json:"version"`
	Width     int    `json:"width"`
	Height    int    `json:"height"`
	Timestamp int64  `json:"timestamp"` // seconds
	Command   string `json:"command"`
	Title     string `json:"title"`
	Term      struct {
		Cols int `json:"cols"`
		Rows int `json:"rows"`
	} `json:"term"`
}

// A caster makes records of a recording.
type caster struct {
	session, execution string
	hash               [sha256.Size]byte // of the recording
	start, now         time.Time
	prev               string
	offset             int64
	digest             hash.Hash
	exit               *int
	records            []record
}

func fromAsciicast(cast []byte) ([]record, error) {
	head, rest, _ := bytes.Cut(cast, []byte("\n"))
	var h castHeader
	if err := json.Unmarshal(head, &h); err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	if h.Version != 2 && h.Version != 3 {
		return nil, fmt.Errorf("its version is %d, and 2 and 3 can be read", h.Version)
	}
	c := &caster{hash: sha256.Sum256(cast), start: time.Unix(h.Timestamp, 0).UTC(), digest: sha256.New()}
	c.now = c.start
	c.session, c.execution = c.id("session"), c.id("execution")
	if err := c.begin(h); err != nil {
		return nil, err
	}
	n := 1
	for text := range bytes.Lines(rest) {
		n++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if err := c.event(text, h.Version); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return c.records, c.end()
}

// id is the next id of something: the same one for the same recording.
func (c *caster) id(what string) string {
	sum := sha256.Sum256(fmt.Appendf(c.hash[:], "%s %d", what, len(c.records)))
	var id ulid.ULID
	_ = id.SetTime(uint64(max(c.now.UnixMilli(), 0))) // fails only beyond the year 10889
	_ = id.SetEntropy(sum[:10])                       // fails only for another length
	return id.String()
}

func (c *caster) put(about string, b events.Body) error {
	e := events.Event{ID: c.id("event"), Time: c.now, Session: c.session, Subject: about, Body: b}
	if about != c.session {
		e.Owner = events.RootOwner
	}
	if e.Class() != events.ClassOutput {
		e.Prev = c.prev
	}
	m, err := events.Encode(e)
	if err != nil {
		return err
	}
	if e.Class() != events.ClassOutput {
		c.prev = events.Hash(m)
	}
	c.records = append(c.records, record{seq: uint64(len(c.records) + 1), Message: m})
	return nil
}

func (c *caster) begin(h castHeader) error {
	size := &events.Size{Rows: h.Height, Cols: h.Width}
	if h.Version == 3 {
		size = &events.Size{Rows: h.Term.Rows, Cols: h.Term.Cols}
	}
	command := h.Command
	if command == "" {
		command = "# a terminal recording"
	}
	if err := c.put(c.session, events.Opened{Program: "import", Name: h.Title}); err != nil {
		return err
	}
	if err := c.put(c.execution, events.Requested{Command: command, Name: h.Title, TTY: size}); err != nil {
		return err
	}
	return c.put(c.execution, events.Spawned{})
}

// event takes one line: [time, code, data]. The time is since the start in
// version 2, and since the last event in version 3.
func (c *caster) event(text []byte, version int) error {
	var (
		fields []json.RawMessage
		at     float64
		code   string
		data   string
	)
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if len(fields) < 3 {
		return fmt.Errorf("it has %d fields instead of 3", len(fields))
	}
	for i, to := range []any{&at, &code, &data} {
		if err := json.Unmarshal(fields[i], to); err != nil {
			return fmt.Errorf("field %d: %w", i+1, err)
		}
	}
	if at < 0 || at > 1e9 {
		return fmt.Errorf("its time is %g", at)
	}
	since := c.start
	if version == 3 {
		since = c.now
	}
	c.now = since.Add(time.Duration(at * float64(time.Second)))
	return c.happened(code, data)
}

func (c *caster) happened(code, data string) error {
	switch code {
	case "o":
		return c.output([]byte(data))
	case "i":
		return c.put(c.execution, events.Input{Bytes: len(data), Offset: c.offset})
	case "r":
		cols, rows, ok := strings.Cut(data, "x")
		w, errW := strconv.Atoi(cols)
		h, errH := strconv.Atoi(rows)
		if !ok || errW != nil || errH != nil {
			return fmt.Errorf("%q is no size", data)
		}
		return c.put(c.execution, events.Input{Resize: &events.Size{Rows: h, Cols: w}, Offset: c.offset})
	case "x":
		n, err := strconv.Atoi(data)
		if err != nil {
			return fmt.Errorf("%q is no exit status", data)
		}
		c.exit = &n
	}
	return nil // markers, and what is unknown, have no place in a ledger
}

func (c *caster) output(data []byte) error {
	for len(data) > 0 {
		n := min(len(data), events.MaxChunk)
		if err := c.put(c.execution, events.Output{Stream: events.KindTTY, Offset: c.offset, Data: data[:n]}); err != nil {
			return err
		}
		c.digest.Write(data[:n])
		c.offset += int64(n)
		data = data[n:]
	}
	return nil
}

func (c *caster) end() error {
	s := events.Settled{
		Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess,
		ExitCode: c.exit, DurationMS: c.now.Sub(c.start).Milliseconds(), Offset: c.offset,
	}
	if c.exit != nil && *c.exit != 0 {
		s.Outcome = events.OutcomeFailure
	}
	if c.offset > 0 {
		s.TTY = events.StreamSum{Bytes: c.offset, Raw: c.offset, SHA256: hex.EncodeToString(c.digest.Sum(nil))}
	}
	if err := c.put(c.execution, s); err != nil {
		return err
	}
	return c.put(c.session, events.Closed{Reason: "imported"})
}
