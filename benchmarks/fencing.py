"""What fencing costs a pull: the same pulls of two brokers, one of which enforces a policy.

As in `handlers`, a connection of a real broker has a transport that only counts. Both brokers take turns
chunk by chunk, so that whatever else the machine does meets both; one value is the median over many such
pairs.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.frames import frame
from benchmarks.handlers import (
    CREATE_TOPIC,
    HAS_SUBSCRIPTION,
    PULL,
    PULL_MESSAGES,
    QUEUES,
    TOPIC,
    CountingTransport,
    Rig,
    send_chunk,
)
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS
from benchmarks.report import MOST, Floor, Report
from sparrowmq.broker.server import Broker
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.loops.event_loop import run
from sparrowmq.protocol.managed import GroupPolicy, QueueGrant
from sparrowmq.transport.connection import Connection

GROUP: Final = "bench"
PUT_POLICY: Final = 90201
GENERATION: Final = 7
PAIRS: Final = 400
"""Pairs of chunks that make one value."""
CHUNK: Final = 8
PERCENT_MAX: Final = 2.0
TITLE: Final = "what fencing adds to the CPU of a pull of 32"
FLOORS: Final = [Floor(TITLE, MOST, PERCENT_MAX, absolute=True)]


def pulls(generation: int | None) -> bytes:
    """Pulls of 32 messages each, as a member's when there is a generation."""
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueOffset": 0,
        "maxMsgNums": PULL_MESSAGES,
        "sysFlag": HAS_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        "maxMsgBytes": 262144,
    }
    if generation is not None:
        fields["generation"] = generation
    return b"".join(frame(PULL, {**fields, "queueId": i % QUEUES}, i) for i in range(CHUNK))


@asynccontextmanager
async def _rig(data: Path) -> AsyncIterator[Rig]:
    """A broker with the topic and messages in each of its queues."""
    broker = Broker(BrokerSettings(store_path_root_dir=data, listen_port=0))
    await broker.start()
    try:
        server = broker._server
        assert server is not None
        connection = Connection(server, 1, asyncio.get_running_loop())
        transport = CountingTransport()
        connection.connection_made(transport)
        rig = Rig(broker, connection, transport)
        create = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
        create |= {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        await rig.ask(frame(CREATE_TOPIC, create, 1))
        count = QUEUES * PULL_MESSAGES
        await rig.measure(send_chunk(count), count, 2)
        try:
            yield rig
        finally:
            connection.connection_lost(None)
    finally:
        await broker.close()


async def _used(rig: Rig, chunk: bytes) -> float:
    """Seconds of processor time for one chunk."""
    used, answers = await rig.serve(chunk, CHUNK)
    empty = sum(not body for _, body in answers)
    if empty:
        raise LoadError(f"{empty} of {CHUNK} pulls brought no messages")
    return used


async def _pairs(free: Rig, fenced: Rig, count: int) -> float:
    """Percent that the fenced pulls cost more: the median over `count` pairs."""
    plain, owned = pulls(None), pulls(GENERATION)
    found = []
    for number in range(count):
        if number % 2:
            mine, theirs = await _used(fenced, owned), await _used(free, plain)
        else:
            theirs, mine = await _used(free, plain), await _used(fenced, owned)
        found.append(mine / theirs)
        if number % 16 == 0:
            await asyncio.sleep(0)
    return (statistics.median(found) - 1) * 100


@asynccontextmanager
async def two_rigs(home: Path) -> AsyncIterator[tuple[Rig, Rig]]:
    """Two brokers of which the second enforces a policy for all queues."""
    async with AsyncExitStack() as stack:
        free = await stack.enter_async_context(_rig(home / "free"))
        fenced = await stack.enter_async_context(_rig(home / "fenced"))
        name = fenced.broker.settings.broker_name
        queues = [QueueGrant(TOPIC, name, number, GENERATION, "somebody") for number in range(QUEUES)]
        await fenced.ask(frame(PUT_POLICY, {}, 2, GroupPolicy(GROUP, 1, 1, queues=queues).encode()))
        yield free, fenced


async def _measure(options: Options, report: Report, home: Path) -> None:
    async with two_rigs(home) as (free, fenced):
        await _pairs(free, fenced, PAIRS)
        gc.collect()
        gc.disable()
        try:
            for _ in range(options.rounds * 4):
                report.add(TITLE, "%", OURS, await _pairs(free, fenced, PAIRS))
        finally:
            gc.enable()


def measure(options: Options, report: Report) -> None:
    """Many pairs of chunks."""
    with tempfile.TemporaryDirectory(prefix="bench-fencing-") as name:
        run(_measure(options, report, Path(name)))
