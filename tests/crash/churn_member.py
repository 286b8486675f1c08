"""A process with a member of two groups, one ordered, for the real run of churn.

Arguments: name server, journal, JSON of settings, seconds a broker keeps a lock. SIGTERM closes it,
SIGUSR1 cuts its connections.

The journal gets a line for each event: `<monotonic ns> <S, D or F> <pid> <topic> <broker> <queue> <offset>
<number>`: a handler starts, is done, fails. Lines are appended whole, so that SIGKILL loses none.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time

from sparrowmq import aio
from sparrowmq.client.consumer import process_queue

CONCURRENT, ORDERED = "Churned", "ChurnedInOrder"
"""Topics, and the groups that read them."""
FAILS = 0.02
"""Share of deliveries whose handler fails."""


class Journal:
    """Appends events to a file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._pid = os.getpid()

    def note(self, event: str, message: aio.ReceivedMessage) -> None:
        """One line."""
        queue = message.queue
        where = f"{queue.topic} {queue.broker_name} {queue.queue_id} {message.queue_offset}"
        line = f"{time.monotonic_ns()} {event} {self._pid} {where} {message.body.decode()}\n"
        os.write(self._file, line.encode())


class Member:
    """Both consumers."""

    def __init__(self, namesrv: str, journal: str, settings: str) -> None:
        self._journal = Journal(journal)
        self._rng = random.Random()
        self.consumers = []
        for topic in (CONCURRENT, ORDERED):
            given = {**json.loads(settings), "ordered": topic == ORDERED, "consume_from": "first"}
            consumer = aio.PushConsumer(topic, settings=aio.ConsumerSettings(namesrv=namesrv, **given))
            consumer.subscribe(topic, handler=self.handle)
            self.consumers.append(consumer)

    async def handle(self, message: aio.ReceivedMessage) -> None:
        """Takes no time, or a little, and fails sometimes."""
        self._journal.note("S", message)
        await asyncio.sleep(self._rng.choice((0, 0, 0, 0.002, 0.01)))
        if self._rng.random() < FAILS:
            self._journal.note("F", message)
            raise aio.Retry(after=1.0 if message.queue.topic != ORDERED else 0.05)
        self._journal.note("D", message)

    def cut(self) -> None:
        """Break every connection without a word."""
        for consumer in self.consumers:
            assert consumer._member is not None
            for connection in list(consumer._member.instance.remoting._connections.values()):
                connection._transport.abort()

    async def run(self) -> None:
        """Until SIGTERM."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.cut)
        for consumer in self.consumers:
            await consumer.start()
        for consumer in self.consumers:
            consumer.close_on_signals(signal.SIGTERM)
        print("started", flush=True)
        for consumer in self.consumers:
            await consumer.wait()
            await consumer.close()


if __name__ == "__main__":
    process_queue.BROKER_LOCK_SECONDS = float(sys.argv[4])
    process_queue.LOCK_SECONDS_MAX = float(sys.argv[4]) / 2
    asyncio.run(Member(*sys.argv[1:4]).run())
