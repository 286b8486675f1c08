from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.coordinator.upkeep.governance_rules import (
    NO_OWNER,
    OVER,
    OWNER_GONE,
    UNDER,
    ZOMBIE,
    Measures,
    Memory,
    Thing,
    next_day,
    remember,
    verdicts,
)
from sparrowmq.coordinator.upkeep.landscape import Ends, Use
from sparrowmq.coordinator.upkeep.logs import DAY_MS, HOUR_MS
from sparrowmq.core.message import MessageQueue

NOW = 1000 * DAY_MS
MEASURES = Measures(3 * DAY_MS, queue_messages=1000, queues_min=4, over_factor=4)
T: Thing = ("topic", "T")


def use(sent: int = 0, *, queues: int = 4, last_ms: int = 0, **more: Any) -> Use:
    """One topic T with messages in its first queue."""
    ends = [
        Ends(MessageQueue("T", "a", number), 0, 0 if number else sent, last_ms) for number in range(queues)
    ]
    return Use({"T": ends}, **more)


def kinds(memory: Memory, seen: Use, owners: set[Thing] | None = None, now: int = NOW) -> list[str]:
    return [one.kind for one in verdicts({T: memory}, seen, owners or set(), MEASURES, now)]


def test_topic_is_unused_after_days_without_sends_and_reads() -> None:
    idle = Memory(0, sent_at=NOW - 3 * DAY_MS, used_at=NOW - 3 * DAY_MS, day_at=NOW)
    (one,) = verdicts({T: idle}, use(), (), MEASURES, NOW)
    assert (one.kind, one.key, one.topic) == (ZOMBIE, "topic T", "T")
    assert "the topic T has had no sender for 3 days and no reader for 3 days" in one.text
    assert kinds(replace(idle, sent_at=NOW - 3 * DAY_MS + 1), use()) == []
    assert kinds(replace(idle, used_at=NOW - 3 * DAY_MS + 1), use()) == []
    assert kinds(idle, use(readers={"T": {"g": 1}})) == []
    assert kinds(idle, use(readers={"T": {"broadcasting": 0}})) == []


def test_new_topic_is_as_old_as_its_last_message_but_counts_as_just_used() -> None:
    memory = remember({}, use(5, last_ms=NOW - 9 * DAY_MS), (), NOW)[T]
    assert (memory.sent_at, memory.used_at, memory.first_at) == (NOW - 9 * DAY_MS, NOW, NOW)
    assert kinds(memory, use(5)) == []
    empty = remember({}, use(), (), NOW)[T]
    assert (empty.sent_at, empty.sent) == (NOW, 0)
    assert remember({}, use(5, last_ms=NOW + 99), (), NOW)[T].sent_at == NOW


def test_messages_readers_and_progress_count_as_use() -> None:
    before = {T: Memory(1, 5, 2, 1, 1, 1, 0)}
    later = remember(before, use(5, progress={"T": 2}), (), NOW)[T]
    assert (later.sent_at, later.used_at) == (1, 1)
    assert remember(before, use(6, progress={"T": 2}), (), NOW)[T].sent_at == NOW
    assert remember(before, use(5, progress={"T": 3}), (), NOW)[T].used_at == NOW
    assert remember(before, use(5, progress={"T": 2}, readers={"T": {"g": 1}}), (), NOW)[T].used_at == NOW


def test_recreated_topic_starts_empty() -> None:
    before = {T: Memory(1, 500, 0, 1, 1, 1, 400)}
    after = remember(before, use(3), (), NOW)[T]
    assert (after.sent, after.day_sent, after.day_at, after.sent_at) == (3, 3, NOW, NOW)


def test_deleted_objects_are_forgotten_unless_their_check_failed() -> None:
    before = {T: Memory(1), ("topic", "away"): Memory(2), ("group", "g"): Memory(3)}
    after = remember(before, Use(failed={"away": "its broker is gone"}, groups={"h": True}), (), NOW)
    assert after == {("topic", "away"): Memory(2), ("group", "h"): Memory(NOW, used_at=NOW)}
    assert verdicts(after, Use(failed={"away": "x"}), (), replace(MEASURES, idle_ms=0), NOW) == []


def test_deleted_owner_is_reported() -> None:
    owned = remember({}, use(groups={"g": False}), {T, ("group", "g")}, NOW)
    assert all(memory.owned for memory in owned.values())
    seen = use(groups={"g": False})
    assert verdicts(owned, seen, {T, ("group", "g")}, MEASURES, NOW) == []
    gone = verdicts(remember(owned, seen, (), NOW), seen, (), MEASURES, NOW)
    assert [(one.kind, one.key, one.group, one.topic) for one in gone] == [
        (OWNER_GONE, "group g", "g", ""),
        (OWNER_GONE, "topic T", "", "T"),
    ]
    assert gone[1].text == "the topic T has lost all its owners; assign an owner"


def test_objects_that_never_had_an_owner_are_listed_on_request() -> None:
    memory = Memory(NOW, sent_at=NOW, used_at=NOW, day_at=NOW)
    assert kinds(memory, use()) == []
    strict = replace(MEASURES, need_owner=True)
    assert [one.kind for one in verdicts({T: memory}, use(), (), strict, NOW)] == [NO_OWNER]


@pytest.mark.parametrize(
    ("queues", "a_day", "members", "verdict"),
    [
        (4, 4000, 4, None),
        (4, 4001, 4, UNDER),
        (4, 0, 5, UNDER),
        (15, 0, 0, None),
        (16, 0, 0, OVER),
        (16, 5000, 0, None),
        (20, 5000, 0, OVER),
        (20, 5001, 0, None),
        (20, 0, 5, OVER),
        (20, 0, 6, None),
    ],
)
def test_queues_are_measured_by_messages_and_members(
    queues: int, a_day: int, members: int, verdict: str | None
) -> None:
    memory = Memory(0, sent=a_day + 7, sent_at=NOW, used_at=NOW, day_at=NOW - DAY_MS, day_sent=7)
    seen = use(a_day + 7, queues=queues, readers={"T": {"g": members, "h": 1}} if members else {})
    assert kinds(memory, seen) == ([verdict] if verdict else [])


def test_sizes_include_a_recommendation() -> None:
    memory = Memory(0, sent=600, sent_at=NOW, used_at=NOW, day_at=NOW - 2 * HOUR_MS)
    (one,) = verdicts({T: memory}, use(600, queues=2), (), MEASURES, NOW)
    assert one.text == (
        "the topic T has 2 queues for 7200 messages a day and at most 0 members per group: it needs 8"
    )
    assert one.numbers == {"queues": 2, "needed": 8, "messages_a_day": 7200, "members": 0}


def test_rate_needs_an_hour_and_restarts_each_day() -> None:
    young = Memory(0, sent=9, day_at=NOW - HOUR_MS + 1)
    assert young.a_day(NOW) is None
    assert replace(young, day_rate=5).a_day(NOW) == 5
    assert kinds(replace(young, sent_at=NOW, used_at=NOW), use(9, queues=99)) == []
    old = Memory(0, sent=9, day_at=NOW - DAY_MS)
    assert next_day({T: old, ("topic", "U"): young}, NOW) == {
        T: replace(old, day_at=NOW, day_sent=9, day_rate=9),
        ("topic", "U"): young,
    }
