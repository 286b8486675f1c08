"""The short set with RocketMQ 4.9.7: its clients at our broker, our clients at its broker, both in one group.

Sends, tags and where a group goes on are in `test_flow.py`, with the same servers and clients.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.interop.apache import ApacheCluster, ask
from tests.interop.driver import JavaDriver, JavaError
from tests.interop.exchanges import Side, failing, ordered, transactions
from tests.interop.ours import OurClients
from tests.support import expect_all, first_arrivals, until, until_sync

from sparrowmq import aio
from sparrowmq.broker.transactions.half_messages import op_numbers
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.names import OP_HALF_TOPIC
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import PullMessageRequest, to_ext
from sparrowmq.protocol.record import decode_records
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
Cluster = ApacheCluster | LocalCluster
WAYS = pytest.mark.parametrize("way", ["java49 apache49", "ours apache49", "java49 ours"])
"""The first one has no part of ours: it shows that the expectations are Apache's own."""


@pytest.fixture(scope="module")
def quick() -> Iterator[LocalCluster]:
    """Our servers, with quick checks of transactions."""
    with LocalCluster(transaction_time_out=500, transaction_check_interval=300) as cluster:
        yield cluster


@pytest.fixture
def cluster(request: pytest.FixtureRequest, way: str) -> Cluster:
    """The servers of a way."""
    found: Cluster = request.getfixturevalue({"ours": "quick"}.get(way.split()[1], way.split()[1]))
    return found


@pytest.fixture
def clients(request: pytest.FixtureRequest, way: str) -> Side:
    """The clients of a way."""
    found: Side = request.getfixturevalue({"ours": "our_clients", "java49": "driver49"}[way.split()[0]])
    return found


@pytest.fixture
def topic(driver: JavaDriver, cluster: Cluster, name: str) -> str:
    """A topic of two queues."""
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    return name


def bodies(driver: JavaDriver, cluster: Cluster, topic: str) -> list[str]:
    return sorted(one.body.decode() for one in driver.dump(cluster.namesrv, topic))


def known_bodies(driver: JavaDriver, cluster: Cluster, topic: str) -> list[str]:
    """The same; none while nobody has made the topic."""
    try:
        return bodies(driver, cluster, topic)
    except JavaError:
        return []


