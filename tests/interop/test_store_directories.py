"""Store directories change hands: ours to Apache's broker and back, with every message and offset."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.interop.apache import PATIENT, ApacheCluster
from tests.interop.driver import JavaDriver, Received

from sparrowmq.core.message import Message
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

LOG_FILE_BYTES: Final = 1024 * 1024
QUEUE_FILE_BYTES: Final = 20 * 1000


def _ours(store: Path) -> LocalCluster:
    return LocalCluster(
        store,
        mapped_file_size_commit_log=LOG_FILE_BYTES,
        mapped_file_size_consume_queue=QUEUE_FILE_BYTES,
    )


def _apache(directory: Path, store: Path) -> ApacheCluster:
    sizes = {
        **PATIENT,
        "mappedFileSizeCommitLog": LOG_FILE_BYTES,
        "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    return ApacheCluster(directory, settings=sizes)


def _messages(topic: str, name: str, count: int) -> list[Message]:
    return [
        Message(
            topic,
            f"{name} {number} ".encode() * (1 + 50 * (number % 20)),
            tags=f"tag{number % 3}",
            keys=[f"{name}-{number}"],
            properties={"größe": "ü"},
            flag=number,
        )
        for number in range(count)
    ]


def _content(message: Received) -> tuple[object, ...]:
    place = (message.queue_id, message.queue_offset, message.physical_offset)
    times = (message.born_timestamp, message.store_timestamp)
    own = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "CLUSTER"}
    properties = sorted((key, value) for key, value in message.properties.items() if key not in own)
    return (*place, *times, message.msg_id, message.body, message.flag, tuple(properties))


def _fill(driver: JavaDriver, namesrv: str, topic: str, name: str) -> int:
    """Send singly and in a batch; the number of messages."""
    messages = _messages(topic, name, 400)
    with driver.producer(namesrv, f"{topic}_p") as producer:
        producer.send(messages[:360], "async")
        producer.send(
            [Message(topic, message.body, tags=message.tags) for message in messages[360:]], "batch"
        )
    return len(messages)


def _consume(driver: JavaDriver, namesrv: str, topic: str, count: int) -> list[bytes]:
    with driver.consumer(namesrv, f"{topic}_c", {topic: "*"}) as consumer:
        return sorted(message.body for message in consumer.wait(count))


def test_a_directory_goes_from_ours_to_apache_and_back(driver: JavaDriver, tmp_path: Path) -> None:
    store, topic = tmp_path / "store", "Handed"
    with _ours(store) as cluster:
        driver.admin(cluster.namesrv).create_topic(cluster.broker_address, topic, 3)
        first = _fill(driver, cluster.namesrv, topic, "ours")
        _consume(driver, cluster.namesrv, topic, first)
        before = driver.dump(cluster.namesrv, topic)
    assert len(before) == first
    assert not (store / "abort").exists()

    with _apache(tmp_path, store) as peer:
        assert [_content(message) for message in driver.dump(peer.namesrv, topic)] == [
            _content(message) for message in before
        ]
        second = _fill(driver, peer.namesrv, topic, "apache")
        bodies = _consume(driver, peer.namesrv, topic, second)
        assert bodies == sorted(message.body for message in _messages(topic, "apache", 400))
        between = driver.dump(peer.namesrv, topic)
        peer.broker.stop()
    assert len(between) == first + second
    assert not (store / "abort").exists()

    with _ours(store) as cluster:
        after = driver.dump(cluster.namesrv, topic)
        assert [_content(message) for message in after] == [_content(message) for message in between]
        third = _fill(driver, cluster.namesrv, topic, "again")
        bodies = _consume(driver, cluster.namesrv, topic, third)
        assert bodies == sorted(message.body for message in _messages(topic, "again", 400))


def test_ours_opens_what_apache_left_when_it_was_killed(driver: JavaDriver, tmp_path: Path) -> None:
    store, topic = tmp_path / "store", "Killed"
    with _apache(tmp_path, store) as peer:
        driver.admin(peer.namesrv).create_topic(peer.broker_address, topic, 3)
        count = _fill(driver, peer.namesrv, topic, "apache")
        before = driver.dump(peer.namesrv, topic)
        peer.broker.kill()
    assert (store / "abort").exists()
    with _ours(store) as cluster:
        after = driver.dump(cluster.namesrv, topic)
        assert len(after) == count
        assert [_content(message) for message in after] == [_content(message) for message in before]
