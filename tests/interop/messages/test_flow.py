"""Messages between Java's and our clients through Apache's and our servers, every way round."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaConsumer, JavaDriver, Received, Sent
from tests.interop.ours import OurClients, OurConsumer
from tests.support import until_sync

from sparrowmq.core.allocation import Averagely
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

COMPRESSED: Final = 1
"""Bit of `sys_flag`: the body is stored compressed; clients since 5 clear it when they unpack the body."""


@dataclass
class Route:
    """Who sends, which servers store, who consumes."""

    namesrv: str
    broker: str
    producers: JavaDriver | OurClients
    consumers: JavaDriver | OurClients
    create_topic: Callable[[str, int], None]
    keeps_compressed: bool


def _route(request: pytest.FixtureRequest, producers: str, servers: str, consumers: str) -> Route:
    sides = {"java": "driver", "java49": "driver49"}
    sides |= {"ours": "our_clients", "ours49": "our_clients49"}
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    driver: JavaDriver = request.getfixturevalue("driver")
    admin = driver.admin(cluster.namesrv)
    return Route(
        cluster.namesrv,
        cluster.broker_address,
        request.getfixturevalue(sides[producers]),
        request.getfixturevalue(sides[consumers]),
        lambda topic, queues: admin.create_topic(cluster.broker_address, topic, queues),
        keeps_compressed=consumers == "java49",
    )


WAYS: Final = [
    "java apache java",
    "java ours java",
    "ours ours java",
    "java ours ours",
    "ours apache java",
    "java apache ours",
    "ours apache ours",
    "java49 apache49 java49",
    "ours49 apache49 java49",
    "java49 apache49 ours49",
    "ours ours java49",
    "java49 ours ours",
]
"""The first of each release has no part of ours: it shows that the expectations are Apache's own."""


@pytest.fixture(params=WAYS, ids=lambda way: way.replace(" ", "-"))
def route(request: pytest.FixtureRequest) -> Route:
    """Every way from a producer through servers to a consumer."""
    return _route(request, *request.param.split())


def _message(topic: str, body: bytes, number: int) -> Message:
    return Message(
        topic,
        body,
        tags=f"tag{number % 3}",
        keys=[f"key-{number}", "Schlüssel"],
        properties={"city": "Zürich 東京 🚀", "one two": "a b", "n": str(number)},
        flag=number,
    )


def _expect(sent: Message, stored: Received) -> None:
    assert stored.body == sent.body
    assert (stored.tags, stored.keys, stored.flag) == (sent.tags, sent.keys_text, sent.flag)
    assert stored.user_properties == dict(sent.properties)
    assert stored.reconsume_times == 0


def _expect_result(result: Sent, stored: Received) -> None:
    assert result.status == "SEND_OK"
    assert (result.msg_id, result.offset_msg_id) == (stored.msg_id, stored.offset_msg_id)
    assert result.queue == MessageQueue(stored.topic, stored.broker, stored.queue_id)
    assert result.queue_offset == stored.queue_offset


def test_every_kind_of_send_arrives_whole(route: Route, name: str) -> None:
    route.create_topic(name, 4)
    queue = MessageQueue(name, "broker-a", 2)
    messages = [_message(name, b"body %d" % number, number) for number in range(19)]
    messages.append(_message(name, bytes(range(256)) * 1000, 19))
    before = int(time.time() * 1000)
    with route.producers.producer(route.namesrv, f"{name}_p") as producer:
        assert [queue.queue_id for queue in producer.queues(name)] == [0, 1, 2, 3]
        single = producer.send(messages[0:4])
        single += producer.send(messages[4:9], "async")
        single += producer.send(messages[9:11], queue=queue)
        hashed = producer.send(messages[11:13], hash_key="one customer")
        batch = producer.send(messages[13:16], "batch", queue=queue)
        producer.send(messages[16:19], "oneway")
        big = producer.send(messages[19:20])
    with route.consumers.consumer(route.namesrv, f"{name}_c", {name: "*"}) as consumer:
        stored = {int(message.properties["n"]): message for message in consumer.wait(20)}
        until_sync(lambda: len(consumer.assigned()) == 4)
        assert len(consumer.received()) == 20
    after = int(time.time() * 1000)

    assert sorted(stored) == list(range(20))
    for number, message in stored.items():
        _expect(messages[number], message)
        assert before <= message.born_timestamp <= message.store_timestamp <= after
        assert message.store_host.lstrip("/") == route.broker
        assert message.born_host.lstrip("/").startswith("127.0.0.1:")
        assert bool(message.sys_flag & COMPRESSED) == (route.keeps_compressed and number == 19)
    for number, result in enumerate(single + hashed):
        _expect_result(result, stored[number])
    assert {result.queue.queue_id for result in single[9:11]} == {2}
    assert hashed[0].queue == hashed[1].queue
    _expect_result(big[0], stored[19])
    _expect_batch(batch[0], [stored[number] for number in (13, 14, 15)])


