"""Holds keep messages that a group has not read, up to their limit and across restarts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.store.rig import ManualClock, append, open_store
from tests.support import about

from sparrowmq.broker.housekeeping.retention_holds import HOLDS_MAX, Holds
from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.protocol.bodies import RetentionHold, RetentionHoldList
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.store.log.retention import HOUR_MS
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets

TOPICS: Any = SimpleNamespace(configs={"T": None, "U": None})


class Rig:
    """Holds on a store with messages in `T`."""

    def __init__(self, root: Path, store: MessageStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.file = ConfigFile(root / "retentionHolds.json")
        self.offsets = ConsumerOffsets(ConfigFile(root / "offsets.json"))
        self.holds = self.opened()

    def opened(self) -> Holds:
        return Holds(self.file, self.store, TOPICS, self.offsets, self.clock)

    def fill(self, count: int, queue_id: int = 0, topic: str = "T") -> list[int]:
        """Store `count` messages; returns their physical offsets."""
        queue = self.store.queue(topic, queue_id)
        first = queue.max_offset
        for number in range(count):
            append(self.store, queue, b"%d" % number)
        self.store.commit_chunk()
        found = [queue.physical_offset(offset) for offset in range(first, first + count)]
        assert None not in found
        return [one for one in found if one is not None]

    def put(self, topic: str = "T", group: str = "g", hours: int = 5, size: int = 0) -> Command:
        ext = {"topic": topic, "group": group, "hours": str(hours), "sizeMax": str(size)}
        return self.holds.put(None, Command(RequestCode.PUT_RETENTION_HOLD, ext=ext))  # type: ignore[arg-type]

    def release(self, topic: str) -> Command:
        command = Command(RequestCode.DELETE_RETENTION_HOLD, ext={"topic": topic})
        return self.holds.delete(None, command)  # type: ignore[arg-type]

    def listed(self) -> list[RetentionHold]:
        answer = self.holds.list(None, Command(RequestCode.GET_RETENTION_HOLDS))  # type: ignore[arg-type]
        return RetentionHoldList.decode(answer.body).holds


@contextmanager
def rigged(root: Path) -> Iterator[Rig]:
    clock = ManualClock()
    store = open_store(root / "store", clock=clock)
    try:
        yield Rig(root, store, clock)
    finally:
        store.close()


def test_unread_messages_are_held(tmp_path: Path) -> None:
    with rigged(tmp_path) as rig:
        assert rig.holds.held() is None
        assert rig.put().code == ResponseCode.SUCCESS
        assert rig.holds.held() is None
        places, others = rig.fill(10), rig.fill(4, queue_id=1)
        assert rig.holds.held() == places[0]
        rig.offsets.commit("T", "g", 0, 6)
        assert rig.holds.held() == places[6]
        rig.offsets.commit("T", "g", 0, 10)
        assert rig.holds.held() == others[0]
        rig.offsets.commit("T", "g", 1, 3)
        assert rig.holds.held() == others[3]
        (one,) = rig.listed()
        assert (one.messages, one.position, one.overrun) == (1, others[3], "")
        rig.offsets.commit("T", "g", 1, 4)
        assert rig.holds.held() is None
        assert [(one.messages, one.position, one.stored) for one in rig.listed()] == [(0, -1, -1)]


def damage(rig: Rig, offset: int, entry: bytes) -> None:
    """Replace the entry at `offset` of queue 0, without changing the others."""
    queue = rig.store.queue("T", 0)
    end = queue.committed
    queue.restore(offset, entry)
    queue.committed = queue.next_offset = end


@pytest.mark.parametrize("last", [3, 5, 9])
def test_messages_after_damaged_ones_are_held(tmp_path: Path, last: int) -> None:
    """The group's next message is damaged, as recovery marks it, up to all remaining messages."""
    with rigged(tmp_path) as rig:
        rig.put()
        places = rig.fill(10)
        rig.offsets.commit("T", "g", 0, 3)
        for offset in range(3, last + 1):
            entry = rig.store.queue("T", 0).entry(offset)
            assert entry is not None
            damage(rig, offset, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
        assert rig.holds.held() == places[3]
        (one,) = rig.listed()
        assert (one.messages, one.position) == (7, places[3])


def test_hold_over_damaged_messages_expires_by_the_age_of_the_next_valid_one(tmp_path: Path) -> None:
    with rigged(tmp_path) as rig:
        rig.put(hours=5)
        (first, *_) = rig.fill(4)
        for offset in (0, 1):
            entry = rig.store.queue("T", 0).entry(offset)
            assert entry is not None
            damage(rig, offset, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
        assert rig.holds.held() == first
        rig.clock.ms += 5 * HOUR_MS
        assert rig.holds.held() is None


@pytest.mark.parametrize("place", [0, -1, 1 << 40], ids=["before the log", "negative", "beyond the log"])
def test_entry_that_points_elsewhere_releases_nothing(tmp_path: Path, place: int) -> None:
    with rigged(tmp_path) as rig:
        rig.put()
        places = rig.fill(10)
        rig.offsets.commit("T", "g", 0, 3)
        damage(rig, 3, ENTRY.pack(place, 100, 0))
        held = rig.holds.held()
        assert held is not None and held <= places[4], "the messages behind it are whole"


def test_several_holds_keep_the_oldest_message_of_all(tmp_path: Path) -> None:
    with rigged(tmp_path) as rig:
        first, second = rig.fill(2), rig.fill(2, topic="U")
        rig.put("U")
        assert rig.holds.held() == second[0]
        rig.put("T")
        assert rig.holds.held() == first[0]
        rig.release("T")
        rig.release("T")
        assert rig.holds.held() == second[0]


def test_hold_expires_at_its_limit_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rigged(tmp_path) as rig:
        (place, *_) = rig.fill(3)
        rig.put(hours=5)
        rig.clock.ms += 5 * HOUR_MS - 1
        assert rig.holds.held() == place
        rig.clock.ms += 1
        with caplog.at_level(logging.ERROR):
            assert rig.holds.held() is None
        assert (
            "the hold of T for g is overrun (the oldest one waits for 5 hours, the limit is 5)" in caplog.text
        )
        assert "sparrow hold set" in caplog.text
        assert "5 hours" in rig.listed()[0].overrun
        rig.put(hours=6)
        assert rig.holds.held() == place
        size = rig.store.position - place
        rig.put(hours=6, size=size)
        assert rig.holds.held() == place
        rig.put(hours=6, size=size - 1)
        assert rig.holds.held() is None
        assert f"{size} bytes of log are kept for it, the limit is {size - 1}" in rig.listed()[0].overrun


def test_holds_survive_a_restart(tmp_path: Path) -> None:
    with rigged(tmp_path) as rig:
        places = rig.fill(1)
        rig.put("T", "g", 7, 99)
        assert rig.opened().held() is None or rig.store.position - places[0] <= 99
        again = rig.opened()
        answer = again.list(None, Command(RequestCode.GET_RETENTION_HOLDS))  # type: ignore[arg-type]
        (one,) = RetentionHoldList.decode(answer.body).holds
        assert (one.topic, one.group, one.hours, one.size_max) == ("T", "g", 7, 99)
        rig.release("T")
        assert rig.opened().held() is None
        rig.file.path.write_text('{"holds": {"T": {"group": "g"}}}')
        with pytest.raises(StoreCorruptError, check=about(what="table", value=rig.file.path)):
            rig.opened()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"group": ""}, "group"),
        ({"topic": "Nowhere"}, "topic 'Nowhere' does not exist on this broker"),
        ({"hours": 0}, "a hold must last 1 to 8784 hours, not 0"),
        ({"hours": 8785}, "not 8785"),
        ({"size": -1}, "bytes, not -1"),
    ],
)
def test_invalid_holds_are_refused(tmp_path: Path, values: dict[str, Any], text: str) -> None:
    with rigged(tmp_path) as rig:
        answer = rig.put(**values)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert text in str(answer.remark)
        assert rig.listed() == []


def test_number_of_holds_is_bounded(tmp_path: Path) -> None:
    many = {f"T{number}": {"group": "g", "hours": 1, "sizeMax": 0} for number in range(HOLDS_MAX - 1)}
    with rigged(tmp_path) as rig:
        rig.file.save({"holds": {**many, "T": {"group": "g", "hours": 1, "sizeMax": 0}}})
        rig.holds = rig.opened()
        assert rig.put("T", hours=2).code == ResponseCode.SUCCESS
        answer = rig.put("U")
        assert (answer.code, HOLDS_MAX) == (ResponseCode.INVALID_PARAMETER, 1000)
        assert "1000 holds already" in str(answer.remark)
