"""Prints the events of a ledger as JSON lines: first those that it has not
seen, then the live ones. The cursor is its own, in a file.

    eval "$(yieldlog subscriber --env)"
    python follow.py [--once] [--since TIME] 'yieldlog.*.execution.*.settled' settled.cursor
"""

import argparse
import asyncio
import json
import pathlib

import nats.errors


from direct import connect, get_batch


class Follower:
    def __init__(self, nc, subject: str, cursor_file: pathlib.Path, since: str | None):
        self.nc, self.subject, self.cursor_file, self.since = nc, subject, cursor_file, since
        self.cursor = int(cursor_file.read_text()) if cursor_file.exists() else 0

    def handle(self, m) -> None:
        """Prints an event, and then keeps the cursor: an event is never
        missed, and comes twice only after a crash in between."""
        seq, h = int(m.headers["Nats-Sequence"]), m.headers
        if seq <= self.cursor:
            return
        event = {"seq": seq, "type": h["ce-type"], "id": h["ce-id"], "subject": h["ce-subject"], "body": json.loads(m.data)}
        print(json.dumps(event, separators=(",", ":"), ensure_ascii=False), flush=True)
        self.cursor = seq
        new = self.cursor_file.with_suffix(".new")
        new.write_text(f"{seq}\n")
        new.replace(self.cursor_file)

    async def catch_up(self) -> None:
        """Reads what is after the cursor. A host that is starting does not
        answer yet."""
        while True:
            try:
                return await self.read_batches()
            except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                await asyncio.sleep(0.2)

    async def read_batches(self) -> None:
        got = True
        while got:
            got = False
            start = {"start_time": self.since} if self.since and not self.cursor else {"seq": self.cursor + 1}
            async for m in get_batch(self.nc, "LIFECYCLE", next_by_subj=self.subject, batch=256, **start):
                got = True
                self.handle(m)


async def main(args: argparse.Namespace) -> None:
    queue: asyncio.Queue = asyncio.Queue()

    async def reconnected() -> None:
        await queue.put(None)

    nc = await connect(reconnected_cb=reconnected)
    f = Follower(nc, args.subject, pathlib.Path(args.cursor_file), args.since)
    # Subscribe first: what is stored while the past is read waits in the queue.
    await nc.subscribe(args.subject, cb=queue.put)
    await nc.flush()
    await f.catch_up()
    while not args.once:
        m = await queue.get()
        if m is None:  # what was stored meanwhile was not told
            await f.catch_up()
        else:
            f.handle(m)
    await nc.close()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--once", action="store_true", help="end when there is nothing more")
    p.add_argument("--since", help="begin at this time (RFC 3339) when there is no cursor yet")
    p.add_argument("subject")
    p.add_argument("cursor_file")
    asyncio.run(main(p.parse_args()))
