package producers

import (
	"errors"
	"fmt"
	"time"

	"github.com/yieldlog/yieldlog/events"
)

// ResultKind says how a call found its execution.
type ResultKind string

// The kinds of result.
const (
	// Settled: the execution is over.
	Settled ResultKind = "settled"
	// Yielded: the execution runs on.
	Yielded ResultKind = "yielded"
	// Queued: the execution still waits for its lane.
	Queued ResultKind = "queued"
	// Refused: nothing was started.
	Refused ResultKind = "refused"
)

// Result is what a call found. Its facts are in the projections, once they
// have reached Seq.
type Result struct {
	Execution string
	Outcome   ResultKind
	// Refusal is the text of a refusal, and Reason its word: see [events.Refused].
	Refusal string
	Reason  string
	// Seq is the last lifecycle sequence that the answer rests on.
	Seq uint64
	// Claim, if not nil, is the caller's claim on the completion, which its
	// answer carries: it must be ended.
	Claim *Claim
}

// Input is what to write to a command's standard input.
type Input struct {
	Data []byte
	// Close ends standard input after Data.
	Close bool
	// Resize changes the size of the terminal.
	Resize *events.Size
	// Piped says that nobody decided to write it: it flows, and its end too. What
	// of it does not arrive is not recorded.
	Piped bool
}

// StopOptions say how to stop.
type StopOptions struct {
	// Signal is the name of the first signal; "" is SIGTERM.
	Signal string
	// ForceAfter is the time from the signal to SIGKILL: 0 is 3 s, and a
	// negative one none at all.
	ForceAfter time.Duration
}

// StopResult says what a stop did.
type StopResult struct {
	// Stopped is set when the execution ended by this stop or an earlier one.
	Stopped bool          `json:"stopped"`
	Signal  string        `json:"signal"`
	Status  events.Status `json:"status"`
	// Seq is the sequence of the settlement.
	Seq uint64 `json:"seq"`
	// Claim: see [Result].
	Claim *Claim `json:"-"`
}

// ErrEnded is the error of a control that needs a running execution.
var ErrEnded = errors.New("process has already ended")

// ErrClosed is the error of a session that is closing.
var ErrClosed = errors.New("session is closed")

// ErrInput is the error of input that cannot be delivered.
var ErrInput = errors.New("standard input is not writable")

// ErrSignal is the error of a signal name that the system does not know.
var ErrSignal = errors.New("unknown signal")

// UnknownError says that the caller's owner has no such execution.
type UnknownError struct{ Execution string }

func (e *UnknownError) Error() string { return fmt.Sprintf("Unknown process_id: %s", e.Execution) }

// ErrUnknown matches every [UnknownError].
var ErrUnknown = errors.New("unknown process_id")

// Is makes errors.Is(err, ErrUnknown) true.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }
