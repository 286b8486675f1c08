"""Sends at a steady rate until it is killed: `python -m benchmarks.feed NAMESRV TOPIC RATE SIZE`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from sparrowmq import aio

TICK_SECONDS: Final = 0.005


async def main(namesrv: str, topic: str, rate: float, size: int) -> None:
    """Every message has its moment; late ones are made up for at once."""
    async with aio.Producer("benchmark_feed", namesrv=namesrv) as producer:
        start, sent, body = time.perf_counter(), 0, b"x" * size
        while True:  # until it is killed
            due = int((time.perf_counter() - start) * rate)
            await asyncio.gather(*(producer.send(aio.Message(topic, body)) for _ in range(due - sent)))
            sent = due
            await asyncio.sleep(TICK_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
