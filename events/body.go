package events

import (
	"strings"
	"time"
)

// Body is what happened. The set is closed: only this package implements it.
type Body interface {
	Kind() Kind
	Class() Class
	sealed()
}

// Unknown is the body of a kind that this program does not know. It encodes to
// exactly the bytes that it was decoded from.
type Unknown struct {
	UnknownKind  Kind
	UnknownClass Class
	ContentType  string
	Data         []byte
}

// Opened starts a session.
type Opened struct {
	// Program is what opened it: "mcp", "exec".
	Program string `json:"program"`
	// Version is yieldlog's version.
	Version string `json:"version"`
	// Client is the MCP client's name and version, in two words at the least, if
	// it said so at the time.
	Client string `json:"client,omitempty"`
	Cwd    string `json:"cwd"`
	Host   string `json:"host"`
	PID    int    `json:"pid"`
	// Start is the kernel start time of PID in clock ticks since boot, and Boot
	// the boot id: together with PID they name one process for ever.
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
	Name  string `json:"name,omitempty"`
}

// Follows reports whether a session opened as o goes on where one opened as
// before left off: the same program in the same directory, for the same client
// in whatever version. Its mail is then for the same agent, as far as one can
// know: a client that did not say who it is may be any.
func (o Opened) Follows(before Opened) bool {
	a, b := o.clientName(), before.clientName()
	return o.Program == before.Program && o.Cwd == before.Cwd && (a == b || a == "" || b == "")
}

// clientName is the client without its version.
func (o Opened) clientName() string {
	return o.Client[:max(0, strings.LastIndexByte(o.Client, ' '))]
}

// Closed ends a session in good order.
type Closed struct {
	Reason string `json:"reason"`
}

// Lost ends a session whose process died without closing it. Another process
// appends it.
type Lost struct {
	Reason string `json:"reason"`
	// By is the session that found it dead, if the finder has one.
	By string `json:"by,omitempty"`
}

// Forked starts a session from another's history, without its executions. It
// follows the new session's opened.
type Forked struct {
	From string `json:"from"`
	// At is the last lifecycle sequence of From that is shared.
	At uint64 `json:"at"`
}

// Rewound hides the session's events after a sequence. Nothing is erased.
type Rewound struct {
	To uint64 `json:"to"`
}

// Requested asks for a command. It is on disk before the command starts.
type Requested struct {
	// Command is the shell text, redacted.
	Command     string   `json:"command"`
	Name        string   `json:"name,omitempty"`
	Cwd         string   `json:"cwd"`
	Shell       string   `json:"shell,omitempty"`
	SideEffects []string `json:"side_effects,omitempty"`
	// Env is the names of the overlay's variables, sorted; values are never recorded.
	Env []string `json:"env,omitempty"`
	// StdinBytes counts the initial input, in bytes.
	StdinBytes  int   `json:"stdin_bytes,omitempty"`
	YieldMS     int64 `json:"yield_ms"`
	TimeoutMS   int64 `json:"timeout_ms,omitempty"`
	OutputLimit int64 `json:"output_limit"`
	// TTY is set when the command runs in a terminal.
	TTY *Size `json:"tty,omitempty"`
	// Monitor is set when output lines are delivered through the mailbox.
	Monitor bool `json:"monitor,omitempty"`
	// Client holds the caller's correlation ids, as the client sent them.
	Client map[string]string `json:"client,omitempty"`
	// Trace is the caller's W3C traceparent.
	Trace string `json:"trace,omitempty"`
}

// Size is a terminal's size in characters.
type Size struct {
	Rows int `json:"rows"`
	Cols int `json:"cols"`
}

// Refused ends an execution that policy, a limit, or the system did not let start.
type Refused struct {
	// Reason is one word: side_effects, cwd, command, background, limit, shell, spawn, cancelled, ledger.
	Reason string `json:"reason"`
	// Message is what the caller was told.
	Message string `json:"message"`
	// Request is what was asked for, when no requested precedes the refusal.
	Request *Requested `json:"request,omitempty"`
}

// Queued says that the execution waits for its lane.
type Queued struct {
	// Ahead counts the executions that must leave the lane first.
	Ahead int `json:"ahead"`
}

// Admitted says that a queued execution has its lane.
type Admitted struct {
	WaitedMS int64 `json:"waited_ms"`
}

