// Package events is yieldlog's vocabulary: the immutable facts of the ledger,
// their subjects and their bytes. It does no I/O and knows no NATS.
//
// # Nouns
//
// An [Event] is one fact about a session, an execution, its output, or a
// mailbox record. Its [Body] says which: bodies are a closed set, one Go type
// for each [Kind]. A kind that this program does not know decodes to [Unknown]
// and is carried, never dropped.
//
// # Bytes
//
// Events are CloudEvents 1.0 in binary mode: attributes are message headers
// ("ce-id", "ce-type", ...), the body is the payload. Bodies are JSON; output
// bodies are the raw bytes. See [Encode].
//
// # Subjects
//
// yieldlog.<session>.<class>.<id>.<kind>, where class is session, execution,
// output or mailbox, and id is the session, the execution, or the mailbox
// record. See [Subject].
//
// # Order
//
// Readers may rely on these rules; each has a test.
//
//	#  rule
//	1  requested is on disk before the command starts
//	2  spawned precedes every output event of its execution, and every output
//	   event precedes settled, except bytes that settled itself declares cut off
//	3  an execution has exactly one settled or refused; a mailbox record has
//	   exactly one acknowledged
//	4  output offsets have no gaps and no overlaps; settled carries the counts
//	   and a SHA-256 of each stream
//	5  an unknown kind is carried, and stops no fold
//	6  secret values, and inputs, are replaced before they reach the ledger
//	7  a lifecycle event carries the hash of its session's previous one
//
// Lifecycle order is the stream sequence ([Event.Seq]) and output order is the
// byte offset ([Output.Offset]); never the clock. The two streams are joined by
// offset: spawned, yielded, input, stopping and settled carry the output offset
// at which they happened. Do not assume that an output event and a lifecycle
// event can be ordered by time.
//
// Behind settled or refused an execution has only pruned, and inputs that failed:
// that somebody wrote too late stays visible.
package events
