"""kill -9 of a broker under an idempotent producer: every message is there once, in order, afterwards."""

from __future__ import annotations

import asyncio
import itertools
import random
from pathlib import Path

import pytest
from tests.crash.broker.test_broker_kill import QUEUES, TOPIC, read_all, servers
from tests.crash.clocks import CLOCKS
from tests.support import free_port, run

from sparrowmq import aio
from sparrowmq.runtime.child import ChildServers

pytestmark = pytest.mark.crash

KILLS = 3
SENDERS = 8


async def _send(namesrv: str, stop: asyncio.Event) -> list[bytes]:
    """Bodies that were acknowledged; each sender waits for its answer before the next."""
    sent: list[bytes] = []
    settings = aio.ProducerSettings(namesrv=namesrv, idempotent=True, send_timeout=120.0, try_timeout=5.0)

    async def sender(producer: aio.Producer, name: int) -> None:
        number = 0
        while not stop.is_set():
            batch = [aio.Message(TOPIC, b"%d-%d" % (name, number + part)) for part in range(5)]
            queue = aio.MessageQueue(TOPIC, "broker-a", name % QUEUES)
            result = await producer.send_batch(batch, queue=queue)
            assert result.idempotent
            sent.extend(message.body for message in batch)
            number += 5

    async with aio.Producer("once", settings=settings) as producer, asyncio.TaskGroup() as tasks:
        for name in range(SENDERS):
            tasks.create_task(sender(producer, name))
    return sent


async def _flow(root: Path, flush: str) -> None:
    rng = random.Random(20_261_121)
    ports = {"broker": str(free_port()), "nameserver": str(free_port())}

    lives = itertools.cycle((0, CLOCKS.index("back")))  # a year ahead no producer would be remembered

    def start() -> ChildServers:
        child = servers(root, flush, life=next(lives), listenPort=ports["broker"])
        child.nameserver = {"listenPort": ports["nameserver"]}
        child.start()
        return child

    child = await asyncio.to_thread(start)
    try:
        async with aio.Admin(child.nameserver_address) as admin:
            await admin.topics.create(TOPIC, queues=QUEUES)
        stop = asyncio.Event()
        sending = asyncio.create_task(_send(child.nameserver_address, stop))
        for _ in range(KILLS):
            wanted = rng.randrange(20, 200)
            async with aio.PullConsumer("watch", namesrv=child.nameserver_address) as consumer:
                queues = await consumer.queues(TOPIC)
                first = sum([await consumer.max_offset(queue) for queue in queues])
                while sum([await consumer.max_offset(queue) for queue in queues]) < first + wanted:
                    assert not sending.done(), sending
            child.kill()
            child = await asyncio.to_thread(start)
        stop.set()
        sent = await sending
        stored = [body for bodies in (await read_all(child)).values() for body in bodies]
        assert sorted(stored) == sorted(sent) and len(sent) > KILLS * 20
        for name in range(SENDERS):
            own = [int(body.partition(b"-")[2]) for body in stored if body.startswith(b"%d-" % name)]
            assert own == sorted(own)
    finally:
        child.kill()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_every_message_is_there_once_whoever_was_killed(tmp_path: Path, flush: str) -> None:
    run(_flow(tmp_path, flush))
