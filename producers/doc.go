// Package producers holds the only writers of the ledger: sessions and the
// executions that they own, from the request through policy, lane, spawn,
// output and yield to the one settlement.
//
// # Nouns
//
// A [Session] owns executions. An execution is one managed command: it is
// requested, waits for its lane, spawns a shell in a process group of its own,
// pumps that shell's output into the ledger, and is settled once. Its tree is
// the shell and everything that descends from it, wherever it went.
//
// # Goroutines
//
//	goroutine             one per                               owns                                       ends
//	execution.run, forgo  execution                             its lifecycle, from lane to settled        at settlement
//	pump.run              output pipe                           the reading end of the pipe                at end of file, or when cut off
//	stdin.deliver         execution with queued input           the writing end of standard input          when nothing is queued, or the process is gone
//	escalation timers     stop, timeout                         nothing: they signal the tree              at settlement
//	execution.watchStall  execution, if set                     nothing: it ends the command               when the pumps have ended
//	monitor.run           monitor                               the batches of its lines                   when the last is posted, or the session ends
//	mailbox.acknowledge   told record                           nothing: it appends                        when that is durable
//	estates.look          session                               nothing: it reads what is unread           when it has read the ledger once
//	unreadMail.follow     class of events, of who serves sinks  what is unread, from the first pull on     with ServeSinks
//	sinks.pull            request of a sink                     its answer                                 with the request
//	waits.begin           session that a pull waits for         nothing: it asks that session              with the pull
//	loan terms            loan                                  nothing: they give it back                 with the loan
//	closing               pipe, execution                       the end of a pipe, or a pidfd              at once
//	lookout.start         session, LookOut                      the claims of dead sessions, for a moment  at close
//	kin.reapOrphans       program                               orphans of executions that exited          with the last session
//
// [Session.Close] waits for those of its session, apart from closing.
//
// # Locks
//
// Session.mu, then execution.mu, then mailbox.mu, then monitor.mu or loans.mu;
// and after execution.mu also process.mu, then kin.mu. None is held while the
// ledger is appended to, and what runs on the ledger's goroutines takes
// mailbox.mu, monitor.mu and loans.mu only.
package producers