def _expect_batch(result: Sent, members: list[Received]) -> None:
    assert result.status == "SEND_OK"
    assert result.msg_id.split(",") == [member.msg_id for member in members]
    assert result.offset_msg_id.split(",") == [member.offset_msg_id for member in members]
    first = result.queue_offset
    assert [member.queue_offset for member in members] == [first, first + 1, first + 2]
    assert {member.queue_id for member in members} == {2}


def test_a_tag_expression_selects(route: Route, name: str) -> None:
    route.create_topic(name, 2)
    tags = ["a", "b", "c", None, "ä", "ab"]
    messages = [Message(name, str(number).encode(), tags=tags[number % 6]) for number in range(60)]
    with (
        route.consumers.consumer(route.namesrv, f"{name}_c", {name: "a || ä"}) as consumer,
        route.producers.producer(route.namesrv, f"{name}_p") as producer,
    ):
        producer.send(messages)
        assert {message.tags for message in consumer.wait(20)} == {"a", "ä"}
        last = [Message(name, b"last", tags="a")] * 2
        for queue, message in zip(producer.queues(name), last, strict=True):
            producer.send([message], queue=queue)
        bodies = sorted(message.body for message in consumer.wait(22))
    wanted = [message.body for message in messages if message.tags in ("a", "ä")]
    assert bodies == sorted([*wanted, b"last", b"last"])


def test_a_group_goes_on_where_it_stopped(route: Route, name: str) -> None:
    route.create_topic(name, 3)
    with route.producers.producer(route.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"first %d" % number) for number in range(30)])
        with route.consumers.consumer(route.namesrv, f"{name}_c", {name: "*"}) as consumer:
            consumer.wait(30)
        producer.send([Message(name, b"second %d" % number) for number in range(30)])
        with route.consumers.consumer(route.namesrv, f"{name}_c", {name: "*"}) as consumer:
            bodies = sorted(message.body for message in consumer.wait(30))
    assert bodies == sorted(b"second %d" % number for number in range(30))


MEMBERS: Final = [
    "apache java ours",
    "ours java java",
    "ours java ours",
    "ours ours ours",
    "apache49 java49 ours",
    "ours java49 java",
]
Member = JavaConsumer | OurConsumer


def _shares(first: Member, second: Member, queues: list[MessageQueue]) -> list[list[MessageQueue]]:
    """Both members' queues, once they are the two shares of the average allocation; waits for that."""
    wanted = sorted(Averagely().allocate("g", me, queues, ["a", "b"]) for me in ("a", "b"))

    def settled() -> list[list[MessageQueue]] | None:
        shares = [first.assigned(), second.assigned()]
        return shares if sorted(shares) == wanted else None

    shares = until_sync(settled)
    assert shares is not None
    return shares


@pytest.mark.proves("client:C-14", "client:D-109", "client:C-11")
@pytest.mark.parametrize("members", MEMBERS, ids=lambda members: members.replace(" ", "-"))
def test_members_of_a_group_share_queues(request: pytest.FixtureRequest, members: str, name: str) -> None:
    servers, first_side, second_side = members.split()
    route = _route(request, "java", servers, first_side)
    second_clients = _route(request, "java", servers, second_side).consumers
    route.create_topic(name, 7)
    group = f"{name}_c"
    with (
        route.producers.producer(route.namesrv, f"{name}_p") as producer,
        route.consumers.consumer(route.namesrv, group, {name: "*"}) as first,
    ):
        queues = producer.queues(name)
        until_sync(lambda: first.assigned() == queues)
        with second_clients.consumer(route.namesrv, group, {name: "*"}) as second:
            shares = _shares(first, second, queues)
            for queue in queues:
                producer.send([Message(name, b"shared")] * 4, queue=queue)
            for member, share in zip((first, second), shares, strict=True):
                came = Counter(message.queue_id for message in member.wait(4 * len(share)))
                assert came == {queue.queue_id: 4 for queue in share}
        until_sync(lambda: first.assigned() == queues)
        for queue in queues:
            producer.send([Message(name, b"alone")], queue=queue)
        came = Counter(message.body for message in first.wait(4 * len(shares[0]) + len(queues)))
        assert came == {b"shared": 4 * len(shares[0]), b"alone": len(queues)}
