"""Takes the mail of an owner: prints each record as a JSON line, and then
acknowledges it, so that nobody else is told.

    eval "$(yieldlog sink /root --env)"
    python sink.py [--once]
"""

import argparse
import asyncio
import json

import nats.errors

from direct import connect


async def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--once", action="store_true", help="end when there is nothing more")
    once = args.parse_args().once
    nc = await connect()
    mail = await nc.jetstream().pull_subscribe_bind(consumer="sink", stream="MAILBOX")
    while True:
        try:
            records = await mail.fetch(10, timeout=2 if once else 30)
        except nats.errors.TimeoutError:
            if once:
                break
            continue
        except nats.errors.Error:  # nobody serves it this moment
            await asyncio.sleep(0.1)
            continue
        for m in records:
            h = m.headers
            print(json.dumps({
                "seq": int(h["Nats-Sequence"]), "owner": h["ce-owner"], "redelivered": "ce-redelivered" in h, "body": json.loads(m.data),
            }), flush=True)
            try:
                await m.ack_sync(timeout=10)
            except nats.errors.Error:
                pass  # it comes again, and says so
    await nc.close()


asyncio.run(main())
