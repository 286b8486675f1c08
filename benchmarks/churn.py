"""Messages handled twice while members come and go: managed, not managed, and with Java's own rebalance.

All three consume from a broker of ours, with handlers of 10 ms and the same number of members that come
and go. Every message that was acknowledged must be handled.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from typing import Final

from benchmarks.load import JAVA, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer
from benchmarks.report import MOST, Floor, Report
from sparrowmq import ConsumerSettings, Message, aio

TOPIC: Final = "BenchChurn"
QUEUES: Final = 16
RATE: Final = 500
HANDLER_SECONDS: Final = 0.01
STAY_SECONDS: Final = 1.0
SECONDS_MAX: Final = 60.0
ROUNDS_MAX: Final = 3
MANAGED: Final = "managed"
PLAIN: Final = "not managed"
TITLE: Final = "handled twice under churn, {}"
FLOORS: Final = [Floor(TITLE.format(MANAGED), MOST, 0.0, absolute=True)]


def read_by(consumer: aio.PushConsumer, topic: str) -> int:
    """How many queues of a topic a consumer reads."""
    return sum(queue.topic == topic for queue in consumer.assignment)


async def _reads(consumer: aio.PushConsumer, count: int) -> None:
    """Wait until a consumer reads so many queues."""
    deadline = time.perf_counter() + SECONDS_MAX
    while read_by(consumer, TOPIC) < count:
        if time.perf_counter() > deadline:
            raise LoadError(f"{consumer} has fewer than {count} queues")
        await asyncio.sleep(0.05)


class _Churn:
    """One run in this process."""

    def __init__(self, peer: Peer, group: str, *, managed: bool) -> None:
        self._peer, self._group = peer, group
        self._settings = ConsumerSettings(managed=managed, consume_from="last")
        self._run = f"{group}-{time.time_ns()}-".encode()
        self._handled: Counter[bytes] = Counter()
        self._sent = 0
        self._ended = asyncio.Event()

    def _consumer(self) -> aio.PushConsumer:
        made = aio.PushConsumer(self._group, namesrv=self._peer.namesrv, settings=self._settings)

        async def handle(message: aio.ReceivedMessage) -> None:
            await asyncio.sleep(HANDLER_SECONDS)
            if message.body.startswith(self._run):
                self._handled[message.body] += 1

        made.subscribe(TOPIC, handler=handle)
        return made

    async def _produce(self) -> None:
        async with aio.Producer(f"{self._group}_p", namesrv=self._peer.namesrv) as producer:
            while not self._ended.is_set():
                await producer.send(Message(TOPIC, self._run + b"%d" % self._sent))
                self._sent += 1
                await asyncio.sleep(1 / RATE)

    async def twice(self, guests: int) -> float:
        """How many were handled more than once while one member stays and others come and go."""
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(self._consumer())
            await _reads(first, QUEUES)
            producing = asyncio.create_task(self._produce())
            for _ in range(guests):
                async with self._consumer() as guest:
                    await _reads(guest, QUEUES // 2)
                    await asyncio.sleep(STAY_SECONDS)
            self._ended.set()
            await producing
            deadline = time.perf_counter() + SECONDS_MAX
            while len(self._handled) < self._sent:
                if time.perf_counter() > deadline:
                    raise LoadError(
                        f"{self._group}: {len(self._handled)} of {self._sent} messages were handled"
                    )
                await asyncio.sleep(0.05)
        return float(sum(count - 1 for count in self._handled.values()))


def measure(options: Options, report: Report, peer: Peer) -> None:
    """All three, in turns."""
    guests = 3 if options.rounds > 1 else 1
    with Load(JAVA) as java:
        for number in range(min(options.rounds, ROUNDS_MAX)):
            for kind in (MANAGED, PLAIN):
                group = f"bench_churn_{kind.replace(' ', '_')}_{number}"
                churn = _Churn(peer, group, managed=kind == MANAGED)
                report.add(TITLE.format(kind), "messages", OURS, asyncio.run(churn.twice(guests)))
            measured = java.run(
                peer,
                "churn",
                topic=TOPIC,
                group=f"bench_churn_java_{number}",
                queues=QUEUES,
                guests=guests,
                rate=RATE,
                handler_ms=int(HANDLER_SECONDS * 1000),
                stay_ms=int(STAY_SECONDS * 1000),
                seconds_max=int(SECONDS_MAX),
            )
            if measured.result["handled"] != measured.result["acknowledged"]:
                raise LoadError(f"Java's members did not handle all: {measured.result}")
            report.add(TITLE.format("Java's rebalance"), "messages", OURS, float(measured.result["twice"]))
