"""The broker's own writes: chunks, topics created on demand, waking pulls, reading back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import Rig, connection, damage
from tests.support import about, run, until

from sparrowmq.broker.base.internal_store import InnerMessage, InnerStore
from sparrowmq.core.errors import NoTopicError, RecordError, StoreError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol import properties
from sparrowmq.protocol.bodies import TopicConfig


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "store")
    made.make_topic("TopicTest", 2)
    yield made
    made.close()


def message(
    topic: str = "TopicTest", queue_id: int = 0, body: bytes = b"one", **changes: Any
) -> InnerMessage:
    values: dict[str, Any] = {
        "properties": b"TAGS\x01TagA\x02",
        "flag": 3,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "born_host": connection().born_host,
    }
    return InnerMessage(topic, queue_id, body, **(values | changes))


def test_chunk_is_stored_in_order_and_read_back(rig: Rig) -> None:
    placed = rig.inner.put([message(body=b"a"), message(body=b"b"), message(queue_id=1, body=b"c")])
    assert [place.queue_offset for place in placed] == [0, 1, 0]
    record = rig.inner.read(placed[1].physical_offset)
    assert record is not None
    assert (record.body, record.flag, record.born_timestamp) == (b"b", 3, 1_700_000_000_123)
    assert rig.inner.read(placed[1].physical_offset + 1) is None
    entry = rig.store.queue("TopicTest", 0).entry(0)
    assert entry is not None and entry.tags_code == java_hash("TagA")


def test_possibly_too_large_messages_do_not_block_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    large = message(properties=b"K\x01" + b"v" * PROPERTIES_BYTES_MAX)
    rig.inner.put_those_that_fit([message(body=b"a"), large, message(body=b"b")], "a timed message")
    records = rig.inner.scan("TopicTest", 0, 0, 10, 1 << 20).records
    assert [record.body for record in records] == [b"a", b"b"]
    assert "a timed message for TopicTest cannot be delivered" in caplog.text
    assert rig.store.stats.lost == 1


def test_copy_that_only_just_does_not_fit_goes_without_optional_properties(rig: Rig) -> None:
    file_bytes = rig.settings.mapped_file_size_commit_log
    optional = properties.encode({"MSG_REGION": "r", "SPARROW_ERROR": "why", "TAGS": "A"})
    body = bytes(file_bytes - 8 - 91 - len("TopicTest") - len(optional) + 1)
    rig.inner.put_those_that_fit([message(body=body, properties=optional)], "a delayed message")
    (record,) = rig.inner.scan("TopicTest", 0, 0, 1, 1 << 20).records
    assert (record.body, properties.decode(record.properties)) == (body, {"TAGS": "A"})
    assert rig.store.stats.lost == 0


def test_limit_of_clients_does_not_apply_to_copies(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "small", max_message_size=1, mapped_file_size_commit_log=1 << 20)
    rig.make_topic("TopicTest", 1)
    rig.inner.put([message(body=bytes(100_000))])
    assert len(rig.inner.scan("TopicTest", 0, 0, 1, 1 << 20).records) == 1
    rig.close()


def test_explicit_tag_code_is_stored_in_the_queue_entry(rig: Rig) -> None:
    rig.inner.put([message(tags_code=1_700_000_005_000), message(properties=b"")])
    queue = rig.store.queue("TopicTest", 0)
    codes = [entry.tags_code for n in range(2) if (entry := queue.entry(n)) is not None]
    assert codes == [1_700_000_005_000, 0]


@pytest.mark.parametrize("topic", ["%RETRY%g", "%DLQ%g", "rmq_sys_thing", "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_internal_topics_are_created(rig: Rig, topic: str) -> None:
    rig.inner.put([message(topic)])
    assert rig.topics.configs[topic].perm == 6
    assert rig.registration.soon == 1


def test_message_of_an_unknown_topic_is_refused_and_opens_no_queue(rig: Rig) -> None:
    with pytest.raises(NoTopicError, check=about(what="topic", value="Gone")):
        rig.inner.put([message(), message("Gone", 2)])
    assert rig.store.position == 0 and rig.store.find_queue("Gone", 2) is None


def test_delivery_to_a_deleted_topic_is_counted_and_does_not_block_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.inner.put_those_that_fit([message(body=b"a"), message("Gone"), message(body=b"b")], "a timed message")
    records = rig.inner.scan("TopicTest", 0, 0, 10, 1 << 20).records
    assert [record.body for record in records] == [b"a", b"b"]
    assert rig.store.stats.lost == 1 and "a timed message for Gone cannot be delivered" in caplog.text


@pytest.mark.parametrize(
    ("read", "write", "asked", "used"),
    [(4, 4, 3, 3), (4, 2, 3, 3), (2, 4, 3, 1), (2, 2, 3, 1), (4, 2, 5, 1), (3, 0, 4, 1)],
)
def test_a_queue_that_consumers_cannot_read_is_replaced_by_one_they_can(
    rig: Rig, read: int, write: int, asked: int, used: int
) -> None:
    rig.put_topic(TopicConfig(topic_name="T", read_queue_nums=read, write_queue_nums=write))
    rig.inner.put([message("T", asked)])
    assert [queue.queue_id for queue in rig.store.queues("T")] == [used]


def test_a_system_topic_gets_the_queues_that_its_messages_need(rig: Rig) -> None:
    rig.inner.put([message("SCHEDULE_TOPIC_XXXX", 19)])
    assert rig.topics.configs["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 20
    assert [queue.queue_id for queue in rig.store.queues("SCHEDULE_TOPIC_XXXX")] == [19]


def test_the_limit_of_topics_stops_no_message_that_was_accepted(rig: Rig) -> None:
    rig.topics._topics_max = len(rig.topics.configs)
    rig.inner.put([message("%RETRY%g")])
    assert "%RETRY%g" in rig.topics.configs


def test_nothing_is_stored_when_one_message_does_not_fit(rig: Rig) -> None:
    with pytest.raises(RecordError):
        rig.inner.put([message(), message(properties=b"x" * (PROPERTIES_BYTES_MAX + 1))])
    assert rig.store.position == 0
    assert rig.inner.put([message()])[0].queue_offset == 0


def test_nothing_is_stored_on_a_failed_disk(rig: Rig) -> None:
    rig.flusher.failed = OSError("gone")
    with pytest.raises(StoreError, check=about(what="disk")):
        rig.inner.put([message()])


def test_scan_continues_where_it_ended(rig: Rig) -> None:
    rig.inner.put([message(body=b"%d" % n) for n in range(5)])
    first = rig.inner.scan("TopicTest", 0, 0, 3, 1 << 20)
    assert [record.body for record in first.records] == [b"0", b"1", b"2"]
    rest = rig.inner.scan("TopicTest", 0, first.next_offset, 3, 1 << 20)
    assert ([record.body for record in rest.records], rest.next_offset) == ([b"3", b"4"], 5)
    assert rig.inner.scan("TopicTest", 0, 5, 3, 1 << 20) == ([], 5)
    assert rig.inner.scan("Nobody", 0, 0, 3, 1 << 20) == ([], 0)


@pytest.mark.parametrize("part", ["body", "length"])
def test_scan_omits_damaged_records(rig: Rig, part: str, caplog: pytest.LogCaptureFixture) -> None:
    placed = rig.inner.put([message(body=b"%d" % n) for n in range(4)])
    damage(rig, placed[2].physical_offset, part)
    found = rig.inner.scan("TopicTest", 0, 0, 10, 1 << 20)
    assert ([record.body for record in found.records], found.next_offset) == ([b"0", b"1", b"3"], 4)
    assert f"the message at {placed[2].physical_offset} is damaged" in caplog.text


def test_copy_keeps_what_consumers_see(rig: Rig) -> None:
    (place,) = rig.inner.put([message(reconsume_times=2, sys_flag=1)])
    record = rig.inner.read(place.physical_offset)
    assert record is not None
    assert InnerMessage.copy_of(record, "Other", 1) == message("Other", 1, reconsume_times=2, sys_flag=1)


def inner_of(rig: Rig, woken: list[str]) -> InnerStore:
    return InnerStore(
        rig.store,
        rig.topics,
        rig.flusher,
        rig.parts.durability,
        rig.clock,
        wake=lambda queues: woken.extend(queue.topic for queue in queues),
        topic_made=lambda: None,
    )


def test_pulls_are_woken_at_once(rig: Rig) -> None:
    woken: list[str] = []
    inner_of(rig, woken).put([message(), message()])
    assert woken == ["TopicTest"]
    inner_of(rig, woken).put([])
    assert woken == ["TopicTest"]


def test_with_sync_flush_pulls_are_woken_after_the_flush(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path / "sync", flush_disk_type="SYNC_FLUSH")
        rig.make_topic("TopicTest", 1)
        woken: list[str] = []
        inner_of(rig, woken).put([message()])
        assert woken == []
        rig.flusher.start()
        await until(lambda: woken == ["TopicTest"])
        await rig.flusher.close()
        rig.close()

    run(scenario())