// Spawned says that the process runs.
type Spawned struct {
	PID  int `json:"pid"`
	PGID int `json:"pgid"`
	// Start and Boot: see [Opened].
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
}

// Yielded says that the call returned while the execution goes on.
type Yielded struct {
	Offset    int64 `json:"offset"`
	ElapsedMS int64 `json:"elapsed_ms"`
}

// Input says that bytes went to the command's standard input. The bytes
// themselves are never recorded.
type Input struct {
	Bytes  int   `json:"bytes"`
	Close  bool  `json:"close,omitempty"`
	Resize *Size `json:"resize,omitempty"`
	Offset int64 `json:"offset"`
	// Error says why the input failed, if it did. Such a one may follow the end.
	Error string `json:"error,omitempty"`
}

// Stopping says that the execution is being ended.
type Stopping struct {
	// Cause is the latched first cause: one of the terminations.
	Cause        Termination `json:"cause"`
	Signal       string      `json:"signal"`
	ForceAfterMS int64       `json:"force_after_ms"`
	Offset       int64       `json:"offset"`
}

// Status is the shell-server contract's word for the state of an execution.
type Status string

// The statuses of an execution. Running and the settled ones; a call answers
// also backgrounded and failed_to_start.
const (
	StatusRunning   Status = "running"
	StatusCompleted Status = "completed"
	StatusTimedOut  Status = "timed_out"
	StatusStopped   Status = "stopped"
	StatusFailed    Status = "failed"
	StatusLost      Status = "lost"
)

// Termination says what ended an execution.
type Termination string

// The terminations.
const (
	TermExited       Termination = "exited"
	TermSignal       Termination = "signal"
	TermStopped      Termination = "stopped"
	TermTimedOut     Termination = "timed-out"
	TermOutputLimit  Termination = "output-limit"
	TermCancelled    Termination = "cancelled"
	TermOwnerStopped Termination = "owner-stopped"
	TermSessionEnded Termination = "session-ended"
	TermStalled      Termination = "stalled"
	TermSpawnFailed  Termination = "spawn-failed"
	TermLost         Termination = "lost"
)

// Outcome is the meaning of the end, apart from its exit code.
type Outcome string

// The outcomes.
const (
	OutcomeSuccess   Outcome = "success"
	OutcomeFailure   Outcome = "failure"
	OutcomeNoMatch   Outcome = "no-match"
	OutcomeDifferent Outcome = "different"
	OutcomeFalse     Outcome = "false"
)

