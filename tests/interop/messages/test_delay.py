"""Delay levels, timed messages, recall, retries and dead letters: Java's clients and ours on both brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver, Received
from tests.interop.exchanges import failing
from tests.interop.ours import OurClients
from tests.support import until_sync

from sparrowmq.core.message import Message
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
Cluster = ApacheCluster | LocalCluster
SERVERS = pytest.mark.parametrize("servers", ["apache", "ours"])
SIDES = pytest.mark.parametrize("side", ["java", "ours"])
LATE_MS_MAX = 10_000
"""Far above what delivery takes: only a message that is not delivered at its time is so late."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest, servers: str) -> Cluster:
    found: Cluster = request.getfixturevalue(servers)
    return found


def send(
    side: str, driver: JavaDriver, clients: OurClients, cluster: Cluster, topic: str, wanted: Any
) -> None:
    """Send one message for each way of waiting, by either client."""
    if side == "java":
        driver.call("Delays.send", namesrv=cluster.namesrv, topic=topic, messages=wanted)
        return
    ways = {"level": "delay_level", "delay_ms": "delay", "deliver_ms": "deliver_at"}
    messages = []
    for one in wanted:
        ((way, value),) = [(name, value) for name, value in one.items() if name != "body"]
        value = value if way == "level" else value / 1000
        messages.append(Message(topic, one["body"].encode(), **{ways[way]: value}))
    with clients.producer(cluster.namesrv, f"{topic}_p") as producer:
        producer.send(messages)


@SERVERS
@SIDES
@pytest.mark.parametrize("reader", ["java", "ours"])
@pytest.mark.proves("client:B-104", "client:B-105", "broker:8.1", "broker:8.2")
def test_messages_arrive_when_they_are_due(
    cluster: Cluster, side: str, reader: str, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 2)
    start = int(time.time() * 1000)
    due = {"level": 1000, "relative": 1500, "absolute": 2000}
    wanted = [
        {"body": "level", "level": 1},
        {"body": "relative", "delay_ms": due["relative"]},
        {"body": "absolute", "deliver_ms": start + due["absolute"]},
    ]
    send(side, driver, our_clients, cluster, name, wanted)
    consumers: JavaDriver | OurClients = driver if reader == "java" else our_clients
    with consumers.consumer(cluster.namesrv, f"{name}_c", {name: "*"}) as consumer:
        received = {message.body.decode(): message for message in consumer.wait(3)}
    assert received.keys() == due.keys()
    for body, message in received.items():
        begin = start if body == "absolute" else message.born_timestamp
        late = message.store_timestamp - begin - due[body]
        assert 0 <= late < LATE_MS_MAX, (body, late)
        assert message.properties["REAL_TOPIC"] == name


@SERVERS
@SIDES
@pytest.mark.proves("broker:7", "client:D-102", "client:D-57", "client:D-106")
def test_a_message_that_always_fails_becomes_a_dead_letter(
    cluster: Cluster, side: str, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, 1)
    group = f"{name}_g"[-60:]
    with our_clients.producer(cluster.namesrv, f"{name}_p") as producer:
        (sent,) = producer.send([Message(name, b"broken", tags="T", keys=["k"], properties={"mine": "1"})])
    clients = driver if side == "java" else our_clients
    tries = failing(clients, cluster.namesrv, group, name, retries=2)
    assert tries == [(name, 0, b"broken"), (name, 1, b"broken"), (name, 2, b"broken")]
    dead: list[Received] = []

    def is_dead() -> bool:
        try:
            dead[:] = driver.dump(cluster.namesrv, f"%DLQ%{group}")
        except Exception:  # the topic is not known yet
            return False
        return len(dead) == 1

    until_sync(is_dead)
    (letter,) = dead
    assert (letter.queue_id, letter.reconsume_times, letter.tags, letter.keys) == (0, 3, "T", "k")
    own = letter.properties
    assert (own["RETRY_TOPIC"], own["mine"], own["DELAY"]) == (name, "1", "0")
    assert own["ORIGIN_MESSAGE_ID"] == sent.offset_msg_id


@pytest.fixture(scope="module")
def recalling() -> Iterator[LocalCluster]:
    """Our servers with recall on."""
    with LocalCluster(recall_message_enable=True) as cluster:
        yield cluster


@pytest.mark.proves("broker:8.3", "client:B-106", "client:B-107")
def test_java_takes_a_message_back_from_our_broker(
    recalling: LocalCluster, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    driver.admin(recalling.namesrv).create_topic(recalling.broker_address, name, 1)
    wanted = [{"body": body, "delay_ms": 6000} for body in ("mistake", "good")]
    handles = driver.call("Delays.send", namesrv=recalling.namesrv, topic=name, messages=wanted)
    assert driver.call("Delays.recall", namesrv=recalling.namesrv, topic=name, handle=handles[0])
    with our_clients.consumer(recalling.namesrv, f"{name}_c", {name: "*"}) as consumer:
        assert [message.body for message in consumer.wait(1)] == [b"good"]
    until_sync(lambda: time.time() * 1000 > consumer.received()[0].store_timestamp + 300)
    assert [message.body for message in driver.dump(recalling.namesrv, name)] == [b"good"]


def test_a_directory_with_waiting_messages_changes_hands(
    tmp_path: Path, driver: JavaDriver, name: str
) -> None:
    """Ours keeps them in Apache's files, and delivers them after having been closed over their time."""
    root = tmp_path / "store"
    wanted = [{"body": "level", "level": 2}, {"body": "timed", "delay_ms": 4000}]
    with LocalCluster(root) as first:
        driver.admin(first.namesrv).create_topic(first.broker_address, name, 1)
        driver.call("Delays.send", namesrv=first.namesrv, topic=name, messages=wanted)
    assert (root / "timerwheel").stat().st_size == 38_707_200
    with LocalCluster(root) as second:
        until_sync(lambda: len(driver.dump(second.namesrv, name)) == 2)
        for message in driver.dump(second.namesrv, name):
            wait = 5000 if message.body == b"level" else 4000
            assert message.store_timestamp - message.born_timestamp >= wait
