"""Ordered, broadcasting and paused push consumers: Java's and ours, at Apache's broker and at ours."""

from __future__ import annotations

import itertools
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaConsumer, JavaDriver
from tests.interop.exchanges import Side, ordered
from tests.interop.ours import OurClients, OurConsumer
from tests.support import first_arrivals, until, until_sync

import sparrowmq as mq
from sparrowmq.broker.base.offsets import OffsetRequests
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.connection import Connection

pytestmark = pytest.mark.interop
Consumer = JavaConsumer | OurConsumer


@pytest.fixture(params=["apache", "ours"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster | LocalCluster:
    """The servers."""
    found: ApacheCluster | LocalCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(driver: JavaDriver, cluster: ApacheCluster | LocalCluster, name: str) -> str:
    """A topic of two queues."""
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    return name


@pytest.mark.proves("broker:10.6", "client:C-26", "client:D-62")
@pytest.mark.parametrize(("first", "second"), [("driver", "our_clients"), ("our_clients", "our_clients")])
def test_ordered_members_share_queues(
    request: pytest.FixtureRequest,
    cluster: ApacheCluster | LocalCluster,
    driver: JavaDriver,
    topic: str,
    first: str,
    second: str,
) -> None:
    sides: list[Side] = [request.getfixturevalue(side) for side in (first, second)]
    numbers = itertools.count()
    with ExitStack() as stack:
        producer = stack.enter_context(driver.producer(cluster.namesrv, f"{topic}_p"))

        def send() -> None:
            for number in itertools.islice(numbers, 20):
                queue = MessageQueue(topic, "broker-a", number % 2)
                producer.send([Message(topic, b"%d" % number)], queue=queue)

        send()
        seen = [stack.enter_context(ordered(sides[0], cluster.namesrv, f"{topic}_c", topic))]
        until_sync(lambda: len(seen[0]()) >= 20)
        seen.append(stack.enter_context(ordered(sides[1], cluster.namesrv, f"{topic}_c", topic)))
        until_sync(lambda: send() or seen[1]())
        sent = next(numbers)
        until_sync(lambda: len({row for one in seen for row in one()}) == sent)
        came = [one() for one in seen]
    for rows in came:
        for queue_id in range(2):
            mine = first_arrivals(int(text) for queue, text in rows if queue == queue_id)
            assert mine == sorted(mine), "in order within a queue"


@pytest.mark.proves("client:D-109", "client:C-14", "MUST-68")
def test_every_broadcasting_member_gets_every_message(
    cluster: ApacheCluster | LocalCluster,
    driver: JavaDriver,
    our_clients: OurClients,
    topic: str,
    tmp_path: Path,
) -> None:
    """Two of Java's and two of ours in one group."""
    group, what = f"{topic}_c", {topic: "*"}
    with ExitStack() as stack:
        producer = stack.enter_context(driver.producer(cluster.namesrv, f"{topic}_p"))
        producer.send([Message(topic, b"%d" % number) for number in range(10)])
        members: list[Consumer] = []
        for number in range(2):
            java = driver.consumer(cluster.namesrv, group, what, broadcasting=True)
            members.append(stack.enter_context(java))
            ours = our_clients.consumer(cluster.namesrv, group, what, offset_dir=tmp_path / str(number))
            members.append(stack.enter_context(ours))
        until_sync(lambda: all(len(one.assigned()) == 2 for one in members))
        producer.send([Message(topic, b"%d" % number) for number in range(10, 20)])
        for one in members:
            found = one.wait(20)
            assert sorted(int(message.body) for message in found) == list(range(20))


@pytest.mark.proves("client:D-80")
@pytest.mark.parametrize("kind", ["driver", "our_clients"])
def test_a_paused_consumer_gets_nothing_until_it_is_resumed(
    request: pytest.FixtureRequest,
    cluster: ApacheCluster | LocalCluster,
    driver: JavaDriver,
    our_clients: OurClients,
    topic: str,
    kind: str,
) -> None:
    clients: Side = request.getfixturevalue(kind)
    queue = MessageQueue(topic, "broker-a", 0)
    with ExitStack() as stack:
        producer = stack.enter_context(driver.producer(cluster.namesrv, f"{topic}_p"))
        consumer: JavaConsumer | OurConsumer = stack.enter_context(
            clients.consumer(cluster.namesrv, f"{topic}_c", {topic: "*"})
        )
        other = stack.enter_context(our_clients.consumer(cluster.namesrv, f"{topic}_other", {topic: "*"}))
        producer.send([Message(topic, b"before")], queue=queue)
        assert [one.body for one in consumer.wait(1)] == [b"before"]
        consumer.pause()
        producer.send([Message(topic, b"last pull")], queue=queue)  # Java's may be waiting at the broker
        until_sync(lambda: len(other.received()) == 2)
        for number in range(5):
            producer.send([Message(topic, b"%d" % number)], queue=queue)
            until_sync(lambda number=number: len(other.received()) == 3 + number)
        missed = {b"%d" % number for number in range(1, 5)}
        assert not missed & {one.body for one in consumer.received()}
        consumer.resume()
        assert sorted(one.body for one in consumer.wait(7)) == sorted(one.body for one in other.received())


@pytest.mark.proves("client:C-35")
def test_java_s_new_group_misses_nothing_that_is_sent_while_it_starts_on_an_empty_topic(
    driver: JavaDriver, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with the next message. Were it told of no offset, it would ask for the end, and messages that
    came in between would lie before that: here they always come in between.
    """
    asked = threading.Event()
    query, max_offset = OffsetRequests.query, OffsetRequests.max_offset

    def noted(self: OffsetRequests, connection: Connection, command: Command) -> Command:
        found = query(self, connection, command)
        if command.ext["topic"] == name:
            asked.set()
        return found

    async def after_the_first(self: OffsetRequests, connection: Connection, command: Command) -> Command:
        queue = self._queue(command.ext["topic"], int(command.ext["queueId"]))
        if command.ext["topic"] == name and queue is not None:
            await until(lambda: queue.max_offset)
        return max_offset(self, connection, command)

    monkeypatch.setattr(OffsetRequests, "query", noted)
    monkeypatch.setattr(OffsetRequests, "max_offset", after_the_first)
    with LocalCluster() as cluster:
        cluster.create_topic(name, queues=4)

        def produce() -> None:
            asked.wait(60)
            with mq.Producer(f"{name}_p", namesrv=cluster.namesrv) as producer:
                for place in range(4):
                    producer.send(Message(name, b"%d" % place), queue=MessageQueue(name, "broker-a", place))

        producing = threading.Thread(target=produce)
        producing.start()
        with driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}, from_last=True) as consumer:
            found = consumer.wait(4)
            producing.join()
        assert sorted(one.body for one in found) == [b"0", b"1", b"2", b"3"]
