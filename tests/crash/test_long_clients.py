"""Clients in great number, and for a long time: 1,000 consumers in one process, memory over many messages.

The long tier runs both in full; elsewhere they are as large as a few seconds allow.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.process import memory
from tests.conftest import LONG
from tests.crash.faults import Place, create
from tests.support import run, until

from sparrowmq import aio

pytestmark = pytest.mark.crash

CONSUMERS = 1000 if LONG else 40
MESSAGES = 10_000_000 if LONG else 30_000
BATCH = 100
SENDERS = 4
AHEAD = 20_000
"""How far the producer may run ahead of the consumer, in messages."""
SAMPLES = 10
GROWTH_MB = 24.0
"""What a process may take more at the end than after its first fifth: at 10 million, two bytes a message."""
MINUTE = 60.0


def test_many_consumers_live_in_one_process(tmp_path: Path) -> None:
    """Each is a group with connections of its own; none costs a thread, all get all, all leave."""
    got: Counter[str] = Counter()

    def consumer_of(namesrv: str, number: int) -> aio.PushConsumer:
        async def handle(message: aio.ReceivedMessage) -> None:
            got[f"{number} {message.body.decode()}"] += 1

        settings = aio.ConsumerSettings(
            namesrv=namesrv, consume_from="first", rebalance_interval_min=0.1, request_timeout=MINUTE
        )
        consumer = aio.PushConsumer(f"crowd-{number}", settings=settings)
        consumer.subscribe("Crowd", handler=handle)
        return consumer

    async def main(namesrv: str) -> None:
        await create(namesrv, "Crowd")
        threads = threading.active_count()
        consumers = [consumer_of(namesrv, number) for number in range(CONSUMERS)]
        for at in range(0, CONSUMERS, 50):
            await asyncio.gather(*(consumer.start() for consumer in consumers[at : at + 50]))
        patient = aio.ProducerSettings(namesrv=namesrv, send_timeout=MINUTE)
        async with aio.Producer("p", settings=patient) as producer:
            for number in range(3):
                await producer.send(aio.Message("Crowd", b"%d" % number))
        await until(lambda: len(got) == 3 * CONSUMERS, 5 * MINUTE)
        assert set(got.values()) == {1}
        assert threading.active_count() <= threads + 2
        assert {consumer.state for consumer in consumers} == {aio.State.RUNNING}
        for at in range(0, CONSUMERS, 50):
            await asyncio.gather(*(consumer.close() for consumer in consumers[at : at + 50]))
        async with aio.Admin(namesrv=namesrv) as admin:
            (progress,) = await admin.groups.progress("crowd-0", "Crowd")
            assert progress.consumer_offset == 3

    servers = Place(tmp_path / "place").servers()
    servers.start()
    try:
        run(main(servers.nameserver_address))
    finally:
        servers.kill()


def test_memory_stays_flat_over_many_messages(tmp_path: Path) -> None:
    """Neither the process of the clients nor that of the broker grows with what went through."""
    large = {"mappedFileSizeCommitLog": str(1 << 26), "mappedFileSizeConsumeQueue": str(6_000_000)}
    servers = Place(tmp_path / "place", settings=large).servers()
    seen, samples = [0], list[tuple[float, float]]()

    async def handle(messages: list[aio.ReceivedMessage]) -> None:
        seen[0] += len(messages)

    async def send(producer: aio.Producer, batches: list[None]) -> None:
        while batches:
            batches.pop()
            await producer.send_batch([aio.Message("Flood", b"0123456789abcdef") for _ in range(BATCH)])
            least = MESSAGES - (len(batches) + SENDERS) * BATCH - AHEAD
            await until(lambda least=least: seen[0] >= least, 5 * MINUTE)

    async def sample() -> None:
        for number in range(1, SAMPLES + 1):
            due = MESSAGES * number // SAMPLES
            await until(lambda due=due: seen[0] >= due, 60 * MINUTE)
            samples.append((memory(os.getpid()).anonymous, memory(servers.pid).anonymous))

    async def main(namesrv: str) -> None:
        await create(namesrv, "Flood", queues=4)
        settings = aio.ConsumerSettings(namesrv=namesrv, consume_from="first", batch=32)
        consumer = aio.PushConsumer("flood", settings=settings)
        consumer.subscribe("Flood", handler=handle)
        batches: list[None] = [None] * (MESSAGES // BATCH)
        async with consumer, aio.Producer("p", namesrv=namesrv) as producer:
            await asyncio.gather(sample(), *(send(producer, batches) for _ in range(SENDERS)))

    servers.start()
    try:
        run(main(servers.nameserver_address))
    finally:
        servers.kill()
        shutil.rmtree(tmp_path)  # gigabytes
    early = samples[SAMPLES // 5 - 1]
    for name, before, after in zip(("client", "broker"), early, samples[-1], strict=True):
        assert after - before <= GROWTH_MB, f"{name}: {before:.1f} to {after:.1f} MB; {samples}"
