from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from tests.coordinator.cluster import asked
from tests.coordinator.cluster.explored import MadeUpParts
from tests.coordinator.services.flowing import at, broker, queue

from sparrowmq import Admin, Message, Producer, aio
from sparrowmq.client.admin.types import BrokerStatus, QueueProgress, QueueStatus
from sparrowmq.core.errors import ConnectError, NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.testing import LocalCluster


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_topics_without_groups_are_queried_in_turn() -> None:
    flow = asked.flow("n:1")
    names = ["a", "b", "c"]
    assert [flow._next(names, 2), flow._next(names, 2), flow._next(names, 2)] == [
        ["a", "b"],
        ["c", "a"],
        ["b", "c"],
    ]
    assert flow._next([], 2) == [] and flow._next(names, 0) == []


def test_real_cluster_is_queried_once() -> None:
    async def look(namesrv: str) -> None:
        flow = asked.flow(namesrv)
        try:
            found = await flow.look(10)
            (place,) = (one for one in found.places["readers"] if one.queue.queue_id == where.queue_id)
            assert (place.broker_offset, place.consumer_offset) == (3, 1)
            assert found.ends["Alone"] and "Read" not in found.ends
            assert {"Alone", "Read"} <= found.topics
            assert found.failed == {}
            assert [one.error for one in found.brokers] == [None]
            stored = await flow.stored_ms([(place.queue, 1), (MessageQueue("Nowhere", "x", 0), 1)])
            assert list(stored) == [place.queue] and stored[place.queue] > 0
        finally:
            await flow.close()
            await flow.close()

    with LocalCluster() as cluster, Admin(namesrv=cluster.namesrv) as admin:
        for name in ("Read", "Alone"):
            admin.topics.create(name, queues=2)
        admin.groups.create("readers")
        where = aio.MessageQueue("Read", admin.topics.status("Read")[0].queue.broker_name, 0)
        with Producer("writers", namesrv=cluster.namesrv) as producer:
            for _ in range(3):
                producer.send(Message("Read", b"x"), queue=where)
        admin.groups.commit("readers", where, 1)
        run(look(cluster.namesrv))


class Admin2(MadeUpParts):
    """Two masters, one of which does not answer."""

    async def brokers_list(self) -> list[BrokerStatus]:
        return [broker("a"), broker("b")]

    async def topics_list(self) -> list[str]:
        return ["T", "gone"]

    async def brokers_progress(self, name: str) -> dict[str, list[QueueProgress]]:
        if name == "b":
            raise ConnectError("b is down")
        return {"g": [at(queue(), 3, 1)]}

    async def topics_status(self, topic: str) -> list[QueueStatus]:
        raise NoRouteError(f"no broker serves {topic}")


def test_silent_broker_is_named_and_deleted_topic_is_not() -> None:
    flow = asked.flow("n:1")
    flow._clients.made_admin = cast(aio.Admin, Admin2())
    found = run(flow.look(10))
    assert found.failed == {"b": "b is down"}
    assert list(found.places) == ["g"] and found.ends == {}
