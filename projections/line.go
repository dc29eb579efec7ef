package projections

import (
	"github.com/yieldlog/yieldlog/events"
)

// End is the end of an execution in a few words, such as "failed (exit code 3)".
// Notices have no word for a loss, and call it a stop.
func End(s events.Settled) string {
	if s.Status == events.StatusLost {
		return "lost with its server"
	}
	return Word(s) + detail(s)
}

// Line is a lifecycle event as a line of a replay: what somebody did, or what
// came of it. It is empty for events that nobody needs to see. Control
// characters are escaped.
func Line(e events.Event) string {
	switch b := e.Body.(type) {
	case events.Opened:
		return "session opened by " + token(b.Program)
	case events.Closed:
		return "session closed: " + oneLine(b.Reason)
	case events.Lost:
		return "session lost: " + oneLine(b.Reason)
	case events.Requested:
		return "$ " + oneLine(b.Command)
	case events.Refused:
		return "● refused: " + oneLine(b.Message)
	case events.Yielded:
		return "● yielded, goes on in the background"
	case events.Input:
		return "● " + inputText(b)
	case events.Stopping:
		return "● " + stopText(b)
	case events.Settled:
		return "● " + End(b)
	}
	return ""
}

// ShortLabel is what an execution is called at the beginning of each of its
// lines: its name, or the end of its id.
func ShortLabel(execution string, r events.Requested) string {
	if r.Name != "" {
		return oneLine(r.Name)
	}
	return execution[max(0, len(execution)-6):]
}
