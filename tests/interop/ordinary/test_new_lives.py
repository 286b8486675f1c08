"""A topic that begins, or begins again, under Java's clients: they get its messages from the first on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.interop.driver import JavaConsumer, JavaDriver
from tests.support import expect_all, until_sync

from sparrowmq.core.message import Message
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
QUEUES = 2
OLD = [b"old %d" % number for number in range(40)]
NEW = [b"new %d" % number for number in range(10)]
"""Fewer than before: the offsets that Java's clients keep are past the end of the new queues."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Our servers, for one test; a topic that nobody made is made with two queues."""
    with LocalCluster(tmp_path / "store", default_topic_queue_nums=QUEUES) as running:
        yield running


def send(driver: JavaDriver, cluster: LocalCluster, topic: str, bodies: list[bytes]) -> None:
    """Send messages by a producer of their own."""
    with driver.producer(cluster.namesrv, f"{topic}_p") as producer:
        producer.send([Message(topic, body) for body in bodies])


def bodies(consumer: JavaConsumer) -> list[bytes]:
    """What came to the consumer so far."""
    return [one.body for one in consumer.received()]


def read_some(driver: JavaDriver, cluster: LocalCluster, topic: str, consumer: JavaConsumer) -> None:
    """Have the consumer read and commit messages of a topic's first life."""
    send(driver, cluster, topic, OLD)
    expect_all(lambda: bodies(consumer), OLD)
    progress = driver.admin(cluster.namesrv).group_progress
    until_sync(lambda: sum(done for _, done in progress(f"{topic}_c").values()) == len(OLD))


def reads_all_new(driver: JavaDriver, cluster: LocalCluster, topic: str, consumer: JavaConsumer) -> None:
    """What is sent to the second life comes, and the group's offsets are those of that life."""
    send(driver, cluster, topic, NEW)
    expect_all(lambda: bodies(consumer), OLD + NEW)
    progress = driver.admin(cluster.namesrv).group_progress
    until_sync(lambda: sum(done for _, done in progress(f"{topic}_c").values()) == len(NEW))
    assert all(end == done for end, done in progress(f"{topic}_c").values())


def test_a_topic_deleted_and_made_again_under_a_consumer(
    driver: JavaDriver, cluster: LocalCluster, name: str
) -> None:
    """Apache's client keeps its offset, and takes it back 10 s after the broker told it where the queue
    begins. Were the new queues longer than that offset by then, it would skip what lies before it, at any
    broker.
    """
    admin = driver.admin(cluster.namesrv)
    admin.create_topic(cluster.broker_address, name, QUEUES)
    with driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}) as consumer:
        read_some(driver, cluster, name, consumer)
        where = {"namesrv": cluster.namesrv, "broker_addr": cluster.broker_address}
        assert driver.call("Tools.deleteTopic", topic=name, **where)
        admin.create_topic(cluster.broker_address, name, QUEUES)
        reads_all_new(driver, cluster, name, consumer)


def test_a_broker_that_comes_back_on_an_empty_disk(
    driver: JavaDriver, cluster: LocalCluster, name: str
) -> None:
    """The same holds for all its topics, which are made again."""
    admin = driver.admin(cluster.namesrv)
    admin.create_topic(cluster.broker_address, name, QUEUES)
    with driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}) as consumer:
        read_some(driver, cluster, name, consumer)
        cluster.stop_broker()
        shutil.rmtree(cluster.data)
        cluster.start_broker()
        admin.create_topic(cluster.broker_address, name, QUEUES)
        reads_all_new(driver, cluster, name, consumer)


@pytest.mark.parametrize("there", ["made before", "made by the first message"])
def test_a_consumer_from_the_last_offset_starts_beside_its_producer(
    driver: JavaDriver, cluster: LocalCluster, name: str, there: str
) -> None:
    """A queue that has all its messages in the cached part of the log is read from its beginning: whichever
    of the two starts first, the consumer gets the first message.
    """
    if there == "made before":
        driver.admin(cluster.namesrv).create_topic(cluster.broker_address, name, QUEUES)
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(send, driver, cluster, name, NEW)
        with driver.consumer(cluster.namesrv, f"{name}_c", {name: "*"}, from_last=True) as consumer:
            sending.result(60)
            expect_all(lambda: bodies(consumer), NEW)
