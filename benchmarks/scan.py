"""Reads a topic from its first message on, again and again, until it is killed: `python -m benchmarks.scan
NAMESRV TOPIC`. Prints the number of bytes read so far, a few times a second.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from sparrowmq import aio

TELL_SECONDS: Final = 0.25
PULL_MESSAGES: Final = 32
"""What consumers pull at once by default, and RocketMQ's brokers give at most."""


async def main(namesrv: str, topic: str) -> None:
    """One pull of each queue at a time."""
    read, told = 0, time.monotonic()
    async with aio.PullConsumer("benchmark_scan", namesrv=namesrv) as consumer:

        async def scan(queue: aio.MessageQueue) -> None:
            nonlocal read, told
            offset = 0
            while True:  # until it is killed
                batch = await consumer.fetch_raw(queue, offset, max_messages=PULL_MESSAGES)
                read += len(batch.buffer)
                offset = batch.next_offset if batch.count else 0
                if time.monotonic() - told >= TELL_SECONDS:
                    told = time.monotonic()
                    print(read, flush=True)

        async with aio.Admin(namesrv=namesrv) as admin:
            queues = [status.queue for status in await admin.topics.status(topic)]
        await asyncio.gather(*map(scan, queues))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
