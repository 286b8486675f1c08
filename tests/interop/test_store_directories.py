"""Store directories change hands: ours, Apache's, ours again, with every message, offset and key.

After clean stops and after `kill -9`, by either side.
"""

from __future__ import annotations

import random
import shutil
import socket
import time
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conftest import LONG
from tests.interop.apache import NEW, OLD, PATIENT, ApacheCluster, Release, ask
from tests.interop.driver import JavaDriver, Received
from tests.store.rig import append, bodies_of, open_store
from tests.support import until_sync

from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import Message
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command, encode
from sparrowmq.protocol.headers import SendMessageRequest, send_v2_to_ext, to_ext
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

LOG_FILE_BYTES: Final = 1024 * 1024
QUEUE_FILE_BYTES: Final = 20 * 1000
INDEX_SLOTS: Final = 500
INDEX_ENTRIES: Final = 2000
SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": LOG_FILE_BYTES,
    "mapped_file_size_consume_queue": QUEUE_FILE_BYTES,
    "max_hash_slot_num": INDEX_SLOTS,
    "max_index_num": INDEX_ENTRIES,
}


def _ours(store: Path) -> LocalCluster:
    return LocalCluster(store, **SIZES)


def _apache(directory: Path, store: Path, release: Release = NEW) -> ApacheCluster:
    sizes = {
        **PATIENT,
        "transactionTimeOut": 500,
        "transactionCheckInterval": 500,
        "mappedFileSizeCommitLog": LOG_FILE_BYTES,
        "mappedFileSizeConsumeQueue": QUEUE_FILE_BYTES,
        "maxHashSlotNum": INDEX_SLOTS,
        "maxIndexNum": INDEX_ENTRIES,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }
    return ApacheCluster(directory, settings=sizes, release=release)


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


def _check_keys(driver: JavaDriver, namesrv: str, topic: str, name: str) -> None:
    """Single sends of one fill are found by their keys."""
    for number in range(0, 360, 40):
        found = driver.call("Lookups.byKey", namesrv=namesrv, topic=topic, key=f"{name}-{number}", count=5)
        assert [one["flag"] for one in found] == [number], (name, number)


def _consume(driver: JavaDriver, namesrv: str, topic: str, count: int) -> list[bytes]:
    with driver.consumer(namesrv, f"{topic}_c", {topic: "*"}) as consumer:
        return sorted(message.body for message in consumer.wait(count))


def _commit_together(cluster: LocalCluster, topic: str, count: int) -> None:
    """Transactions whose ends come in one read, so that they share an op record."""
    ends = []
    for number in range(count):
        half = SendMessageRequest(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=4,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties=f"TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01TX{number}\x02",
        )
        send = Command(RequestCode.SEND_MESSAGE_V2, ext=send_v2_to_ext(half), body=b"%d" % number)
        answer = ask(cluster.broker_address, send)
        end = EndTransactionRequest(
            producer_group="p",
            tran_state_table_offset=int(answer.ext["queueOffset"]),
            commit_log_offset=parse_offset_message_id(answer.ext["msgId"])[2],
            commit_or_rollback=8,
        )
        ends.append(Command(RequestCode.END_TRANSACTION, number, FLAG_ONEWAY, to_ext(end)))
    host, port = cluster.broker_address.split(":")
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(b"".join(map(encode, ends)))
        until_sync(lambda: _max_offset(cluster.broker_address, OP_HALF_TOPIC) == 1)
    assert _max_offset(cluster.broker_address, topic) == count


def _max_offset(address: str, topic: str) -> int:
    where = {"topic": topic, "queueId": "0"}
    return int(ask(address, Command(RequestCode.GET_MAX_OFFSET, ext=where)).ext["offset"])


def _checked(address: str) -> int:
    """Up to where in the half queue a broker's checks have nothing more to do; -1 before the first."""
    where = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": HALF_TOPIC, "queueId": "0"}
    answer = ask(address, Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=where))
    return int(answer.ext["offset"]) if answer.code == 0 else -1


