"""Offsets of groups and queues, known and unknown ones, in the middle and beyond the ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rig import STORE_HOST, Rig, connection
from tests.support import run

from sparrowmq.broker.inner import InnerMessage
from sparrowmq.broker.progress import Progress
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command

COUNT = 5
SECOND = 1000


class Desk:
    """Topic T with two queues, five messages in the first of them, one a second; group g."""

    def __init__(self, root: Path, *, cached_ratio: int = 40) -> None:
        rig = self.rig = Rig(root)
        rig.put_topic(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        run(rig.groups.put([SubscriptionGroupConfig(group_name="g")]))
        self.times = []
        for _ in range(COUNT):
            rig.clock.ms += SECOND
            self.times.append(rig.clock.ms)
            rig.inner.put([InnerMessage("T", 0, b"body", b"", 0, 0, rig.clock.ms, STORE_HOST)])
        self.progress = Progress(rig.store, rig.topics, rig.groups, rig.offsets, cached_ratio=cached_ratio)

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


def test_what_was_stored_is_told(desk: Desk) -> None:
    assert desk.update(3).code == ResponseCode.SUCCESS
    assert desk.query().ext == {"offset": "3"}
    assert desk.update(2).code == ResponseCode.SUCCESS, "an offset may go back"
    assert desk.query().ext == {"offset": "2"}


@pytest.mark.proves("client:C-35")
def test_a_new_group_begins_at_0_where_nothing_is_old(desk: Desk) -> None:
    """All that the queue ever had is still cached (broker:5.5)."""
    assert desk.query().ext == {"offset": "0"}
    empty = desk.query(queueId=1)
    assert (empty.code, empty.remark) == (22, "Not found, maybe this group consumer boot first")
    assert desk.query(setZeroIfNotFound="false").code == ResponseCode.QUERY_NOT_FOUND
    assert desk.query(setZeroIfNotFound="true").ext == {"offset": "0"}
    assert desk.query(topic="Unknown").code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.proves("client:C-35")
def test_a_new_group_begins_where_its_client_says_when_messages_are_old(tmp_path: Path) -> None:
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
def test_offsets_of_what_is_not_there_are_refused(
    desk: Desk, fields: dict[str, Any], code: int, remark: str
) -> None:
    refusal = desk.update(1, **fields)
    assert (refusal.code, refusal.remark) == (code, remark)
    assert list(desk.rig.offsets.items()) == []


def test_a_commit_does_not_bring_a_deleted_group_back(desk: Desk) -> None:
    """Its last member may still commit while it goes."""
    desk.update(1)
    run(desk.rig.groups.delete("g"))
    assert desk.update(2).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "g" not in desk.rig.groups.configs


def test_both_ends_of_a_queue(desk: Desk) -> None:
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
def test_the_offset_of_a_time(desk: Desk, late: int, boundary: str | None, offset: int) -> None:
    extra = {} if boundary is None else {"boundaryType": boundary}
    assert desk.search(desk.times[2] + late, **extra).ext == {"offset": str(offset)}


def test_a_time_in_a_queue_that_is_not_there_and_a_boundary_that_is_none(desk: Desk) -> None:
    assert desk.search(desk.times[2], topic="Unknown").ext == {"offset": "0"}
    refusal = desk.search(desk.times[2], boundaryType="MIDDLE")
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert refusal.remark == "boundaryType 'MIDDLE' is neither LOWER nor UPPER"


def test_the_time_of_the_oldest_message(desk: Desk) -> None:
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    assert desk.ask("earliest", code).ext == {"timestamp": str(desk.times[0])}
    assert desk.ask("earliest", code, queueId=1).ext == {"timestamp": "-1"}
    assert desk.ask("earliest", code, topic="Unknown").ext == {"timestamp": "-1"}
