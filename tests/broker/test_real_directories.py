"""A whole broker with directories of real Apache brokers: clients see the same as at those brokers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, ledger, unpacked
from tests.store.rig import ARCHIVE_SIZES
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

THEIRS = ("Fx", "%RETRY%", "%DLQ%")
"""How the names of topics begin that are not the broker's own."""
GONE = "FxGone"
"""The topic that was deleted before the broker ended."""


@dataclass(frozen=True)
class Opened:
    """A broker with a copy of a real broker's directory."""

    name: str
    cluster: LocalCluster

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """The recorded values of existing topics that are not the broker's own."""
        lines = ledger(self.name, kind)
        return [line for line in lines if line["topic"] != GONE and line["topic"].startswith(THEIRS)]


@pytest.fixture(scope="module", params=[CLEAN_5, KILLED_5, CLEAN_4])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Each archive, unpacked."""
    root = tmp_path_factory.mktemp("real") / "store"
    shutil.copytree(unpacked(request.param), root)
    index = {"max_hash_slot_num": 200, "max_index_num": 1000}
    sizes = {**ARCHIVE_SIZES, **index, "mapped_file_size_timer_log": 4096}
    with LocalCluster(root, **sizes) as cluster:
        yield Opened(request.param, cluster)


def read(consumer: mq.PullConsumer, queue: mq.MessageQueue) -> list[mq.ReceivedMessage]:
    """Every message of a queue."""
    found: list[mq.ReceivedMessage] = []
    offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
    while offset < end:
        result = consumer.pull(queue, offset)
        found += result.messages
        offset = result.next_offset
    return found


def place(message: mq.ReceivedMessage) -> str:
    """A message as the recorded queries write it."""
    return f"{message.message_id}@{message.queue.queue_id}:{message.queue_offset}@{message.physical_offset}"


@pytest.mark.proves("broker:1.1", "broker:18")
def test_clients_get_every_message_as_from_the_real_broker(opened: Opened) -> None:
    wanted = opened.lines("seen")
    queues = {(line["topic"], line["queueId"]) for line in wanted}
    found = {}
    with mq.PullConsumer(namesrv=opened.cluster.namesrv) as consumer:
        for topic, queue_id in sorted(queues):
            for message in read(consumer, mq.MessageQueue(topic, "broker-a", queue_id)):
                found[topic, queue_id, message.queue_offset] = message
    assert len(wanted) > 2900
    for line in wanted:
        message = found[line["topic"], line["queueId"], line["queueOffset"]]
        assert (message.message_id, message.offset_message_id) == (line["msgId"], line["offsetMsgId"])
        assert (message.physical_offset, message.store_size) == (line["offset"], line["size"])
        assert (message.born_timestamp, message.store_timestamp) == (line["born"], line["store"])
        assert (message.flag, message.reconsume_times) == (line["flag"], line["reconsume"])
        own = {name: message.properties.pop(name) for name in ("MIN_OFFSET", "MAX_OFFSET")}
        assert message.properties == line["props"] and int(own["MAX_OFFSET"]) > line["queueOffset"]
        assert len(message.body) == line["bodyLen"]
        assert hashlib.sha1(message.body).hexdigest() == line["bodySha1"]


@pytest.mark.proves("broker:1.4", "client:D-76")
def test_groups_continue_at_their_offsets(opened: Opened) -> None:
    stood = [line for line in opened.lines("offset") if line["offset"] >= 0]
    assert {line["group"] for line in stood} >= {"FxMid", "FxLite"}
    ends: dict[mq.MessageQueue, tuple[int, int]] = {}
    for group in sorted({line["group"] for line in stood}):
        with mq.PullConsumer(group, namesrv=opened.cluster.namesrv) as consumer:
            for line in stood:
                queue = mq.MessageQueue(line["topic"], "broker-a", line["queueId"])
                if line["group"] == group:
                    assert consumer.committed(queue) == line["offset"], line
                if line["group"] == group == "FxMid":
                    ends[queue] = (line["offset"], consumer.max_offset(queue))
    left = {(queue, offset) for queue, (first, end) in ends.items() for offset in range(first, end)}
    got: set[tuple[mq.MessageQueue, int]] = set()
    with mq.PushConsumer("FxMid", namesrv=opened.cluster.namesrv) as consumer:
        for topic in {queue.topic for queue in ends}:
            consumer.subscribe(topic, handler=lambda one: got.add((one.queue, one.queue_offset)))
        until_sync(lambda: len(got) >= len(left))
    assert got == left and len(left) > 1000


@pytest.mark.proves("broker:4.3")
def test_keys_are_found_and_sends_append(opened: Opened) -> None:
    asked = opened.lines("query")
    assert len(asked) > 10
    with mq.Admin(namesrv=opened.cluster.namesrv) as admin:
        for line in asked:
            found = admin.messages.query(line["topic"], line["key"], count=64)
            assert sorted(map(place, found)) == sorted(text for text in line["found"] if text != "none")
    queue = mq.MessageQueue("FxPlainA", "broker-a", 1)
    with mq.Producer("after", namesrv=opened.cluster.namesrv) as producer:
        end = producer.max_offset(queue)
        sent = producer.send(mq.Message("FxPlainA", b"ours", keys=["k0"]), queue=queue)
        assert (sent.queue_offset, producer.max_offset(queue)) == (end, end + 1)
    with mq.Admin(namesrv=opened.cluster.namesrv) as admin:
        until_sync(lambda: len(admin.messages.query("FxPlainA", "k0")) == 2)
