package mcp

// instructions is what initialize tells the model: under 2 KB. The first line is
// all that a model sees of the tools in a client that loads them on demand.
const instructions = `yieldlog runs shell commands, quick or long: a long one goes on in the background, and all output is kept in a durable ledger.

- exec answers at once when the command ends within yield_ms (default 5 s). A longer command keeps running: the answer says "backgrounded" and has its process_id.
- Then wait (blocks until the end, at most 55 s a call), read (output so far), write (its stdin), or stop it. Prefer one wait to many reads.
- The end of a backgrounded command is told once: by the wait or read that shows it, or in the mailbox. "unread" in an answer says that there is mail: call mailbox. monitor sends a command's lines there as they come.
- Do not use & or nohup: run the command itself, with a small yield_ms.
- Declare side_effects honestly; ["NONE"] is for commands that only look, and those run side by side. Others take turns until they end or yield.
- A non-zero exit is status "completed" with its exit_code. "outcome" says what the end means. failed_to_start means that nothing ran: the error says why and what to do instead.
- Output is never lost. start_seq, next_seq and latest_seq are byte positions, from 1, over stdout and stderr together. read with since_seq = next_seq continues exactly where an answer ended; "omitted" names a range that was cut out, and read with since_seq = omitted.from_seq returns it.
- A finished command stays readable until cleanup forgets it. ps lists your commands, newest first.
- stdin stays open: a command that reads it to the end needs close_stdin.
- If you act for a sub-agent, give its path as owner (default /root) in every call; owners do not see each other's commands.`
