"""Receives stay valid when the proxy restarts or the master changes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.broker.doubles import FakeClock
from tests.proxy.rig import connected, message, running
from tests.support import run

from sparrowmq import aio
from sparrowmq.core.errors import BrokerError, ConnectionLostError, RequestTimeoutError, SparrowError
from sparrowmq.core.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.proxy.base.handles import ReceiptHandle
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code, v2
from sparrowmq.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running_cluster:
        yield running_cluster


def test_ordered_receive_is_repeated_through_another_proxy(cluster: LocalCluster) -> None:
    """The attempt id of a client that lost its answer gets the same messages; any other attempt id gets
    none."""
    poll = {"seconds": 5}

    async def main() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create("steps", 1, attributes={"message.type": "FIFO"})
            await admin.groups.create("steps", ordered=True)
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            for number in range(2):
                sent = await client.send(message("steps", b"%d" % number, number=number, message_group="g"))
                assert sent.status.code == Code.OK
            given = {"batch_size": 1, "attempt_id": "attempt-1", "long_polling_timeout": poll}
            code, first = await client.receive("steps", "steps", **given)
            assert (code, [one.body for one in first]) == (Code.OK, [b"0"])
        async with running(cluster.namesrv) as proxy, connected(proxy.address) as client:
            code, again = await client.receive("steps", "steps", **given)
            assert (code, [one.body for one in again]) == (Code.OK, [b"0"])
            code, other = await client.receive("steps", "steps", **given | {"attempt_id": "attempt-2"})
            assert (code, other) == (Code.MESSAGE_NOT_FOUND, [])
            request = v2.AckMessageRequest()
            request.topic.name = request.group.name = "steps"
            request.entries.add(message_id="m", receipt_handle=again[0].system_properties.receipt_handle)
            assert (await client.call("AckMessage", request)).status.code == Code.OK
            _, following = await client.receive("steps", "steps", **given | {"attempt_id": "attempt-3"})
            assert [one.body for one in following] == [b"1"]

    run(main())


class Moving:
    """An instance whose broker `b` is at one address, until the route is asked for again."""

    def __init__(self, error: SparrowError) -> None:
        self.error = error
        self.doubted: list[str] = []
        self.fetched = 0
        self.brokers = self.remoting = self
        self.routes = SimpleNamespace(master=lambda name: "old:1" if self.fetched < 2 else "new:1")

    async def update_route(self, topic: str) -> TopicRoute:
        self.fetched += 1
        return TopicRoute((QueueData("b", 1, 1, 6),), (BrokerData("c", "b", {0: "old:1"}),))

    def doubt_route(self, topic: str) -> None:
        self.doubted.append(topic)

    async def ask(self, address: str, *args: Any, **fields: Any) -> Any:
        raise self.error

    call = ask


def refused(code: int) -> BrokerError:
    return BrokerError(code, "no", address="old:1", request="ACK")


@pytest.mark.parametrize(
    ("error", "doubted"),
    [
        (ConnectionLostError("gone"), True),
        (RequestTimeoutError("late"), True),
        (refused(ResponseCode.SYSTEM_ERROR), True),
        (refused(ResponseCode.NO_MESSAGE), False),
        (refused(ResponseCode.NO_PERMISSION), False),
    ],
)
def test_new_master_is_looked_up_when_the_old_one_refuses(error: SparrowError, doubted: bool) -> None:
    """After a failover the handle's broker name stays the same and its address changes."""
    handle = ReceiptHandle(Receipt(0, 1_000, 60_000, 0, "0", "b", 0, 0), 100)

    async def main() -> None:
        instance = Moving(error)
        brokers = Brokers(cast("Any", instance), FakeClock())
        await brokers.route("T")
        for work in (
            lambda: brokers.ack("old:1", "T", "g", handle),
            lambda: brokers.change_invisible("old:1", "T", "g", handle, 0),
            lambda: brokers.to_dead_letters("old:1", "T", "g", handle, "m"),
        ):
            with pytest.raises(type(error)):
                await work()
        assert instance.doubted == (["T"] * 3 if doubted else [])
        await brokers.route("T")
        assert instance.fetched == (2 if doubted else 1)
        assert brokers.master("b") == ("new:1" if doubted else "old:1")

    run(main())
