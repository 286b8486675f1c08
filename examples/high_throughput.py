"""Many messages a second from one asyncio program: collected into batches, with a bound on sends in flight.

python examples/high_throughput.py 127.0.0.1:9876
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import sparrowmq as mq
from sparrowmq import aio

TOPIC = "ExampleClicks"
COUNT = 20_000


def clicks() -> Iterator[mq.Message]:
    """Give events of a web site; the clicks of one user keep their order."""
    for number in range(COUNT):
        yield mq.Message(TOPIC, b'{"page": %d}' % number, key=f"user-{number % 100}")


async def run(namesrv: str) -> None:
    """Send all from 500 tasks; each waits for the response to its message before the next one."""
    async with aio.Admin(namesrv=namesrv) as admin:
        await admin.topics.create(TOPIC, queues=4)
    settings = mq.ProducerSettings(namesrv=namesrv, linger=0.005, in_flight_max=1024, send_timeout=30.0)
    source, sent = clicks(), 0

    async def work(producer: aio.Producer) -> None:
        nonlocal sent
        for message in source:
            await producer.send(message)
            sent += 1

    async with aio.Producer("example-web", settings=settings) as producer:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(500):
                tasks.create_task(work(producer))
        stored = sum([await producer.max_offset(queue) for queue in await producer.queues(TOPIC)])
    print(f"{sent} answered, {stored} stored")


def main(namesrv: str) -> None:
    """Run it."""
    asyncio.run(run(namesrv))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