@pytest.mark.proves("broker:9.3")
@pytest.mark.parametrize("release", [NEW, OLD] if LONG else [NEW], ids=lambda release: release.pom)
def test_a_directory_goes_from_ours_to_apache_and_back(
    release: Release, driver: JavaDriver, tmp_path: Path
) -> None:
    store, topic = tmp_path / "store", "Handed"
    with _ours(store) as cluster:
        driver.admin(cluster.namesrv).create_topic(cluster.broker_address, topic, 3)
        first = _fill(driver, cluster.namesrv, topic, "ours")
        _consume(driver, cluster.namesrv, topic, first)
        _commit_together(cluster, "HandedTogether", 12)
        before = driver.dump(cluster.namesrv, topic)
    assert len(before) == first
    assert not (store / "abort").exists()

    with _apache(tmp_path, store, release) as peer:
        assert [_content(message) for message in driver.dump(peer.namesrv, topic)] == [
            _content(message) for message in before
        ]
        _check_keys(driver, peer.namesrv, topic, "ours")
        second = _fill(driver, peer.namesrv, topic, "apache")
        bodies = _consume(driver, peer.namesrv, topic, second)
        assert bodies == sorted(message.body for message in _messages(topic, "apache", 400))
        between = driver.dump(peer.namesrv, topic)
        if release is NEW:  # 4.9 does not know of op records that are shared
            until_sync(lambda: _checked(peer.broker_address) == 12)
            assert _max_offset(peer.broker_address, HALF_TOPIC) == 12, "no half message was checked"
        peer.broker.stop()
    assert len(between) == first + second
    assert not (store / "abort").exists()

    with _ours(store) as cluster:
        after = driver.dump(cluster.namesrv, topic)
        assert [_content(message) for message in after] == [_content(message) for message in between]
        third = _fill(driver, cluster.namesrv, topic, "again")
        for name in ("ours", "apache", "again"):
            _check_keys(driver, cluster.namesrv, topic, name)
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
        _check_keys(driver, cluster.namesrv, topic, "apache")


@pytest.mark.proves("broker:2.9", "broker:18")
def test_apache_opens_what_ours_left_when_it_was_killed(driver: JavaDriver, tmp_path: Path) -> None:
    """With a queue and the checkpoint lost: entries of the last file that did not reach the disk."""
    root, topic, rng = tmp_path / "store", "Moving", random.Random(7)
    expected: list[list[bytes]] = [[] for _ in range(3)]
    store = open_store(root, **SIZES)
    for number in range(3000):
        queue_id, body = rng.randrange(3), b"%d:" % number + rng.randbytes(rng.randrange(1500))
        properties = b"TAGS\x01T%d\x02KEYS\x01k%d\x02UNIQ_KEY\x01%032X\x02" % (number % 3, number, number)
        code = 84 * 31 + 48 + number % 3
        append(store, store.queue(topic, queue_id), body, properties=properties, tags_code=code)
        expected[queue_id].append(body)
        if rng.random() < 0.3:
            store.commit_chunk()
        if number == 1500:
            store.flush()
            store.flush_queues(safe_point=True)
    store.commit_chunk()
    config = {"perm": 6, "readQueueNums": 3, "writeQueueNums": 3, "topicName": topic, "order": False}
    config |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
    version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
    table = {"dataVersion": version, "topicConfigTable": {topic: config}}
    ConfigFile(root / "config" / "topics.json").save(table)
    store.abandon()
    shutil.rmtree(root / "consumequeue" / topic / "1")
    (root / "checkpoint").unlink()
    with _apache(tmp_path, root) as peer:
        seen: list[list[bytes]] = [[] for _ in range(3)]
        for message in driver.dump(peer.namesrv, topic):
            seen[message.queue_id].append(message.body)
        assert seen == expected
        peer.broker.kill()
    again = open_store(root, **SIZES)
    assert not again.recovery.clean
    assert (again.recovery.damaged, again.recovery.refused) == ((), 0)
    assert [bodies_of(again, topic, queue_id) for queue_id in range(3)] == expected
    again.close()
