"""How services query and change brokers, with a real one."""

from __future__ import annotations

import pytest
from tests.coordinator.cluster.asked import observed
from tests.support import about, run, until

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.client.admin.brokers import BrokerAdmin
from sparrowmq.client.admin.types import QueueProgress
from sparrowmq.coordinator.cluster.fleet import only_writable_at, unread, waiting
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.testing import LocalCluster


def place(topic: str, broker: int, consumer: int, number: int = 0) -> QueueProgress:
    return QueueProgress(MessageQueue(topic, "a", number), broker, consumer, 0)


@pytest.mark.proves("broker:16.1")
def test_delayed_messages_are_counted_by_broker_statistics() -> None:
    assert waiting({}) == 0
    told = {
        "scheduleMessageOffset_3": "2,5",
        "scheduleMessageOffset_4": "7,7",
        "scheduleMessageOffset_5": "9,x",
        "timerCongestNum": "4",
    }
    assert waiting(told) == 7


def test_topics_writable_at_only_one_broker_are_found() -> None:
    brokers = tuple(BrokerData("c", name, {0: f"{name}:1"}) for name in "ab")

    def route(**perms: int) -> TopicRoute:
        return TopicRoute(tuple(QueueData(name, 1, 1, perm) for name, perm in perms.items()), brokers)

    routes = {"both": route(a=6, b=6), "mine": route(a=6), "his": route(b=6), "left": route(a=6, b=4)}
    assert only_writable_at("a", {**routes, "closed": route(a=4)}) == ["left", "mine"]


def test_unread_messages_exclude_deleted_ones() -> None:
    progress = {
        "g": [place("t", 10, 4), place("t", 9, 0, 1), place("%DLQ%g", 5, 0)],
        "done": [place("t", 3, 3)],
        "CID_RMQ_SYS_TRANS": [place("t", 3, 0)],
    }
    ends = {MessageQueue("t", "a", 1): (7, 9), MessageQueue("%RETRY%h", "a", 0): (2, 3)}
    assert unread(progress, ["%RETRY%h", "%RETRY%i"], ends) == {"g": 8, "h": 1}


def test_broker_is_written_to_closed_drained_and_reopened() -> None:
    async def main() -> None:
        with LocalCluster(timer_wheel_enable=True) as local:
            cluster = observed(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=2)
                await admin.topics.create("R", queues=1, perm=4)
                async with aio.Producer("p", namesrv=local.namesrv) as producer:
                    for number in range(3):
                        await producer.send(
                            mq.Message("T", b"x"), queue=mq.MessageQueue("T", "broker-a", number % 2)
                        )
                    await producer.send(mq.Message("T", b"later", delay_level=18))
                    await producer.send(mq.Message("T", b"timed", delay=10_800.0))

                async def both() -> bool:
                    (broker,) = await cluster.brokers()
                    assert (broker.name, broker.id, broker.error) == ("broker-a", 0, "")
                    return broker.delayed == 2

                await until(both)
                await cluster.write("broker-a")
                assert await cluster.only_at("broker-a") == ["T"]
                assert not (await cluster.backlog("broker-a")).groups
                await admin.groups.create("g")
                await admin.groups.commit("g", mq.MessageQueue("T", "broker-a", 0), 1)
                await admin.topics.create("%RETRY%never", queues=1)
                async with aio.Producer("q", namesrv=local.namesrv) as producer:
                    retry = mq.MessageQueue("%RETRY%never", "broker-a", 0)
                    await producer.send(mq.Message("%RETRY%never", b"again"), queue=retry)
                await cluster.set_permission("broker-a", 4)
                assert await cluster.permission("broker-a") == 4

                async def perms() -> list[int]:
                    routes = [await admin.topics.route(topic) for topic in ("T", "R")]
                    return [route.queues[0].perm for route in routes]

                await until(lambda: _is(perms, [4, 4]))
                assert await cluster.only_at("broker-a") == []
                assert dict((await cluster.backlog("broker-a")).groups) == {"g": 2, "never": 1}
                await cluster.set_permission("broker-a", 6)
                await until(lambda: _is(perms, [6, 4]))
                with pytest.raises(SparrowError, check=about(what="broker", value="x")):
                    await cluster.permission("x")
            await cluster.close()

    run(main())


async def _is(found: object, wanted: list[int]) -> bool:
    assert callable(found)
    value = await found()
    return bool(value == wanted)


def test_broker_without_dynamic_settings_is_closed_at_the_name_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> None:
        raise BrokerError(1, "no")

    async def main() -> None:
        with LocalCluster() as local:
            cluster = observed(local.namesrv)
            async with aio.Admin(namesrv=local.namesrv) as admin:
                await admin.topics.create("T", queues=1)
                monkeypatch.setattr(BrokerAdmin, "set_settings", refuse)
                for permission in (4, 6):
                    await cluster.set_permission("broker-a", permission)
                    assert (await admin.topics.route("T")).queues[0].perm == permission
            await cluster.close()

    run(main())
