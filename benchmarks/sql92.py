"""Pulling a backlog with SQL92 filters against without: what evaluating them costs a broker.

Rates count the messages that were looked at, wanted or not. Every pull asks for as many messages as Apache
gives; each queue has one pull under way, all queues at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import Peer, create_topic, running, stored
from benchmarks.process import cpu_seconds
from benchmarks.report import LEAST, Floor, Report, alternate
from sparrowmq import Message, MessageQueue, PullStatus, Sql, aio

TOPIC: Final = "BenchSql92"
QUEUES: Final = 8
BATCH: Final = 100
BODY: Final = bytes(97 + i % 26 for i in range(100))
PULL_MESSAGES: Final = 32
STALLS_MAX: Final = 100
CASES: Final = (
    ("no filter", "*", 1.0),
    ("SQL92, half wanted", Sql("amount < 50"), 0.5),
    ("SQL92, one in a hundred wanted", Sql("amount BETWEEN 7 AND 7 AND region = 'eu'"), 0.01),
    ("SQL92, five properties", Sql("a = 'x' OR b > 5.5 OR c IN ('y') OR region <> 'eu' OR amount = 7"), 0.01),
)
FLOORS: Final = [Floor(f"{title}: looked at", LEAST, 100_000, absolute=True) for title, _, _ in CASES[1:]]


async def _fill(peer: Peer, count: int) -> None:
    async with aio.Producer("bench_sql92_p", namesrv=peer.namesrv) as producer:
        queues = sorted(await producer.queues(TOPIC))
        for first in range(0, count, BATCH):
            messages = [
                Message(TOPIC, BODY, tags="T", properties={"amount": str(number % 100), "region": "eu"})
                for number in range(first, first + BATCH)
            ]
            await producer.send_batch(messages, queue=queues[first // BATCH % QUEUES])


async def _read(consumer: aio.PullConsumer, queue: MessageQueue, end: int, expression: str | Sql) -> int:
    """Go through one queue; how many messages came."""
    offset = found = stalls = 0
    while offset < end:
        result = await consumer.fetch_raw(queue, offset, max_messages=PULL_MESSAGES, expression=expression)
        if result.status is PullStatus.FOUND:
            found += result.count
        stalls = stalls + 1 if result.next_offset == offset else 0
        if stalls > STALLS_MAX:
            raise LoadError(f"{queue} does not get beyond {offset}: {result.status}")
        offset = result.next_offset
    return found


async def _read_all(peer: Peer, ends: Sequence[int], expression: str | Sql) -> tuple[int, float]:
    """How many messages came of all queues, and in how many seconds."""
    async with aio.PullConsumer(namesrv=peer.namesrv) as consumer:
        queues = sorted(await consumer.queues(TOPIC))
        await asyncio.gather(*(consumer.max_offset(queue) for queue in queues))
        started = time.perf_counter()
        reads = (_read(consumer, queue, end, expression) for queue, end in zip(queues, ends, strict=True))
        found = sum(await asyncio.gather(*reads))
        return found, time.perf_counter() - started


def _measure(peer: Peer, ends: Sequence[int], number: int, report: Report) -> None:
    title, expression, share = CASES[number]
    count, used = sum(ends), cpu_seconds(peer.broker_pid)
    found, seconds = asyncio.run(_read_all(peer, ends, expression))
    used = cpu_seconds(peer.broker_pid) - used
    if found != count * share:
        raise LoadError(f"{title} on {peer.name}: {found} of {count} messages came")
    report.add(f"{title}: looked at", "msg/s", peer.name, count / seconds)
    report.add(f"{title}: broker CPU", "µs", peer.name, used / count * 1e6)


def main(options: Options, report: Report) -> None:
    """Fill a topic on each peer, then read it through each filter in turns."""
    with running(options.peers) as peers:
        by_name = {peer.name: peer for peer in peers}
        ends: dict[str, Sequence[int]] = {}
        for peer in peers:
            create_topic(peer, TOPIC, QUEUES)
            asyncio.run(_fill(peer, options.backlog))
            ends[peer.name] = stored(peer, TOPIC, options.backlog)

        def turn(name: str, number: int) -> None:
            _measure(by_name[name], ends[name], number, report)

        for number in range(len(CASES)):
            for peer in peers:
                _measure(peer, ends[peer.name], number, Report())
            alternate(options.rounds, options.peers, partial(turn, number=number))
