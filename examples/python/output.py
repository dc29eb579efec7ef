"""Prints the recorded output of an execution, both streams in their one order.

    eval "$(yieldlog subscriber --env)"
    python output.py SESSION EXECUTION
"""

import asyncio
import json
import sys

import zstandard

from direct import connect, get_batch


async def segments(nc) -> list[str]:
    names, m = [], await nc.request("$JS.API.STREAM.NAMES", b"{}", timeout=5)
    names = json.loads(m.data).get("streams") or []
    return sorted(n for n in names if n.startswith("OUTPUT_"))


async def main(session: str, execution: str) -> None:
    nc = await connect()
    subject = f"yieldlog.{session}.output.{execution}.*"
    for segment in await segments(nc):
        seq, got = 1, True
        while got:
            got = False
            async for m in get_batch(nc, segment, seq=seq, batch=64, max_bytes=4 << 20, next_by_subj=subject):
                got, seq = True, int(m.headers["Nats-Sequence"]) + 1
                data = m.data
                if m.headers.get("content-encoding") == "zstd":
                    data = zstandard.ZstdDecompressor().decompress(data, max_output_size=int(m.headers["ce-length"]))
                sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    await nc.close()


if len(sys.argv) != 3:
    sys.exit("usage: python output.py SESSION EXECUTION")
asyncio.run(main(*sys.argv[1:]))
