"""Polling, with our client and Java's, from our broker and Apache's."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

WAYS = ["java apache", "java ours", "ours apache", "ours ours"]
SETTINGS = mq.PullSettings(
    consume_from="first",
    auto_commit=False,
    heartbeat_interval=1.0,
    rebalance_interval=0.5,
    rebalance_interval_min=0.1,
)


def wire(queue: MessageQueue) -> dict[str, Any]:
    return {"topic": queue.topic, "broker": queue.broker_name, "id": queue.queue_id}


class JavaPoller:
    """A `DefaultLitePullConsumer`."""

    def __init__(self, driver: JavaDriver, namesrv: str, group: str, **what: Any) -> None:
        self._driver = driver
        self._handle = driver.call("PullConsumers.start", namesrv=namesrv, group=group, **what)

    def _call(self, op: str, **more: Any) -> Any:
        return self._driver.call(f"PullConsumers.{op}", handle=self._handle, **more)

    def poll(self, seconds: float) -> list[bytes]:
        return [base64.b64decode(body) for body in self._call("poll", millis=int(seconds * 1000))]

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._call("seek", queue=wire(queue), offset=offset)

    def commit(self, queue: MessageQueue) -> int:
        return int(self._call("commit", queue=wire(queue)))

    def assignment(self) -> list[MessageQueue]:
        return sorted(MessageQueue(q["topic"], q["broker"], q["id"]) for q in self._call("assignment"))

    def told(self) -> list[int]:
        """How many queues of its own the listener was told of, each time."""
        return [len(mine) for mine in self._call("told")]

    def stop(self) -> None:
        self._call("stop")


class OurPoller:
    """A `PullConsumer`."""

    def __init__(
        self,
        namesrv: str,
        group: str,
        *,
        topic: str = "",
        expression: str = "*",
        queues: list[dict[str, Any]] | None = None,
    ) -> None:
        self._consumer = mq.PullConsumer(group, namesrv=namesrv, settings=SETTINGS)
        self._told: list[int] = []
        if queues is None:
            self._consumer.subscribe(
                topic, expression, lambda topic, every, mine: self._told.append(len(mine))
            )
        else:
            self._consumer.assign([MessageQueue(q["topic"], q["broker"], q["id"]) for q in queues])
        self._consumer.start()

    def poll(self, seconds: float) -> list[bytes]:
        return [message.body for message in self._consumer.poll(seconds)]

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._consumer.seek(queue, offset)

    def commit(self, queue: MessageQueue) -> int:
        self._consumer.commit()
        return self._consumer.committed(queue) or 0

    def assignment(self) -> list[MessageQueue]:
        return self._consumer.assignment

    def told(self) -> list[int]:
        return self._told

    def stop(self) -> None:
        self._consumer.close()


class JavaClassic:
    """A `DefaultMQPullConsumer`."""

    def __init__(self, driver: JavaDriver, namesrv: str, group: str, topic: str) -> None:
        self._driver = driver
        self._topic = topic
        self._handle = driver.call("PullConsumers.classicStart", namesrv=namesrv, group=group, topic=topic)

    def _call(self, op: str, **more: Any) -> Any:
        return self._driver.call(f"PullConsumers.{op}", handle=self._handle, **more)

    def share(self) -> list[MessageQueue]:
        return [
            MessageQueue(q["topic"], q["broker"], q["id"]) for q in self._call("share", topic=self._topic)
        ]

    def pull(self, queue: MessageQueue, offset: int, expression: str = "*") -> tuple[str, list[bytes], int]:
        found = self._call("pull", queue=wire(queue), offset=offset, expression=expression)
        return found["status"], [base64.b64decode(body) for body in found["bodies"]], found["next"]

    def note(self, queue: MessageQueue, offset: int) -> None:
        self._call("note", queue=wire(queue), offset=offset)

    def offset(self, queue: MessageQueue, *, stored: bool) -> int:
        return int(self._call("offset", queue=wire(queue), stored=stored))

    def stop(self) -> None:
        self._call("classicStop")


class OurClassic:
    """A `PullConsumer` that registers its topic."""

    def __init__(self, namesrv: str, group: str, topic: str) -> None:
        self._topic = topic
        self._consumer = mq.PullConsumer(group, namesrv=namesrv, settings=SETTINGS)
        self._consumer.register_topic(topic)
        self._consumer.start()

    def share(self) -> list[MessageQueue]:
        return self._consumer.fetch_message_queues_in_balance(self._topic)

    def pull(self, queue: MessageQueue, offset: int, expression: str = "*") -> tuple[str, list[bytes], int]:
        result = self._consumer.pull(queue, offset, expression=expression)
        status = result.status.name.replace("MESSAGE", "MSG")
        return status, [message.body for message in result.messages], result.next_offset

    def note(self, queue: MessageQueue, offset: int) -> None:
        self._consumer.update_consume_offset(queue, offset)

    def offset(self, queue: MessageQueue, *, stored: bool) -> int:
        return self._consumer.fetch_consume_offset(queue, from_store=stored) or 0

    def stop(self) -> None:
        self._consumer.close()


@dataclass
class Way:
    """Who polls, and from which servers."""

    namesrv: str
    broker_name: str
    make: Callable[..., JavaPoller | OurPoller]
    make_classic: Callable[[str, str, str], JavaClassic | OurClassic]
    create_topic: Callable[[str, int], None]
    is_ours: bool

    @contextmanager
    def poller(self, group: str, **what: Any) -> Iterator[JavaPoller | OurPoller]:
        made = self.make(self.namesrv, group, **what)
        try:
            yield made
        finally:
            made.stop()

    @contextmanager
    def classic(self, group: str, topic: str) -> Iterator[JavaClassic | OurClassic]:
        made = self.make_classic(self.namesrv, group, topic)
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture(params=WAYS, ids=lambda way: way.replace(" ", "-"))
def way(request: pytest.FixtureRequest) -> Way:
    """Every poller with every broker."""
    client, servers = request.param.split()
    driver: JavaDriver = request.getfixturevalue("driver")
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        (broker,) = admin.brokers.list()
    return Way(
        cluster.namesrv,
        broker.broker_name,
        (lambda *a, **k: JavaPoller(driver, *a, **k)) if client == "java" else OurPoller,
        (lambda *a: JavaClassic(driver, *a)) if client == "java" else OurClassic,
        lambda topic, queues: driver.admin(cluster.namesrv).create_topic(
            cluster.broker_address, topic, queues
        ),
        servers == "ours",
    )


def send(namesrv: str, queue: MessageQueue, numbers: range, tag: str | None = None) -> None:
    with mq.Producer("pollers_feed", namesrv=namesrv) as producer:
        for number in numbers:
            producer.send(Message(queue.topic, b"%d" % number, tags=tag), queue=queue)


def take(poller: JavaPoller | OurPoller, count: int) -> list[int]:
    found: list[int] = []
    until_sync(lambda: len(found.__iadd__([int(body) for body in poller.poll(1)])) >= count)
    return found


def test_subscribed_queues_are_polled_committed_and_gone_on_with(way: Way, name: str) -> None:
    way.create_topic(name, 1)
    queue = MessageQueue(name, way.broker_name, 0)
    send(way.namesrv, queue, range(25), "a")
    send(way.namesrv, queue, range(100, 105), "b")
    with way.poller(name, topic=name, expression="a") as poller:
        assert take(poller, 25) == list(range(25))
        assert poller.assignment() == [queue]
        until_sync(lambda: poller.told() == [1])
        assert poller.commit(queue) >= 25
    send(way.namesrv, queue, range(25, 30), "a")
    with way.poller(name, topic=name, expression="a") as poller:
        assert take(poller, 5) == list(range(25, 30))


@pytest.mark.proves("client:E-23", "client:E-38")
def test_an_assigned_queue_is_read_from_where_one_seeks(way: Way, name: str) -> None:
    way.create_topic(name, 2)
    queue = MessageQueue(name, way.broker_name, 1)
    send(way.namesrv, queue, range(20))
    with way.poller(name, queues=[wire(queue)]) as poller:
        assert take(poller, 20) == list(range(20))
        poller.seek(queue, 17)
        assert take(poller, 3) == [17, 18, 19]
        assert poller.commit(queue) == 20


@pytest.mark.proves("client:A-90", "client:D-86")
def test_tools_see_what_pollers_do(way: Way, name: str) -> None:
    way.create_topic(name, 1)
    queue = MessageQueue(name, way.broker_name, 0)
    send(way.namesrv, queue, range(5), "a")
    with way.poller(name, topic=name, expression="a") as poller, mq.Admin(namesrv=way.namesrv) as admin:
        assert take(poller, 5) == list(range(5))
        poller.commit(queue)
        (member,) = admin.groups.status(name)
        assert member.info is not None, member.error
        assert member.info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert [one.topic for one in member.info.subscriptions] == [name]
        assert member.info.queues[queue].commit_offset == 5


@pytest.mark.proves("client:E-25", "client:C-11")
@pytest.mark.parametrize("servers", ["apache", "ours"])
def test_pollers_of_both_kinds_share_a_group(request: pytest.FixtureRequest, servers: str, name: str) -> None:
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    driver: JavaDriver = request.getfixturevalue("driver")
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 4)
    java = JavaPoller(driver, cluster.namesrv, name, topic=name, expression="*")
    ours = OurPoller(cluster.namesrv, name, topic=name)
    try:
        until_sync(lambda: len(java.assignment()) == len(ours.assignment()) == 2)
        assert not {*java.assignment()} & {*ours.assignment()}
        until_sync(lambda: java.told()[-1:] == ours.told()[-1:] == [2])
        java.stop()
        until_sync(lambda: len(ours.assignment()) == 4)
        until_sync(lambda: ours.told()[-1:] == [4])
    finally:
        java.stop()
        ours.stop()


@pytest.mark.proves("client:E-11", "client:E-12")
def test_a_classic_consumer_pulls_its_share_and_keeps_its_place(way: Way, name: str) -> None:
    way.create_topic(name, 2)
    queues = [MessageQueue(name, way.broker_name, number) for number in (0, 1)]
    send(way.namesrv, queues[0], range(5), "a")
    send(way.namesrv, queues[0], range(100, 103), "b")
    with way.classic(name, name) as consumer:
        until_sync(lambda: consumer.share() == queues)
        assert consumer.pull(queues[0], 1, "a") == ("FOUND", [b"1", b"2", b"3", b"4"], 8)
        assert consumer.pull(queues[0], 5, "a")[::2] == ("NO_MATCHED_MSG", 8)
        assert consumer.pull(queues[0], 8) == ("NO_NEW_MSG", [], 8)
        # The offset may be of an earlier life of the queue: ours and RocketMQ 4.9's broker begin again, 5.x's
        # goes to the end.
        assert consumer.pull(queues[0], 20) == ("OFFSET_ILLEGAL", [], 0 if way.is_ours else 8)
        consumer.note(queues[0], 6)
        assert consumer.offset(queues[0], stored=False) == 6
    with way.classic(name, name) as consumer:
        until_sync(lambda: consumer.offset(queues[0], stored=True) == 6)
        assert consumer.pull(queues[0], 6) == ("FOUND", [b"101", b"102"], 8)


@pytest.mark.proves("client:E-11", "client:E-16")
@pytest.mark.parametrize("servers", ["apache", "ours"])
def test_classic_consumers_of_both_kinds_share_a_group(
    request: pytest.FixtureRequest, servers: str, name: str
) -> None:
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    driver: JavaDriver = request.getfixturevalue("driver")
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 3)
    java, ours = JavaClassic(driver, cluster.namesrv, name, name), OurClassic(cluster.namesrv, name, name)
    try:
        until_sync(lambda: sorted(map(len, (java.share(), ours.share()))) == [1, 2])
        assert not {*java.share()} & {*ours.share()}
        ours.stop()
        until_sync(lambda: len(java.share()) == 3)
    finally:
        java.stop()
        ours.stop()


@pytest.mark.proves("client:E-17", "client:E-20")
@pytest.mark.parametrize("servers", ["apache", "ours"])
def test_a_schedule_goes_through_its_queues(request: pytest.FixtureRequest, servers: str, name: str) -> None:
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(name, 2)
        queues = [status.queue for status in admin.topics.status(name)]
        for queue in queues:
            send(cluster.namesrv, queue, range(3))
        found: list[tuple[int, bytes]] = []

        def work(queue: MessageQueue, context: mq.PullContext) -> None:
            offset = context.consumer.fetch_consume_offset(queue) or 0
            result = context.consumer.pull(queue, offset)
            found.extend((queue.queue_id, message.body) for message in result.messages)
            context.consumer.update_consume_offset(queue, result.next_offset)
            context.next_delay = 0.01

        schedule = mq.PullSchedule(name, namesrv=cluster.namesrv, settings=SETTINGS)
        schedule.register(name, work)
        with schedule:
            until_sync(lambda: len(found) >= 6)
        assert sorted(found) == [(queue, b"%d" % n) for queue in (0, 1) for n in range(3)]
        until_sync(lambda: [admin.groups.committed(name, queue) for queue in queues] == [3, 3])


@pytest.mark.proves("client:E-02", "client:A-56")
@pytest.mark.parametrize("servers", ["apache", "ours"])
def test_a_new_group_of_one_that_only_reads_by_offset(
    request: pytest.FixtureRequest, servers: str, name: str
) -> None:
    """Its heartbeats make the group, as those of Java's consumer do, so that it may commit."""
    cluster: ApacheCluster | LocalCluster = request.getfixturevalue(servers)
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.topics.create(name, 1)
        (queue,) = (status.queue for status in admin.topics.status(name))
        send(cluster.namesrv, queue, range(3))
        with mq.PullConsumer(name, namesrv=cluster.namesrv, settings=SETTINGS) as consumer:
            consumer.commit(queue, 2)
            assert consumer.committed(queue) == admin.groups.committed(name, queue) == 2
            connected = admin.groups.connections(name)
            assert connected is not None
            assert [member.client_id for member in connected.members] == [consumer.client_id]
            assert (connected.consume_type, connected.subscriptions) == ("CONSUME_ACTIVELY", {})


@pytest.mark.proves("client:E-30")
def test_apaches_broker_takes_the_request_of_lite_pulls(apache: ApacheCluster, name: str) -> None:
    """361 tells polling from classic pulls; a broker that does not know it is asked with 11."""
    with mq.Admin(namesrv=apache.namesrv) as admin:
        admin.topics.create(name, 1)
        (queue,) = (status.queue for status in admin.topics.status(name))
    send(apache.namesrv, queue, range(1))

    seen: list[tuple[int, int]] = []

    class Note(mq.RpcHook):
        """Sees the answers."""

        def after_response(self, address: str, command: Command, answer: Command) -> None:
            seen.append((command.code, answer.code))

    settings = replace(SETTINGS, hooks=[Note()])
    with mq.PullConsumer(name, namesrv=apache.namesrv, settings=settings) as consumer:
        consumer.assign([queue])
        assert [message.body for message in consumer.poll(20)] == [b"0"]
    assert (361, 0) in seen
    assert not [code for code, _ in seen if code == 11]
