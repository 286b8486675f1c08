"""A rolling restart of two brokers under load: nothing is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support import run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message
from sparrowmq.core.results import SendStatus
from sparrowmq.core.settings.servers import BrokerSettings, Layer, NameServerSettings, load
from sparrowmq.runtime.broker_plan import plan_brokers
from sparrowmq.runtime.brokers import BrokerProcess
from sparrowmq.runtime.servers import LocalServers

pytestmark = pytest.mark.crash
SMALL = {"mappedFileSizeCommitLog": "4194304", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
TOPIC, GROUP = "Orders", "g"
SENDERS = 8
QUICK: dict[str, Any] = {"route_interval": 0.2}
QUICK_CONSUMER: dict[str, Any] = {"persist_interval": 0.2, "rebalance_interval": 0.5}
"""So that clients notice in tenths of a second what else takes half a minute."""
STEADY_MESSAGES = 100
"""Messages that are acknowledged between two steps, so that each step comes under load."""


class Load:
    """Producers that send numbered messages, and a group that consumes them."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.acknowledged: list[int] = []
        self.consumed: Counter[int] = Counter()
        self.errors: list[str] = []
        self._numbers = iter(range(10**9))
        self._stopping = False

    async def send(self) -> None:
        """One after the other until told to stop."""
        settings = mq.ProducerSettings(namesrv=self.namesrv, **QUICK)
        async with aio.Producer("p", settings=settings) as producer:
            while not self._stopping:
                number = next(self._numbers)
                try:
                    result = await producer.send(Message(TOPIC, b"%d" % number))
                except Exception as error:
                    self.errors.append(f"{number}: {error}")
                    continue
                assert result.status is SendStatus.SEND_OK
                self.acknowledged.append(number)

    async def handle(self, message: aio.DeliveredMessage) -> None:
        """Note what was consumed."""
        self.consumed[int(message.body)] += 1

    async def steady(self) -> None:
        """Wait until the load goes on."""
        wanted = len(self.acknowledged) + STEADY_MESSAGES
        await until(lambda: len(self.acknowledged) >= wanted)

    def stop(self) -> None:
        self._stopping = True


async def stored(admin: aio.Admin, broker: str) -> dict[mq.MessageQueue, int]:
    """The next offsets of a broker's queues."""
    rows = await admin.topics.status(TOPIC)
    return {row.queue: row.max_offset for row in rows if row.queue.broker_name == broker}


async def is_drained(admin: aio.Admin, broker: str, work: Load) -> bool:
    """Whether nobody sends to a broker any more, and its group has committed everything."""
    ends = await stored(admin, broker)
    committed = {queue: await admin.groups.committed(GROUP, queue) for queue in ends}
    await work.steady()
    return ends == committed and ends == await stored(admin, broker)


async def rolled(namesrv: str, brokers: list[BrokerProcess], work: Load, *, drain: bool) -> None:
    """Restart the brokers in turn; with `drain`, each is read-only first until its group has consumed all."""
    async with aio.Admin(namesrv=namesrv) as admin:
        for broker in brokers:
            name = broker.name
            if drain:
                await admin.name_servers.wipe_write_perm(name)
                await until(partial(is_drained, admin, name, work))
            ends = await stored(admin, name)
            assert await broker.stop(), "it stopped cleanly"
            await work.steady()
            await broker.start()
            await until(partial(has_more, admin, name, sum(ends.values()) + SENDERS))
            await work.steady()


async def has_more(admin: aio.Admin, broker: str, count: int) -> bool:
    """Whether clients send to a broker again: it has more messages than before."""
    with suppress(SparrowError):
        return sum((await stored(admin, broker)).values()) > count
    return False


async def under_load(root: Path, *, drain: bool) -> tuple[Load, int]:
    """A rolling restart; the load, and the number of messages that are stored."""
    names = LocalServers(NameServerSettings(listen_port=0))
    namesrv = (await names.start()).nameserver
    assert namesrv is not None
    given = {**SMALL, "listenPort": "0", "storePathRootDir": str(root / "store")}
    settings, _ = load(BrokerSettings, [Layer("test", given)])
    brokers = [BrokerProcess(one, namesrv) for one in plan_brokers(given, settings, 2, 1)]
    work = Load(namesrv)
    try:
        await asyncio.gather(*(one.start() for one in brokers))
        async with aio.Admin(namesrv=namesrv) as admin:
            await admin.topics.create(TOPIC, queues=2)
            quick = mq.ConsumerSettings(namesrv=namesrv, consume_from="first", **QUICK, **QUICK_CONSUMER)
            async with aio.PushConsumer(GROUP, settings=quick) as consumer:
                consumer.subscribe(TOPIC, "*", work.handle)
                async with asyncio.TaskGroup() as senders:
                    for _ in range(SENDERS):
                        senders.create_task(work.send())
                    await work.steady()
                    await rolled(namesrv, brokers, work, drain=drain)
                    work.stop()
                await until(lambda: work.consumed.keys() >= set(work.acknowledged))
            ends = await admin.topics.status(TOPIC)
        return work, sum(row.max_offset for row in ends)
    finally:
        await asyncio.gather(*(one.stop() for one in brokers))
        await names.close()


@pytest.mark.parametrize("drain", [False, True])
def test_a_rolling_restart_loses_nothing_and_stores_nothing_twice(tmp_path: Path, drain: bool) -> None:
    """A clean stop answers what it stored; a broker that is drained first also spares groups repetitions."""
    work, count = run(under_load(tmp_path, drain=drain))
    assert work.errors == []
    assert count == len(work.acknowledged) == len(set(work.acknowledged))
    if drain:
        assert set(work.consumed.values()) == {1}
