// Package ledger keeps events in an embedded NATS JetStream: it hosts or joins
// the server of one state directory, appends, reads and follows. It is the only
// package that knows NATS.
//
// # Streams
//
// Session, execution and mailbox events live in one stream, LIFECYCLE, whose
// sequence is their order. Output lives in segments, OUTPUT_000001 and on, that
// are sealed when they are full and deleted whole when they are pruned; within
// an execution the byte offset is the order.
//
// Events are published to ingest subjects, one a stream, and are stored under
// their own subjects (a subject transform). What was stored is published again
// under its own subject, so a subscriber to yieldlog.> sees exactly what the
// ledger holds, with its sequence, and nothing that it refused. A sealed
// segment refuses whatever comes after the seal, so output cannot change its
// order when it moves to the next segment.
//
// A sealed segment whose executions have all settled is packed: its twin
// PACKED_000001 holds the same bytes at the same offsets in full messages, and
// takes the place of OUTPUT_000001. The marker names the one that counts. The
// raw one is deleted after the twin was read back, compared, and made durable;
// a reader that loses it goes on in the twin at its offset.
//
// # What may be relied on
//
//   - An acknowledged append is durable, and is not stored twice.
//   - Appends of one process to one session keep their order. Nothing is said
//     about the order of lifecycle events beside output events: those are
//     joined by byte offset.
//   - A reader sees events in sequence order without gaps; after a reconnect it
//     goes on where it was.
//
// # Host or join
//
// Whoever holds the lock of the state directory hosts: it opens the store with
// care, runs the server on loopback and writes where into a file for the user
// only. Everyone else joins. A process has one connection, whose dialer finds
// the host or becomes it, so when a host dies a survivor opens the same store on
// the same port and all go on. The host's sync setting counts for all.
//
// Who only reads a ledger that nobody hosts need not host it: the blocks hold
// everything. It takes the lock for a moment, shared with other readers, to note
// where each block ends, and reads within those ends, checksum by checksum. It
// changes nothing, and needs no right to. Whatever is not as expected makes it
// open the ledger as a writer would, and so does what only a server can do: to
// follow, to ask.
//
// With care means: JetStream deletes a stream that it cannot recover, and
// destroys what follows a damaged byte. So the blocks are inspected first, and
// scanned where JetStream is going to; copies are set aside; and afterwards every
// stream that the marker names must be there with nothing lost. Otherwise the
// open fails with [ErrDamaged], names the block, and leaves everything as it was.
// [Repair] then drops nothing but the damaged records. A damaged length that an
// open did not look for is blanked when the server meets it, see mend.go.
//
// # Sinks
//
// A program outside may take the mail of one owner. It is in an account of its
// own, which the processes that serve it log in to as well: there they answer as
// a JetStream pull consumer would, see [Ledger.ServeSinks]. The ledger's account
// exports nothing into it.
//
// # Goroutines
//
//	who                     owns
//	outbox ack handlers (2) the front of the lifecycle and of the output queue
//	encoders (up to 2)      making the message of one large chunk each
//	outbox watch            noticing that appends stall; resending
//	keeper                  while hosting: rolling, sealing, swapping and deleting
//	                        segments, new credentials, restarting a server that
//	                        does not answer, giving back the blocks of a flood
//	auto prune              while hosting: keeping the size limit
//	auto pack               while hosting: writing the packed twins of segments
//	removal (host)          the copies of a careful open, once
//	serving sinks           a connection for each sink, until the host changes
//	pulls                   one request of a sink each
//	server (host)           everything below the socket
//
// Everything else runs on the callers' goroutines.
package ledger