def ends(cluster: Cluster) -> int:
    """How many ends of transactions the broker has noted; 4.9 does not tell name servers of that topic.

    Ends that came together share a record at our broker; 4.9 writes one for each, and lets nobody pull it.
    """
    if not isinstance(cluster, LocalCluster):
        where = {"topic": OP_HALF_TOPIC, "queueId": "0"}
        return int(ask(cluster.broker_address, Command(RequestCode.GET_MAX_OFFSET, ext=where)).ext["offset"])
    count = offset = 0
    while True:  # ends with the queue
        pull = PullMessageRequest(
            consumer_group="ends",
            topic=OP_HALF_TOPIC,
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = ask(cluster.broker_address, Command(RequestCode.PULL_MESSAGE, ext=to_ext(pull)))
        records = decode_records(answer.body) if answer.code == 0 else []
        if not records:
            return count
        count += sum(len(op_numbers(record.body)) for record in records)
        offset = records[-1].queue_offset + 1


@pytest.mark.proves("broker:9.1", "broker:9.4", "client:B-99", "client:B-101")
@WAYS
def test_transactions_end_as_their_producer_says(
    clients: Side, cluster: Cluster, driver: JavaDriver, topic: str
) -> None:
    before = ends(cluster)
    texts = ["C_1", "R_1", "UC1", "UR1"]
    with transactions(clients, cluster.namesrv, f"{topic}_p", topic, texts):
        until_sync(lambda: bodies(driver, cluster, topic) == ["C_1", "UC1"])
        until_sync(lambda: ends(cluster) == before + len(texts))
    assert bodies(driver, cluster, topic) == ["C_1", "UC1"]
    assert {one.sys_flag & 0xC for one in driver.dump(cluster.namesrv, topic)} == {8}


@pytest.mark.proves("broker:7", "client:D-102", "client:D-57")
@WAYS
def test_a_message_that_fails_comes_again_and_becomes_a_dead_letter(
    clients: Side, cluster: Cluster, driver: JavaDriver, topic: str
) -> None:
    group = f"{topic}_g"[-60:]
    with driver.producer(cluster.namesrv, f"{topic}_p") as producer:
        (sent,) = producer.send([Message(topic, b"broken", tags="T", keys=["k"], properties={"mine": "1"})])
    tries = failing(clients, cluster.namesrv, group, topic, retries=1)
    assert tries == [(topic, 0, b"broken"), (topic, 1, b"broken")]
    dead = f"%DLQ%{group}"
    until_sync(lambda: known_bodies(driver, cluster, dead) == ["broken"])
    (letter,) = driver.dump(cluster.namesrv, dead)
    assert (letter.queue_id, letter.reconsume_times, letter.tags, letter.keys) == (0, 2, "T", "k")
    own = letter.properties
    assert (own["RETRY_TOPIC"], own["mine"], own["ORIGIN_MESSAGE_ID"]) == (topic, "1", sent.offset_msg_id)


@pytest.mark.proves("broker:10.6", "client:C-26", "client:C-27")
@pytest.mark.parametrize(
    ("way", "second"), [("java49 apache49", "java49"), ("java49 apache49", "ours"), ("ours ours", "java49")]
)
def test_ordered_members_share_queues(
    request: pytest.FixtureRequest,
    clients: Side,
    second: str,
    cluster: Cluster,
    driver: JavaDriver,
    topic: str,
) -> None:
    others: Side = request.getfixturevalue({"ours": "our_clients", "java49": "driver49"}[second])
    numbers = itertools.count()
    with ExitStack() as stack:
        producer = stack.enter_context(driver.producer(cluster.namesrv, f"{topic}_p"))

        def send() -> None:
            for number in itertools.islice(numbers, 20):
                queue = MessageQueue(topic, "broker-a", number % 2)
                producer.send([Message(topic, b"%d" % number)], queue=queue)

        send()
        seen = [stack.enter_context(ordered(clients, cluster.namesrv, f"{topic}_c", topic))]
        until_sync(lambda: len(seen[0]()) >= 20)
        seen.append(stack.enter_context(ordered(others, cluster.namesrv, f"{topic}_c", topic)))
        until_sync(lambda: send() or seen[1]())
        sent = next(numbers)
        until_sync(lambda: len({row for one in seen for row in one()}) == sent)
        came = [one() for one in seen]
    for rows in came:
        for queue_id in range(2):
            mine = first_arrivals(int(text) for queue, text in rows if queue == queue_id)
            assert mine == sorted(mine), "in order within a queue"


@pytest.mark.parametrize("way", ["java49 apache49", "ours ours"])
def test_a_group_is_handed_over_between_clients(
    clients: Side,
    cluster: Cluster,
    driver: JavaDriver,
    our_clients: OurClients,
    driver49: JavaDriver,
    topic: str,
) -> None:
    """Where one release's consumer stops, the next one's goes on."""
    with driver.producer(cluster.namesrv, f"{topic}_p") as producer:
        sides: tuple[Side, ...] = (driver49, our_clients, driver, driver49)
        for number, side in enumerate(sides):
            sent = producer.send(
                [Message(topic, b"%d" % one) for one in range(10 * number, 10 * number + 10)]
            )
            with side.consumer(cluster.namesrv, f"{topic}_c", {topic: "*"}) as consumer:
                expect_all(lambda: [one.msg_id for one in consumer.received()], {one.msg_id for one in sent})


async def _read_by_offset(namesrv: str, queue: MessageQueue, at: int) -> tuple[list[bytes], tuple[int, ...]]:
    found: list[bytes] = []
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        ends = (await consumer.min_offset(queue), await consumer.max_offset(queue))
        places = (*ends, await consumer.earliest_time(queue) or 0, await consumer.search_offset(queue, at))
        offset = ends[0]
        while offset < ends[1]:
            result = await consumer.pull(queue, offset)
            found += [one.body for one in result.messages]
            offset = result.next_offset
    return found, places


def next_millisecond() -> None:
    """Wait until a message would be stored at a later time than any before."""
    now = int(time.time() * 1000)
    until_sync(lambda: int(time.time() * 1000) > now)


@WAYS
def test_a_queue_is_read_by_offset_and_time(
    clients: Side, cluster: Cluster, driver: JavaDriver, topic: str
) -> None:
    queue = MessageQueue(topic, "broker-a", 1)
    with driver.producer(cluster.namesrv, f"{topic}_p") as producer:
        for body in (b"many", b"before", b"then", b"after"):
            producer.send([Message(topic, body)] * (40 if body == b"many" else 1), queue=queue)
            next_millisecond()
    stored = driver.dump(cluster.namesrv, topic)
    assert [one.body for one in stored] == [b"many"] * 40 + [b"before", b"then", b"after"]
    then = stored[41].store_timestamp
    expected = (0, 43, stored[0].store_timestamp, 41)
    if isinstance(clients, JavaDriver):
        found = [one.body for one in clients.dump(cluster.namesrv, topic)]
        value = {"topic": topic, "broker": "broker-a", "id": 1}
        arguments = {"namesrv": cluster.namesrv, "queue": value, "timestamp": then}
        said = clients.call("admin.offsets", **arguments)
        places = (said["min"], said["max"], said["earliest"], said["at"])
    else:
        found, places = clients.run(_read_by_offset(cluster.namesrv, queue, then))
    assert found == [one.body for one in stored]
    assert places == expected


async def is_refused(producer: aio.Producer, message: Message) -> bool:
    try:
        await producer.send(message)
    except ClientError as error:
        assert str(error).endswith("is older than 5.0 and would deliver a message with delay or deliver_at "
                                   "at once; use delay_level")  # fmt: skip
        return True
    return False


@pytest.mark.proves("client:G-26")
def test_a_timed_message_is_refused_that_an_old_broker_would_deliver_at_once(
    apache49: ApacheCluster, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(apache49.namesrv).create_topic(apache49.broker_address, name, 1)

    async def send() -> None:
        settings = aio.ProducerSettings(namesrv=apache49.namesrv, heartbeat_interval=0.2)
        async with aio.Producer(name, settings=settings) as producer:
            await until(lambda: is_refused(producer, Message(name, b"timed", delay=1.0)))
            await producer.send(Message(name, b"level", delay_level=1))

    our_clients.run(send())
    until_sync(lambda: "level" in bodies(driver, apache49, name))
