"""kill -9 of a whole broker while clients send: what was acknowledged is there once, in order, afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import pytest
from tests.crash.clocks import CLOCKS, HOUR_MS, ClockedServers, clock_of
from tests.support import run

from sparrowmq import aio
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.record import decode_records
from sparrowmq.runtime.child import ChildServers

pytestmark = pytest.mark.crash

TOPIC = "Ledger"
QUEUES = 4
SENDERS = 32
ROUNDS = 4


def servers(root: Path, flush: str, *, life: int = 0, **settings: str) -> ChildServers:
    """Servers over small files, so that the log rolls while it is killed; each life on another clock."""
    return ClockedServers(
        broker={
            "storePathRootDir": str(root),
            "listenPort": "0",
            "mappedFileSizeCommitLog": str(256 * 1024),
            "mappedFileSizeConsumeQueue": "2000",
            "flushDiskType": flush,
            **settings,
        },
        nameserver={"listenPort": "0"},
        clock=clock_of(life),
    )


async def send_until_killed(child: ChildServers, kill_after: int, first: int) -> dict[int, list[bytes]]:
    """Acknowledged bodies by queue, in the order of their offsets; the broker dies after `kill_after`."""
    acknowledged: dict[int, list[tuple[int, bytes]]] = {n: [] for n in range(QUEUES)}
    numbers = iter(range(first, first + 1_000_000))
    count = 0

    async def sender(producer: aio.Producer) -> None:
        nonlocal count
        while child.running:
            body = b"%08d" % next(numbers) + b"x" * 200
            result = await producer.send(aio.Message(TOPIC, body), timeout=2.0)
            acknowledged[result.queue.queue_id].append((result.queue_offset, body))
            count += 1
            if count == kill_after:
                child.kill()

    async with aio.Producer("killers", namesrv=child.nameserver_address, retries=0) as producer:
        tasks = [asyncio.create_task(sender(producer)) for _ in range(SENDERS)]
        for task in tasks:
            with contextlib.suppress(SparrowError):
                await task
    return {queue: [body for _, body in sorted(pairs)] for queue, pairs in acknowledged.items()}


async def read_all(child: ChildServers) -> dict[int, list[bytes]]:
    stored: dict[int, list[bytes]] = {}
    async with aio.PullConsumer("readers", namesrv=child.nameserver_address) as consumer:
        for queue in await consumer.queues(TOPIC):
            offset, end = 0, await consumer.max_offset(queue)
            bodies: list[bytes] = []
            while offset < end:
                batch = await consumer.fetch_raw(queue, offset)
                records = decode_records(batch.buffer)
                assert [r.queue_offset for r in records] == list(range(offset, batch.next_offset))
                bodies += [r.body for r in records]
                offset = batch.next_offset
            stored[queue.queue_id] = bodies
    return stored


def is_subsequence(part: list[bytes], whole: list[bytes]) -> bool:
    rest = iter(whole)
    return all(body in rest for body in part)


@pytest.mark.parametrize(("flush", "most"), [("ASYNC_FLUSH", 3000), ("SYNC_FLUSH", 300)])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, flush: str, most: int) -> None:
    seed = 20_240_301
    rng = random.Random(seed)
    known: dict[int, list[bytes]] = {n: [] for n in range(QUEUES)}
    child = servers(tmp_path, flush)
    child.start()
    run(_create(child))
    try:
        for number in range(ROUNDS):
            kill_after = rng.randrange(most // 10, most)
            sent = run(send_until_killed(child, kill_after, number * 1_000_000))
            assert sum(map(len, sent.values())) >= kill_after
            for queue, bodies in sent.items():
                known[queue] += bodies
            child = servers(tmp_path, flush, life=number + 1)
            child.start()
            stored = run(read_all(child))
            everything = [body for bodies in stored.values() for body in bodies]
            assert len(everything) == len(set(everything)), f"doubled, seed {seed} round {number}"
            for queue, bodies in known.items():
                assert is_subsequence(bodies, stored[queue]), f"lost, seed {seed} round {number}"
    finally:
        child.kill()


@pytest.mark.parametrize("clock", CLOCKS)
def test_servers_in_a_child_have_the_clock_they_were_given(tmp_path: Path, clock: str) -> None:
    async def times(child: ChildServers) -> list[int]:
        await _create(child)
        async with aio.Producer("p", namesrv=child.nameserver_address) as producer:
            for _ in range(3):
                sent = await producer.send(aio.Message(TOPIC, b"x"), timeout=5.0)
        async with aio.PullConsumer("readers", namesrv=child.nameserver_address) as consumer:
            return [m.store_timestamp for m in (await consumer.pull(sent.queue, 0)).messages]

    before = SystemClock().now_ms()
    with servers(tmp_path, "ASYNC_FLUSH", life=CLOCKS.index(clock)) as child:
        found = run(times(child))
    ahead = min(found) - before
    assert (
        found
        and {
            "right": 0 <= ahead < HOUR_MS // 2,
            "ahead": ahead > 364 * 24 * HOUR_MS,
            "back": -HOUR_MS <= ahead < -HOUR_MS // 2,
            "stopped": len(set(found)) == 1,
        }[clock]
    )


async def _create(child: ChildServers) -> None:
    async with aio.Admin(namesrv=child.nameserver_address) as admin:
        await admin.topics.create(TOPIC, queues=QUEUES)
