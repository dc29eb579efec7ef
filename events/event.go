package events

import (
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
)

// Event is one immutable fact.
type Event struct {
	// Seq is the sequence in the lifecycle stream, assigned by the append. It
	// is 0 before that. For output events it is the sequence in their segment,
	// which orders nothing across segments: use [Output.Offset].
	Seq uint64
	// ID is a ULID, unique over all ledgers. It is also the deduplication key.
	ID string
	// Time is when the writer made the event, UTC. Clocks step: it orders nothing.
	Time time.Time
	// Session owns the event.
	Session string
	// Owner is who in the session asked: a canonical agent path such as /root.
	// It is empty for session events.
	Owner string
	// Subject is what the event is about: the session, the execution, or the
	// mailbox record.
	Subject string
	// Prev is the hash of the session's previous lifecycle event, in hex, and
	// empty for its first. See [Hash]. Output events have none.
	Prev string
	// Body says what happened. It is never nil.
	Body Body
}

// Kind is the event's kind.
func (e Event) Kind() Kind { return e.Body.Kind() }

// Class is the event's class.
func (e Event) Class() Class { return e.Body.Class() }

// Execution is the execution that the event is about, or "" for a session event.
func (e Event) Execution() string {
	switch b := e.Body.(type) {
	case Posted:
		return b.Execution
	case Acknowledged:
		return b.Execution
	default:
		if c := e.Class(); c == ClassExecution || c == ClassOutput {
			return e.Subject
		}
		return ""
	}
}

// RootOwner is the owner of a call that names none.
const RootOwner = "/root"

// maxOwner is the most bytes of an owner.
const maxOwner = 256

// CheckOwner is nil when an event can carry the owner: a header keeps neither
// control characters nor spaces around its value.
func CheckOwner(owner string) error {
	switch {
	case len(owner) > maxOwner:
		return fmt.Errorf("an owner is at most %d bytes, not %d", maxOwner, len(owner))
	case owner != strings.TrimSpace(owner) || strings.ContainsFunc(owner, unicode.IsControl):
		return fmt.Errorf("an owner has no control characters, and no spaces around it: %q", owner)
	}
	return nil
}

// OwnerPath is the one way to write the owner that a caller names, so that two
// are not two mailboxes: a path without a slash in front is below the root agent.
func OwnerPath(name string) (string, error) {
	owner := name
	switch {
	case name == RootOwner[1:] || strings.HasPrefix(name, RootOwner[1:]+"/"):
		owner = "/" + name
	case !strings.HasPrefix(name, "/"):
		owner = RootOwner + "/" + name
	}
	for _, s := range []string{name, owner} {
		if err := CheckOwner(s); err != nil {
			return "", err
		}
	}
	if clean := path.Clean(owner); name == "" || clean != owner {
		return "", fmt.Errorf("an owner is a canonical path: %q, not %q", clean, name)
	}
	return owner, nil
}

// Class groups kinds; it is a token of the subject.
type Class string

// The classes. Session, execution and mailbox events are the lifecycle.
const (
	ClassSession   Class = "session"
	ClassExecution Class = "execution"
	ClassOutput    Class = "output"
	ClassMailbox   Class = "mailbox"
)

// Kind names what happened; it is the last token of the subject.
type Kind string

// The kinds.
const (
	KindOpened  Kind = "opened"
	KindClosed  Kind = "closed"
	KindLost    Kind = "lost"
	KindForked  Kind = "forked"
	KindRewound Kind = "rewound"

	KindRequested Kind = "requested"
	KindRefused   Kind = "refused"
	KindQueued    Kind = "queued"
	KindAdmitted  Kind = "admitted"
	KindSpawned   Kind = "spawned"
	KindYielded   Kind = "yielded"
	KindInput     Kind = "input"
	KindStopping  Kind = "stopping"
	KindSettled   Kind = "settled"
	KindPruned    Kind = "pruned"

	KindStdout Kind = "stdout"
	KindStderr Kind = "stderr"
	KindTTY    Kind = "tty"

	KindPosted       Kind = "posted"
	KindAcknowledged Kind = "acknowledged"
)

// Unique reports whether a subject may hold at most one event of the kind. The
// append of such an event demands that its subject is still empty. A refusal
// is recorded as a settlement's twin: whichever comes first is the only one.
func (k Kind) Unique() bool {
	switch k {
	case KindSettled, KindRefused, KindAcknowledged, KindRequested, KindSpawned, KindYielded,
		KindPosted, KindOpened, KindClosed, KindLost:
		return true
	}
	return false
}
