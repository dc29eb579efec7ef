package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/events/ledger"
)

const (
	// besideBytes is the output that is packed, or captured, beside the calls.
	besideBytes = 64 << 20
	// besidePause is the wait between calls: an agent's, and not a flood.
	besidePause = 2 * time.Millisecond
	besideLimit = 5 * time.Millisecond
	// besideMost is how long calls are timed beside a pack, which takes its time.
	besideMost = 20 * time.Second
)

// beside times calls while the host packs, and while a command is captured.
func (b *bench) beside() ([]row, error) {
	dir, err := os.MkdirTemp(b.dir, "packed-")
	if err != nil {
		return nil, err
	}
	chunks, err := recordLines(dir, besideBytes)
	if err != nil {
		return nil, fmt.Errorf("recording: %w", err)
	}
	if err := exec.Command("sync").Run(); err != nil { // what was recorded is on disk
		return nil, err
	}
	rest, err := b.besideNothing()
	if err != nil {
		return nil, err
	}
	c, err := b.connect([]string{b.binary, "mcp"}, "YIELDLOG_DIR="+dir)
	if err != nil {
		return nil, err
	}
	rows, err := besidePacking(c, dir, chunks)
	if err = errors.Join(err, c.close()); err != nil {
		return nil, err
	}
	more, err := b.besideCapture()
	return slices.Concat(rest, rows, more), err
}

// besideNothing times calls while there is nothing beside them.
func (b *bench) besideNothing() ([]row, error) {
	c, err := b.server()
	if err != nil {
		return nil, err
	}
	subject, err := besideSubject(c)
	if err != nil {
		return nil, err
	}
	took := map[string][]time.Duration{}
	for range b.rounds {
		if err := callBeside(c, subject, took); err != nil {
			return nil, err
		}
	}
	return besideRows("at rest", took), c.close()
}

// besidePacking times calls from when the host begins to pack to when it has, or for
// long enough.
func besidePacking(c *client, dir string, chunks int) ([]row, error) {
	subject, err := besideSubject(c)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if twins, _ := filepath.Glob(filepath.Join(dir, "store", "jetstream", "*", "streams", "PACKED_*")); len(twins) > 0 {
			break
		}
		if time.Now().After(deadline) {
			return nil, errors.New("the host packs nothing")
		}
	}
	began := time.Now()
	took := map[string][]time.Duration{}
	for time.Since(began) < besideMost {
		s, err := ledger.ReadSubscriber(dir)
		if err != nil {
			return nil, fmt.Errorf("looking for what is left to pack: %w", err)
		}
		loose := slices.DeleteFunc(s.Segments, func(name string) bool { return !strings.HasPrefix(name, "OUTPUT_") })
		if len(loose) <= 1 {
			break
		}
		if err := callBeside(c, subject, took); err != nil {
			return nil, err
		}
	}
	what := fmt.Sprintf("while 64 MiB in %d messages are packed", chunks)
	return besideRows(what, took), nil
}

// besideCapture times calls while commands print 64 MiB of text each.
func (b *bench) besideCapture() ([]row, error) {
	c, err := b.server("YIELDLOG_OUTPUT_LIMIT_BYTES=100000000000")
	if err != nil {
		return nil, err
	}
	subject, err := besideSubject(c)
	if err != nil {
		return nil, err
	}
	took := map[string][]time.Duration{}
	for range 40 { // each takes a quarter of a second, and p99 wants hundreds of calls
		flood, err := c.exec(fmt.Sprintf("yes 'a flood of lines, each of them rather ordinary' | head -c %d", besideBytes), "yield_ms", 0)
		if err != nil {
			return nil, err
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.call("wait", map[string]any{"process_id": flood.ProcessID, "timeout_ms": 55000, "max_output_bytes": 1})
			ended <- err
		}()
		for over := false; !over; {
			if err := callBeside(c, subject, took); err != nil {
				return nil, err
			}
			select {
			case err = <-ended:
				over = true
			default:
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return besideRows("while 64 MiB are captured and compressed", took), c.close()
}

// besideSubject is an execution that has ended, to ask about.
func besideSubject(c *client) (string, error) {
	a, err := c.exec("seq 1 1000")
	return a.ProcessID, err
}

// callBeside makes each call once, and forks once without yieldlog: no command is
// faster than that.
func callBeside(c *client, subject string, took map[string][]time.Duration) error {
	for _, tool := range []string{"ps", "read", "wait", "exec"} {
		args := map[string]any{"process_id": subject}
		switch tool {
		case "ps":
			args = map[string]any{"limit": 5}
		case "exec":
			args = map[string]any{"command": "true", "side_effects": []string{"NONE"}}
		}
		at := time.Now()
		if _, err := c.call(tool, args); err != nil {
			return err
		}
		took[tool] = append(took[tool], time.Since(at))
		time.Sleep(besidePause)
	}
	d, err := floor()
	took["bare"] = append(took["bare"], d)
	return err
}

func besideRows(what string, took map[string][]time.Duration) (rows []row) {
	var calls []time.Duration
	for _, tool := range []string{"ps", "read", "wait"} {
		calls = append(calls, took[tool]...)
	}
	for _, r := range []struct {
		name string
		took []time.Duration
	}{{"`ps`, `read` and `wait`", calls}, {"`exec true`", took["exec"]}, {"bare fork and exec of `sh -c true`", took["bare"]}} {
		p99 := quantile(r.took, 0.99)
		rows = append(rows, row{
			what:   fmt.Sprintf("%s %s, p99 of %d (p50 %s)", r.name, what, len(r.took), ms(quantile(r.took, 0.5))),
			figure: ms(p99), budget: ms(besideLimit), kept: p99 <= besideLimit,
		})
	}
	rows[len(rows)-1].budget = "" // it is not ours
	return rows
}

// recordLines records so many bytes of one execution, a chunk for four lines, in
// segments that are sealed and not packed yet. It returns the chunks.
func recordLines(dir string, most int) (chunks int, err error) {
	ctx := context.Background()
	l, err := ledger.Open(ctx, ledger.Options{Dir: dir, Sync: ledger.SyncRelaxed, SegmentBytes: 64 << 20})
	if err != nil {
		return 0, err
	}
	session, id := events.NewID(), events.NewID()
	failed := make(chan error, 1)
	post := func(subject string, b events.Body) {
		e := events.Event{Session: session, Owner: events.RootOwner, Subject: subject, Body: b}
		err := l.Post(ctx, e, func(_ events.Event, err error) {
			if err != nil {
				select {
				case failed <- err:
				default: // the first is enough
				}
			}
		})
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	post(session, events.Opened{Program: "bench"})
	post(id, events.Requested{Command: "make", Cwd: "/src"})
	offset := int64(0)
	for ; offset < int64(most); chunks++ {
		var text []byte
		for i := range 4 {
			text = fmt.Appendf(text, "[%8d] compiling package number %d of the whole, with flags -O2 -g and %x\n", chunks, chunks*7919%10007, (chunks+i)*2654435761)
		}
		post(id, events.Output{Stream: events.KindStdout, Offset: offset, Data: text})
		offset += int64(len(text))
	}
	post(id, events.Settled{Status: events.StatusCompleted, Termination: events.TermExited, Outcome: events.OutcomeSuccess, Offset: offset})
	post(session, events.Closed{})
	err = l.Close()
	select {
	case first := <-failed:
		return chunks, errors.Join(first, err)
	default:
		return chunks, err
	}
}
