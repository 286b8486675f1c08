from __future__ import annotations

from typing import Any, cast

import pytest
from tests.coordinator.cluster.explored import QUEUE, MadeUpAdmin, MadeUpReader, encoded, message
from tests.support import about, run

from sparrowmq import aio
from sparrowmq.coordinator.cluster import looking, message_search, reading
from sparrowmq.coordinator.cluster.bodies.unpacking import unpacked
from sparrowmq.coordinator.cluster.message_search import (
    MessageSearch,
    SearchResult,
    expression_of,
    newest,
    search,
)
from sparrowmq.coordinator.cluster.reading import read
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import BODY_BYTES_MAX
from sparrowmq.core.results import PullStatus, RawBatch
from sparrowmq.core.subscription import Sql
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.record import decode_records, to_message
from sparrowmq.protocol.sysflag import COMPRESSED


def world(stored: dict[int, Any]) -> tuple[aio.Admin, MadeUpReader]:
    admin = MadeUpAdmin()
    admin.ends = {"T": (min(stored), max(stored) + 1)}
    return cast(aio.Admin, admin), MadeUpReader(stored)


def look(stored: dict[int, Any], wish: MessageSearch, **how: Any) -> SearchResult:
    admin, reader = world(stored)
    return run(search(admin, cast(aio.PullConsumer, reader), wish, **how))


def offsets(found: SearchResult) -> list[int]:
    return [one.queue_offset for one in found.messages]


def tagged(offset: int, tag: str, stored: int = 2000) -> Any:
    one = message(offset, stored=stored)
    one.properties["TAGS"] = tag
    return one


def test_brokers_apply_the_filter_and_the_whole_range_is_searched() -> None:
    stored = {number: tagged(number, "even" if number % 2 == 0 else "odd") for number in range(1, 9)}
    found = look(stored, MessageSearch("T", "even"))
    assert (offsets(found), found.stopped_ms, found.passed) == ([2, 4, 6, 8], None, 8)


def test_search_with_enough_results_says_where_it_stopped() -> None:
    stored = {number: message(number, stored=1000 + number) for number in range(10)}
    found = look(stored, MessageSearch("T", count=3))
    assert (offsets(found), found.stopped_ms) == ([0, 1, 2], 1002)


def test_search_without_time_left_says_where_it_stopped() -> None:
    """Messages it did not reach are not reported as missing."""
    stored = {number: tagged(number, "no", stored=1000 + number) for number in range(10)}
    ticks = iter(range(1000))
    found = look(stored, MessageSearch("T", "yes"), seconds=3, monotonic=lambda: float(next(ticks)))
    assert not found.messages and found.stopped_ms is not None
    assert 1000 < found.stopped_ms < 1009


def test_number_of_pulls_and_bytes_per_search_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {number: message(number, stored=1000 + number, body=bytes(1000)) for number in range(20)}
    monkeypatch.setattr(message_search, "QUEUE_PULLS", 2)
    assert look(stored, MessageSearch("T")).stopped_ms == 1004
    monkeypatch.setattr(message_search, "QUEUE_PULLS", 200)
    assert look(stored, MessageSearch("T"), bytes_max=1500).stopped_ms == 1002


def test_newest_messages_are_found_from_the_end_with_growing_windows() -> None:
    stored = {number: tagged(number, "rare" if number % 50 == 0 else "often") for number in range(400)}
    admin, reader = world(stored)
    found = run(newest(admin, cast(aio.PullConsumer, reader), MessageSearch("T", count=3)))
    assert offsets(found) == [399, 398, 397] and all(offset >= 397 for offset, _ in reader.asked)
    reader.step = 32
    found = run(newest(admin, cast(aio.PullConsumer, reader), MessageSearch("T", "rare", count=3)))
    assert offsets(found) == [350, 300, 250]


def test_last_very_large_messages_are_found() -> None:
    size = looking.BYTES_MAX // 3
    stored = {number: message(number, body=bytes(size)) for number in range(10)}
    admin, reader = world(stored)
    assert offsets(run(newest(admin, cast(aio.PullConsumer, reader), MessageSearch("T", count=5))))[0] == 9


def test_unsearched_range_gives_nothing_older() -> None:
    """Unsearched messages would be newer than the results."""
    stored = {number: tagged(number, "old" if number < 9 else "often") for number in range(400)}
    admin, reader = world(stored)
    assert (
        offsets(run(newest(admin, cast(aio.PullConsumer, reader), MessageSearch("T", "old", count=3)))) == []
    )


def test_failing_queue_does_not_hide_the_others_and_all_failing_is_an_error() -> None:
    admin, reader = world({1: message(1)})

    async def broken(*_: Any, **__: Any) -> None:
        raise RefusedError("the broker does not support SQL92", status=502)

    reader.fetch_raw = broken  # type: ignore[method-assign,assignment]
    with pytest.raises(RefusedError, check=about(status=502, args=("the broker does not support SQL92",))):
        run(search(admin, cast(aio.PullConsumer, reader), MessageSearch("T")))


@pytest.mark.parametrize("data", [b"garbage", bytes(200), b"\x00\x00\x00\x64" + bytes(96), b"\xff" * 300])
def test_broker_that_answers_garbage_is_reported(data: bytes) -> None:
    admin, reader = world({1: message(1)})

    async def garbage(*_: Any, **__: Any) -> RawBatch:
        return RawBatch(PullStatus.FOUND, data, 2, 1, 2)

    reader.fetch_raw = garbage  # type: ignore[method-assign,assignment]
    for look in (search, newest):
        with pytest.raises(RefusedError) as found:
            run(look(admin, cast(aio.PullConsumer, reader), MessageSearch("T")))
        assert found.value.status == 502


def test_invalid_filters_are_refused() -> None:
    assert expression_of("", "") == "*" and expression_of("A || B", "") == "A || B"
    assert expression_of("", "a > 1") == Sql("a > 1")
    with pytest.raises(RefusedError, check=about(status=422, what="tags", value="A")):
        expression_of("A", "a > 1")
    for tags, sql in (("||", ""), ("", "a >"), ("", "a = 1; DROP TABLE x")):
        with pytest.raises(RefusedError) as found:
            expression_of(tags, sql)
        assert found.value.status == 422


def test_body_that_decompresses_too_large_stays_compressed() -> None:
    bomb, flag = compress(bytes(BODY_BYTES_MAX + 1)), COMPRESSED
    one = message(body=bomb)
    one.sys_flag = flag
    (record,) = decode_records(encoded(one))
    found = unpacked(to_message(record, "a", decompress=False))
    assert found.body == bomb and found.sys_flag & COMPRESSED
    one.body = compress(b"small" * 100)
    (record,) = decode_records(encoded(one))
    found = unpacked(to_message(record, "a", decompress=False))
    assert found.body == b"small" * 100 and not found.sys_flag & COMPRESSED


def test_read_requests_few_bytes() -> None:
    reader = MadeUpReader()
    wanted: list[int] = []

    class Counting(MadeUpReader):
        async def fetch_raw(self, *args: Any, **how: Any) -> Any:
            wanted.append(how["max_bytes"])
            return await reader.fetch_raw(*args, **how)

    batch = run(read(cast(aio.PullConsumer, Counting()), QUEUE, 0))
    assert wanted == [reading.READ_BYTES] and len(batch.messages) == 2
