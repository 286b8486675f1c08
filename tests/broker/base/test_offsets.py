"""Offsets of groups and queues: known and unknown ones, in the middle and beyond the ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection
from tests.support import run

from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.broker.base.offsets import OffsetRequests
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY

COUNT = 5
SECOND = 1000


class Desk:
    """Topic T with two queues and group g; the first queue has five messages, one per second."""

    def __init__(self, root: Path, *, cached_ratio: int = 40) -> None:
        rig = self.rig = Rig(root)
        rig.put_topic(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        run(rig.groups.put([SubscriptionGroupConfig(group_name="g")]))
        self.times = []
        for _ in range(COUNT):
            rig.clock.ms += SECOND
            self.times.append(rig.clock.ms)
            rig.inner.put([InnerMessage("T", 0, b"body", b"", 0, 0, rig.clock.ms, STORE_HOST)])
        self.progress = OffsetRequests(rig.store, rig.tables, cached_ratio=cached_ratio)

    def ask(self, name: str, code: RequestCode, **ext: Any) -> Command:
        fields = {"topic": "T", "queueId": 0, **ext}
        command = Command(code, 7, ext={key: str(value) for key, value in fields.items()})
        found: Command = getattr(self.progress, name)(connection(), command)
        assert found.opaque == 7
        return found

    def query(self, **ext: Any) -> Command:
        return self.ask("query", RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", **ext)

    def update(self, offset: int, **ext: Any) -> Command:
        fields = {"consumerGroup": "g", "commitOffset": offset, **ext}
        return self.ask("update", RequestCode.UPDATE_CONSUMER_OFFSET, **fields)

    def search(self, timestamp: int, **ext: Any) -> Command:
        return self.ask("search", RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=timestamp, **ext)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.rig.close()


def test_stored_offset_is_returned(desk: Desk) -> None:
    assert desk.update(3).code == ResponseCode.SUCCESS
    assert desk.query().ext == {"offset": "3"}
    assert desk.update(2).code == ResponseCode.SUCCESS, "an offset may go back"
    assert desk.query().ext == {"offset": "2"}


def test_offset_beyond_the_end_is_refused(desk: Desk) -> None:
    assert desk.update(3).code == ResponseCode.SUCCESS
    refused = desk.update(10**6)
    assert refused.code == ResponseCode.INVALID_PARAMETER and "the queue ends at" in (refused.remark or "")
    assert desk.query().ext == {"offset": "3"}


def test_offset_of_an_earlier_topic_is_refused(desk: Desk) -> None:
    born = desk.query(birth=0).ext["birth"]
    assert desk.query(birth=0, setZeroIfNotFound="false").ext == {"birth": born}
    assert desk.update(3, birth=born).code == ResponseCode.SUCCESS
    refused = desk.update(2, birth=int(born) - 1)
    assert refused.code == ResponseCode.PULL_OFFSET_MOVED and "created again" in (refused.remark or "")
    assert desk.query().ext == {"offset": "3"}


@pytest.mark.proves("client:C-35")
def test_topic_that_is_being_deleted_has_no_group_offsets(desk: Desk) -> None:
    assert desk.update(3).code == ResponseCode.SUCCESS
    run(desk.rig.topics.delete("T"))
    assert "T" in desk.rig.topics.deleting
    assert desk.query().code == ResponseCode.QUERY_NOT_FOUND


def test_new_group_begins_at_0_when_no_message_is_old(desk: Desk) -> None:
    """All messages the queue ever had are still cached (broker:5.5)."""
    assert desk.query().ext == {"offset": "0"}
    refused = desk.query(setZeroIfNotFound="false")
    assert (refused.code, refused.remark) == (22, "Not found, maybe this group consumer boot first")
    assert desk.query(setZeroIfNotFound="true").ext == {"offset": "0"}
    assert desk.query(topic="Unknown").code == ResponseCode.QUERY_NOT_FOUND
    assert desk.query(queueId=2).code == desk.query(queueId=-1).code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize("was_used", [False, True], ids=["untouched", "opened"])
def test_new_group_on_an_empty_queue_gets_every_message_sent_during_its_start(
    tmp_path: Path, was_used: bool
) -> None:
    """A client that gets no offset asks for the queue's end, and skips the messages that arrived in
    between."""
    desk = Desk(tmp_path, cached_ratio=0)
    try:
        if was_used:
            assert desk.ask("max_offset", RequestCode.GET_MAX_OFFSET, queueId=1).ext == {"offset": "0"}
        empty = desk.query(queueId=1)
        desk.rig.inner.put([InnerMessage("T", 1, b"body", b"", 0, 0, desk.rig.clock.ms, STORE_HOST)])
        assert (empty.code, empty.ext) == (ResponseCode.SUCCESS, {"offset": "0"})
        assert desk.query(queueId=1, setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND
    finally:
        desk.rig.close()


def test_queue_with_a_damaged_first_message_counts_as_young(desk: Desk) -> None:
    queue = desk.rig.store.queue("T", 0)
    entry = queue.entry(0)
    assert entry is not None
    queue.restore(0, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
    assert desk.query().ext == {"offset": "0"}, "what stands behind it is not to be skipped"


@pytest.mark.proves("client:C-35")
def test_new_group_begins_where_its_client_says_when_messages_are_old(tmp_path: Path) -> None:
    desk = Desk(tmp_path, cached_ratio=0)
    try:
        assert desk.query().code == ResponseCode.QUERY_NOT_FOUND
    finally:
        desk.rig.close()


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Unknown"}, 17, "Topic Unknown not exist!"),
        ({"consumerGroup": "unknown"}, 26, "Group unknown not exist!"),
        ({"queueId": 2}, ResponseCode.INVALID_PARAMETER, "queueId 2: topic T has queues 0 to 1"),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER, "queueId -1: topic T has queues 0 to 1"),
    ],
)
def test_offsets_of_missing_queues_are_refused(
    desk: Desk, fields: dict[str, Any], code: int, remark: str
) -> None:
    refusal = desk.update(1, **fields)
    assert (refusal.code, refusal.remark) == (code, remark)
    assert list(desk.rig.offsets.items()) == []


def test_commit_does_not_recreate_a_deleted_group(desk: Desk) -> None:
    """The last member may still commit while the group is deleted."""
    desk.update(1)
    run(desk.rig.groups.delete("g"))
    assert desk.update(2).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "g" not in desk.rig.groups.configs


def test_first_and_last_offsets_of_a_queue_are_returned(desk: Desk) -> None:
    assert desk.ask("max_offset", RequestCode.GET_MAX_OFFSET).ext == {"offset": "5"}
    assert desk.ask("min_offset", RequestCode.GET_MIN_OFFSET).ext == {"offset": "0"}
    for name in ("max_offset", "min_offset"):
        for other in ({"queueId": 1}, {"topic": "Unknown"}, {"queueId": 9}):
            assert desk.ask(name, RequestCode.GET_MAX_OFFSET, **other).ext == {"offset": "0"}


@pytest.mark.parametrize(
    ("late", "boundary", "offset"),
    [
        (0, None, 2),
        (0, "LOWER", 2),
        (0, "upper", 2),
        (1, "lower", 3),
        (1, "UPPER", 2),
        (-10 * SECOND, None, 0),
        (10 * SECOND, "LOWER", 5),
    ],
)
def test_offset_of_a_time_is_returned(desk: Desk, late: int, boundary: str | None, offset: int) -> None:
    extra = {} if boundary is None else {"boundaryType": boundary}
    assert desk.search(desk.times[2] + late, **extra).ext == {"offset": str(offset)}


def test_missing_queue_and_invalid_boundary_are_refused_in_time_queries(desk: Desk) -> None:
    assert desk.search(desk.times[2], topic="Unknown").ext == {"offset": "0"}
    refusal = desk.search(desk.times[2], boundaryType="MIDDLE")
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert refusal.remark == "boundaryType 'MIDDLE' is neither LOWER nor UPPER"


def test_time_of_the_oldest_message_is_returned(desk: Desk) -> None:
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    assert desk.ask("earliest", code).ext == {"timestamp": str(desk.times[0])}
    assert desk.ask("earliest", code, queueId=1).ext == {"timestamp": "-1"}
    assert desk.ask("earliest", code, topic="Unknown").ext == {"timestamp": "-1"}