// Settled is the one end of an execution.
type Settled struct {
	Status      Status      `json:"status"`
	Termination Termination `json:"termination"`
	Outcome     Outcome     `json:"outcome"`
	// ExitCode is the shell's, -N after signal N, and nil when it is not known.
	ExitCode   *int   `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	// Offset is the total length of the output, in bytes.
	Offset int64     `json:"offset"`
	Stdout StreamSum `json:"stdout"`
	Stderr StreamSum `json:"stderr"`
	TTY    StreamSum `json:"tty"`
	// CutOff says that a descendant still held the pipe when the output was
	// closed: what it wrote later is not part of the output.
	CutOff bool `json:"cut_off,omitempty"`
	// Descendants names the processes that outlived the shell and were ended,
	// or, where the setting lets them, left.
	Descendants []Descendant `json:"descendants,omitempty"`
	// Error says why an execution failed or was lost.
	Error string `json:"error,omitempty"`
}

// StreamSum sums one output stream up.
type StreamSum struct {
	// Bytes counts what the ledger holds, and Raw what the command wrote,
	// before redaction.
	Bytes  int64  `json:"bytes"`
	Raw    int64  `json:"raw"`
	SHA256 string `json:"sha256,omitempty"`
}

// Descendant names a process that outlived the shell.
type Descendant struct {
	PID    int    `json:"pid"`
	Name   string `json:"name"`
	Killed bool   `json:"killed,omitempty"`
	Left   bool   `json:"left,omitempty"`
}

// Pruned says that output of the execution was deleted on purpose.
type Pruned struct {
	// From and To bound the bytes: offsets [From, To).
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Reason is size, asked, or cleanup: cleanup forgets only the handle, and no bytes.
	Reason string `json:"reason"`
}

// Output is a chunk of output: bytes and where they stand. It is the body of
// the three output kinds.
type Output struct {
	// Stream is [KindStdout], [KindStderr] or [KindTTY].
	Stream Kind
	// Offset is the position of the first byte in the execution's one output order.
	Offset int64
	// Data is the logical bytes, decompressed.
	Data []byte
}

// End is the offset after the last byte.
func (o Output) End() int64 { return o.Offset + int64(len(o.Data)) }

// MailKind says what a mailbox record is.
type MailKind string

// The kinds of mail.
const (
	MailCompletion MailKind = "completion"
	MailMonitor    MailKind = "monitor"
	MailResumed    MailKind = "resumed"
)

// Posted puts a record into its owner's mailbox.
type Posted struct {
	Mail      MailKind `json:"mail"`
	Execution string   `json:"execution,omitempty"`
	// From and To bound the output that the record delivers: [From, To).
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Count is the lines of a monitor batch, or of a monitor's terminal record
	// the lines delivered over its life.
	Count int `json:"count,omitempty"`
	// Executions lists the lost executions of a resumed record.
	Executions []string `json:"executions,omitempty"`
	// Notice is the one line to show, made of structured facts only.
	Notice string `json:"notice"`
}

// Acknowledged says that a mailbox record reached its owner.
type Acknowledged struct {
	Execution string `json:"execution,omitempty"`
	// By is what delivered it: exec, wait, read, stop, mailbox, sink.
	By string `json:"by"`
	// Redelivered is set when an earlier offer may have been seen already.
	Redelivered bool `json:"redelivered,omitempty"`
	// Offered is when the record was first handed out.
	Offered time.Time `json:"offered,omitzero"`
}

func (u Unknown) Kind() Kind    { return u.UnknownKind }
func (u Unknown) Class() Class  { return u.UnknownClass }
func (Opened) Kind() Kind       { return KindOpened }
func (Opened) Class() Class     { return ClassSession }
func (Closed) Kind() Kind       { return KindClosed }
func (Closed) Class() Class     { return ClassSession }
func (Lost) Kind() Kind         { return KindLost }
func (Lost) Class() Class       { return ClassSession }
func (Forked) Kind() Kind       { return KindForked }
func (Forked) Class() Class     { return ClassSession }
func (Rewound) Kind() Kind      { return KindRewound }
func (Rewound) Class() Class    { return ClassSession }
func (Requested) Kind() Kind    { return KindRequested }
func (Requested) Class() Class  { return ClassExecution }
func (Refused) Kind() Kind      { return KindRefused }
func (Refused) Class() Class    { return ClassExecution }
func (Queued) Kind() Kind       { return KindQueued }
func (Queued) Class() Class     { return ClassExecution }
func (Admitted) Kind() Kind     { return KindAdmitted }
func (Admitted) Class() Class   { return ClassExecution }
func (Spawned) Kind() Kind      { return KindSpawned }
func (Spawned) Class() Class    { return ClassExecution }
func (Yielded) Kind() Kind      { return KindYielded }
func (Yielded) Class() Class    { return ClassExecution }
func (Input) Kind() Kind        { return KindInput }
func (Input) Class() Class      { return ClassExecution }
func (Stopping) Kind() Kind     { return KindStopping }
func (Stopping) Class() Class   { return ClassExecution }
func (Settled) Kind() Kind      { return KindSettled }
func (Settled) Class() Class    { return ClassExecution }
func (Pruned) Kind() Kind       { return KindPruned }
func (Pruned) Class() Class     { return ClassExecution }
func (o Output) Kind() Kind     { return o.Stream }
func (Output) Class() Class     { return ClassOutput }
func (Posted) Kind() Kind       { return KindPosted }
func (Posted) Class() Class     { return ClassMailbox }
func (Acknowledged) Kind() Kind { return KindAcknowledged }
func (Acknowledged) Class() Class {
	return ClassMailbox
}

func (Unknown) sealed()      {}
func (Opened) sealed()       {}
func (Closed) sealed()       {}
func (Lost) sealed()         {}
func (Forked) sealed()       {}
func (Rewound) sealed()      {}
func (Requested) sealed()    {}
func (Refused) sealed()      {}
func (Queued) sealed()       {}
func (Admitted) sealed()     {}
func (Spawned) sealed()      {}
func (Yielded) sealed()      {}
func (Input) sealed()        {}
func (Stopping) sealed()     {}
func (Settled) sealed()      {}
func (Pruned) sealed()       {}
func (Output) sealed()       {}
func (Posted) sealed()       {}
func (Acknowledged) sealed() {}
