"""kill -9 of a broker with delayed and timed messages pending: none is lost, none comes early."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.runtime.child import ChildServers

pytestmark = pytest.mark.crash

TOPIC = "Later"
QUEUES = 2
ROUNDS = 4
PER_ROUND = 60
SEED = 20_240_611


def servers(root: Path) -> ChildServers:
    """Servers over small files, so that log and timer log roll while they are killed."""
    return ChildServers(
        broker={
            "storePathRootDir": str(root),
            "listenPort": "0",
            "mappedFileSizeCommitLog": str(64 * 1024),
            "mappedFileSizeConsumeQueue": "2000",
            "mappedFileSizeTimerLog": "4096",
            "messageDelayLevel": "1s 2s 3s",
        },
        nameserver={"listenPort": "0"},
    )


async def send(child: ChildServers, rng: random.Random, first: int) -> dict[bytes, int]:
    """Send messages that wait up to three seconds; the earliest delivery of each, epoch ms."""
    due: dict[bytes, int] = {}
    async with aio.Producer("senders", namesrv=child.nameserver_address, retries=0) as producer:
        for number in range(first, first + PER_ROUND):
            body, now = b"%06d" % number, int(time.time() * 1000)
            wait = rng.randrange(200, 3000)
            if number % 2:
                level = rng.randrange(1, 4)
                message = aio.Message(TOPIC, body, delay_level=level)
                due[body] = now + level * 1000
            else:
                message = aio.Message(TOPIC, body, deliver_at=(now + wait) / 1000)
                due[body] = now + wait
            await producer.send(message, timeout=5.0)
            if number == first + PER_ROUND - 1:
                child.kill()
    return due


async def arrivals(child: ChildServers, bodies: set[bytes]) -> list[ReceivedMessage]:
    """Every message of the topic, once all `bodies` are there."""
    found: list[ReceivedMessage] = []

    async def all_there() -> bool:
        found.clear()
        async with aio.PullConsumer("readers", namesrv=child.nameserver_address) as consumer:
            for queue in await consumer.queues(TOPIC):
                offset, end = 0, await consumer.max_offset(queue)
                while offset < end:
                    batch = await consumer.pull(queue, offset)
                    found.extend(batch.messages)
                    offset = batch.next_offset
        return {message.body for message in found} >= bodies

    await until(all_there)
    return found


@pytest.mark.proves("broker:8.1", "broker:8.2", "client:D-104")
def test_messages_that_wait_survive_kill_9(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    due: dict[bytes, int] = {}
    child = servers(tmp_path)
    child.start()
    run(_create(child))
    try:
        for number in range(ROUNDS):
            due |= run(send(child, rng, number * PER_ROUND))
            child = servers(tmp_path)
            child.start()
        found = run(arrivals(child, set(due)))
    finally:
        child.kill()
    early = [message.body for message in found if message.store_timestamp < due[message.body]]
    assert not early, f"early, seed {SEED}"
    assert len(due) == ROUNDS * PER_ROUND and {message.body for message in found} == set(due)


async def _create(child: ChildServers) -> None:
    async with aio.Admin(namesrv=child.nameserver_address) as admin:
        await admin.topics.create(TOPIC, queues=QUEUES)
