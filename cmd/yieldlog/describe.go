package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/yieldlog/yieldlog/events"
	"github.com/yieldlog/yieldlog/projections"
	"github.com/yieldlog/yieldlog/replay/look"
)

// describe is what an event says, in a few words, without its kind.
func describe(e events.Event) string {
	switch b := e.Body.(type) {
	case events.Opened:
		if b.Client != "" {
			return fmt.Sprintf("by %s %s for %s, pid %d on %s, in %s", b.Program, b.Version, oneLine(b.Client, 80), b.PID, b.Host, b.Cwd)
		}
		return fmt.Sprintf("by %s %s, pid %d on %s, in %s", b.Program, b.Version, b.PID, b.Host, b.Cwd)
	case events.Closed:
		return b.Reason
	case events.Lost:
		return b.Reason
	case events.Forked:
		return fmt.Sprintf("from %s at %d", b.From, b.At)
	case events.Rewound:
		return fmt.Sprintf("to %d", b.To)
	case events.Posted:
		return b.Notice
	case events.Acknowledged:
		return "by " + b.By
	case events.Unknown:
		return fmt.Sprintf("%d bytes that this version does not know", len(b.Data))
	default:
		return describeExecution(e)
	}
}

func describeExecution(e events.Event) string {
	switch b := e.Body.(type) {
	case events.Requested:
		return oneLine(b.Command, 100)
	case events.Refused:
		return b.Reason + ": " + oneLine(b.Message, 100)
	case events.Queued:
		return fmt.Sprintf("behind %d", b.Ahead)
	case events.Admitted:
		return "after " + millis(b.WaitedMS)
	case events.Spawned:
		return fmt.Sprintf("pid %d", b.PID)
	case events.Yielded:
		return fmt.Sprintf("after %s, at byte %d", millis(b.ElapsedMS), b.Offset)
	case events.Input:
		return describeInput(b)
	case events.Stopping:
		return fmt.Sprintf("%s, with %s", b.Cause, b.Signal)
	case events.Settled:
		return describeEnd(b)
	case events.Pruned:
		return fmt.Sprintf("bytes %d to %d (%s)", b.From, b.To, b.Reason)
	default:
		return ""
	}
}

func describeInput(b events.Input) string {
	var said []string
	if b.Bytes > 0 {
		said = append(said, look.Bytes(int64(b.Bytes)))
	}
	if b.Close {
		said = append(said, "closed")
	}
	if b.Resize != nil {
		said = append(said, fmt.Sprintf("%d x %d", b.Resize.Cols, b.Resize.Rows))
	}
	if b.Error != "" {
		said = append(said, b.Error)
	}
	return strings.Join(said, ", ")
}

// describeEnd is how an execution ended: "completed (exit code 0), 1.2s, 3.4 kB".
func describeEnd(b events.Settled) string {
	said := []string{projections.End(b), millis(b.DurationMS), look.Bytes(b.Offset)}
	if b.Error != "" {
		said = append(said, oneLine(b.Error, 100))
	}
	return strings.Join(said, ", ")
}

// oneLine is s on one line of at most n characters, harmless on a terminal.
func oneLine(s string, n int) string {
	var b strings.Builder
	count := 0
	for _, r := range strings.TrimSpace(s) {
		if count++; count > n {
			return b.String() + "…"
		}
		switch {
		case r == '\n':
			b.WriteRune('⏎')
		case r < ' ' || (r >= 0x7f && r < 0xa0):
			b.WriteRune('·')
		default:
			b.WriteString(string(look.Visible(r)))
		}
	}
	return b.String()
}

func millis(ms int64) string { return duration(time.Duration(ms) * time.Millisecond) }

// duration is a duration for people: three digits or so.
func duration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}
