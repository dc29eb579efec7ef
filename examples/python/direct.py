"""Batched direct get, which nats-py does not have yet."""

import json
import os

import nats
import nats.errors


async def connect(**options):
    return await nats.connect(
        os.environ["NATS_URL"],
        user=os.environ["NATS_USER"],
        password=os.environ["NATS_PASSWORD"],
        max_reconnect_attempts=-1,
        **options,
    )


async def get_batch(nc, stream: str, **request):
    """The messages of one batch. request says where it begins (seq or
    start_time), which subjects (next_by_subj), and how many (batch)."""
    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox)
    try:
        await nc.publish(f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), reply=inbox)
        while True:
            m = await sub.next_msg(timeout=10)
            status = m.headers.get("Status")
            if status in ("204", "404"):  # the end of the batch, nothing there
                return
            if status == "503":  # the host is starting
                raise nats.errors.NoRespondersError
            yield m
    finally:
        await sub.unsubscribe()
