"""Dividing queues: one member's computation in a huge group, and a real group of 64 members that settles.

The computation is our own code alone: it runs in the member, whichever broker stores the messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer, create_topic, running
from benchmarks.report import MOST, Floor, Report, alternate
from sparrowmq import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ConsistentHash,
    ConsumerSettings,
    MessageQueue,
    aio,
)
from sparrowmq.core.allocation import queue_key, utf16_key

MEMBERS: Final = 1000
QUEUES: Final = 10_000
STRATEGIES: Final[Sequence[AllocateStrategy]] = (Averagely(), AveragelyByCircle(), ConsistentHash())
TOPIC: Final = "BenchRebalance"
GROUP_MEMBERS: Final = 64
GROUP_QUEUES: Final = 128
SETTLE_SECONDS_MAX: Final = 120.0
SETTLED: Final = f"{GROUP_MEMBERS} members until each has its queues"
FLOORS: Final = [
    *(Floor(f"one pass, {one.name}: CPU", MOST, 1.0, absolute=True) for one in STRATEGIES),
    Floor(SETTLED, MOST, 1.0),
]


def _pass(strategy: AllocateStrategy, queues: list[MessageQueue], ids: list[str]) -> float:
    """Seconds of processor time of what one member does once it has queues and ids."""
    started = time.process_time()
    share = strategy.allocate("g", ids[7], sorted(queues, key=queue_key), sorted(ids, key=utf16_key))
    used = time.process_time() - started
    if not share:
        raise LoadError(f"{strategy.name} gives nothing")
    return used


async def _settle(peer: Peer, group: str) -> float:
    """Seconds from the start of the first of 64 members until each has its two queues."""
    settings = ConsumerSettings(namesrv=peer.namesrv)
    consumers = [aio.PushConsumer(group, settings=settings) for _ in range(GROUP_MEMBERS)]
    for consumer in consumers:
        consumer.subscribe(TOPIC, handler=lambda message: None)
    started = time.perf_counter()
    try:
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        while True:
            held = [[queue for queue in one.assignment if queue.topic == TOPIC] for one in consumers]
            if all(len(queues) == GROUP_QUEUES // GROUP_MEMBERS for queues in held):
                break
            if time.perf_counter() - started > SETTLE_SECONDS_MAX:
                raise LoadError(f"{group} on {peer.name}: not settled within {SETTLE_SECONDS_MAX:g} s")
            await asyncio.sleep(0.01)
        took = time.perf_counter() - started
        owned = {queue for queues in held for queue in queues}
        if len(owned) != GROUP_QUEUES:
            raise LoadError(f"{group} on {peer.name}: {len(owned)} of {GROUP_QUEUES} queues have an owner")
        return took
    finally:
        await asyncio.gather(*(consumer.close() for consumer in consumers))


def main(options: Options, report: Report) -> None:
    """The passes, then the group on each peer in turns."""
    queues = [MessageQueue("T", f"broker-{number % 20:02}", number // 20) for number in range(QUEUES)]
    ids = [f"10.0.{number // 250}.{number % 250}@{number}" for number in range(MEMBERS)]
    for strategy in STRATEGIES:
        for _ in range(options.rounds):
            report.add(f"one pass, {strategy.name}: CPU", "s", OURS, _pass(strategy, queues, ids))
    with running(options.peers) as peers:
        by_name = {peer.name: peer for peer in peers}
        for peer in peers:
            create_topic(peer, TOPIC, GROUP_QUEUES)

        def turn(name: str, rounds: list[int]) -> None:
            rounds.append(1)
            took = asyncio.run(_settle(by_name[name], f"bench_rebalance_{name}_{len(rounds)}"))
            report.add(SETTLED, "s", name, took)

        alternate(options.rounds, options.peers, partial(turn, rounds=[]))
