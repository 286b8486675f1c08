from __future__ import annotations

from typing import cast

from tests.coordinator.cluster.explored import QUEUE, MadeUpAdmin, MadeUpReader, message
from tests.support import run

from sparrowmq import aio
from sparrowmq.coordinator.cluster import looking
from sparrowmq.coordinator.cluster.looking import by_time, from_offset
from sparrowmq.core.message import ReceivedMessage


def read(reader: MadeUpReader, offset: int, count: int, end_ms: int | None = None) -> list[int]:
    found = run(from_offset(cast(aio.PullConsumer, reader), QUEUE, offset, count, end_ms=end_ms))
    return [one.queue_offset for one in found]


def test_messages_from_an_offset_are_read_over_several_pulls() -> None:
    assert read(MadeUpReader(), 1, 3) == [1, 2, 3]
    assert read(MadeUpReader(), 3, 100) == [3, 4]
    assert read(MadeUpReader(), 99, 100) == []


def test_messages_stored_later_are_omitted() -> None:
    stored = {number: message(number, stored=1000 * number) for number in range(1, 6)}
    assert read(MadeUpReader(stored), 1, 100, end_ms=3000) == [1, 2, 3]


def test_large_bodies_end_an_answer_early_but_the_first_is_always_included() -> None:
    size = looking.BYTES_MAX // 2 + 1
    stored = {number: message(number, body=bytes(size)) for number in range(3)}
    assert read(MadeUpReader(stored), 0, 100) == [0]
    assert read(MadeUpReader({0: message(0, body=bytes(3 * size))}), 0, 1) == [0]


def test_oldest_messages_of_a_time_range_come_first() -> None:
    stored = {1: message(1, stored=1000), 2: message(2, stored=2000), 3: message(3, stored=9000)}
    admin, reader = MadeUpAdmin(), MadeUpReader(stored)
    admin.ends = {"T": (1, 4)}

    def between(begin: int, end: int) -> list[ReceivedMessage]:
        return run(by_time(cast(aio.Admin, admin), cast(aio.PullConsumer, reader), "T", (begin, end), 50))

    assert [one.queue_offset for one in between(1000, 2500)] == [1, 2]
    assert [one.queue_offset for one in between(1500, 2500)] == [2]
    assert between(4000, 9000) == [], "its queue says that nothing was stored after 3000"
