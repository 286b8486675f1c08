"""Reading: every result of the reference's table, limits, filters, buffers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.store.damage import flip
from tests.store.rig import QUEUE_BYTES, by_time, fill, opened, put, read_all

from sparrowmq.core.hashing import tags_code
from sparrowmq.protocol.record import decode_record, decode_records
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues import reads
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, DUMMY_SIZE, ENTRY, ConsumeQueue
from sparrowmq.store.queues.reads import STEPS_MAX, GetResult, GetStatus, MatchCost
from sparrowmq.store.recovery.repair import EntryRepairer

PER_FILE = QUEUE_BYTES // 20


def get(
    store: MessageStore,
    queue: ConsumeQueue | None,
    offset: int,
    *,
    count: int = 32,
    size: int = 1 << 20,
    tags: tuple[str, ...] | None = None,
) -> GetResult:
    codes = None if tags is None else frozenset(tags_code(tag) for tag in tags)
    return store.get_messages(queue, offset, max_count=count, max_bytes=size, codes=codes)


def found(result: GetResult) -> list[bytes]:
    return [record.body for record in decode_records(b"".join(result.buffers))]


@pytest.mark.proves("broker:5.1")
def test_results_without_messages_are_explained(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert get(store, None, 5) == GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [])
        queue = store.queue("T", 0)
        for offset in (0, 5, -1):
            assert get(store, queue, offset) == GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [])
        fill(store, queue, 3)
        assert get(store, queue, 3) == GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 0, 3, [])
        assert get(store, queue, 4) == GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, 0, 0, 3, [])
        assert get(store, queue, -1) == GetResult(GetStatus.OFFSET_TOO_SMALL, 0, 0, 3, [])


@pytest.mark.proves("broker:5.1", "broker:3.4")
def test_results_after_old_messages_were_deleted_are_explained(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 5)
        queue.min_offset = 5
        assert get(store, queue, 4) == GetResult(GetStatus.OFFSET_TOO_SMALL, 5, 5, 5, [])
        assert get(store, queue, 5) == GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 5, 5, 5, [])
        assert get(store, queue, 6) == GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, 5, 5, 5, [])


@pytest.mark.parametrize(("is_clean", "continued"), [(False, 3), (True, 0)])
def test_a_reader_past_the_end_after_a_crash_continues_with_what_is_new(
    tmp_path: Path, is_clean: bool, continued: int
) -> None:
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 3)
        if not is_clean:
            store.flush()
            store.abandon()
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 2)
        assert get(store, queue, 9).next_offset == continued
        again = store.queue("New", 0)
        fill(store, again, 2)
        assert get(store, again, 9).next_offset == 0


@pytest.mark.proves("broker:5.1")
def test_missing_queue_file_gives_offset_found_null(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, PER_FILE + 1)
        del queue.files._segments[0]
        assert get(store, queue, 3).status is GetStatus.OFFSET_FOUND_NULL
        assert get(store, queue, 3).next_offset == PER_FILE
        assert get(store, queue, PER_FILE).status is GetStatus.FOUND
        queue.files.make(PER_FILE * 20)


@pytest.mark.proves("broker:5.2")
def test_one_read_stays_within_a_queue_file(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 25)
        for offset, end in ((0, 10), (7, 10), (10, 20), (20, 25)):
            result = get(store, queue, offset)
            assert (result.status, result.next_offset) == (GetStatus.FOUND, end)
            assert (result.min_offset, result.max_offset) == (0, 25)
            assert found(result) == bodies[offset:end]


def test_adjacent_records_are_one_buffer(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        first, second = store.queue("T", 0), store.queue("T", 1)
        fill(store, first, 3)
        fill(store, second, 1)
        fill(store, first, 4)
        result = get(store, first, 0)
        assert [len(decode_records(buffer)) for buffer in result.buffers] == [3, 4]
        assert (result.count, result.size) == (7, sum(map(len, result.buffers)))


def test_buffers_do_not_cross_log_files(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_consume_queue=2000) as store:
        queue = store.queue("T", 0)
        for number in range(50):
            put(store, queue, b"%03d" % number + b"x" * 300)
        result = get(store, queue, 0, count=100)
        assert len(result.buffers) == 5
        assert [body[:3] for body in found(result)] == [b"%03d" % number for number in range(50)]


@pytest.mark.proves("broker:5.2")
@pytest.mark.parametrize(("count", "size", "expected"), [(1, 1 << 20, 1), (4, 1 << 20, 4), (32, 1, 1)])
def test_limits_always_allow_the_first_message(count: int, size: int, expected: int, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 8)
        result = get(store, queue, 2, count=count, size=size)
        assert (result.count, result.next_offset) == (expected, 2 + expected)


def test_bytes_are_limited_to_the_last_record_that_fits(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for _ in range(5):
            put(store, queue, b"x" * 8)  # records of 100 bytes
        assert [get(store, queue, 0, size=size).count for size in (99, 100, 199, 200, 499, 500)] == [
            1,
            1,
            1,
            2,
            4,
            5,
        ]


@pytest.mark.proves("broker:5.2", "broker:3.1")
def test_tags_select_by_code(tmp_path: Path) -> None:
    tags = ["A", "B", None, "C", "A"]
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for number, tag in enumerate(tags):
            put(store, queue, b"%d" % number, tags=tag)
        assert found(get(store, queue, 0, tags=("A",))) == [b"0", b"4"]
        assert found(get(store, queue, 0, tags=("B", "C"))) == [b"1", b"3"]
        assert found(get(store, queue, 0, tags=())) == [b"0", b"1", b"2", b"3", b"4"]
        nothing = get(store, queue, 1, tags=("X",))
        assert (nothing.status, nothing.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 5)
        part = get(store, queue, 0, tags=("A",), count=1)
        assert (found(part), part.next_offset) == ([b"0"], 1)


@pytest.mark.proves("broker:3.3")
def test_codes_unknown_to_the_reference_pass_the_filter(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"x", tags_code=-(2**63) + 17)
        assert found(get(store, queue, 0, tags=("A",))) == [b"x"]


@pytest.mark.proves("broker:5.2")
def test_number_of_entries_per_read_is_limited(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_consume_queue=20_000, max_filter_message_size=400) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 50)
        put(store, queue, b"wanted", tags="A")
        result = get(store, queue, 0, tags=("A",), count=10)
        assert (result.status, result.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)
        result = get(store, queue, 0, tags=("A",), count=40)
        assert result.next_offset == 40
        assert found(get(store, queue, 40, tags=("A",))) == [b"wanted"]


@pytest.mark.proves("broker:5.1", "broker:5.2")
@pytest.mark.parametrize(
    "entry",
    [
        (0, DUMMY_SIZE, 0),
        (1 << 40, 100, 0),
        (-1, 100, 0),
        (50, 100, 0),
        (0, 100, CORRUPT_CODE),
        (0, 101, 0),
        (0, 20, 0),
        (4090, 100, 0),
    ],
    ids=[
        "dummy",
        "beyond",
        "negative",
        "middle of a record",
        "damaged",
        "other size",
        "tiny",
        "over the end",
    ],
)
def test_entries_without_a_record_are_skipped(
    entry: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EntryRepairer, "mend", lambda *_: False)  # the log has them all
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for number in range(5):
            put(store, queue, b"%d" % number * 8)
        for offset in (0, 2):
            queue.restore(offset, ENTRY.pack(*entry))
        result = get(store, queue, 0)
        assert (result.next_offset, found(result)) == (5, [b"1" * 8, b"3" * 8, b"4" * 8])
        alone = get(store, queue, 2, count=1, tags=None)
        assert (alone.status, alone.next_offset) == (GetStatus.FOUND, 4)
        for offset in (1, 3, 4):
            queue.restore(offset, ENTRY.pack(*entry))
        nothing = get(store, queue, 0)
        assert (nothing.status, nothing.next_offset, nothing.count) == (GetStatus.MESSAGE_WAS_REMOVING, 5, 0)


def test_damaged_records_of_a_read_are_reported(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 6)
        assert get(store, queue, 0).passed == ()
        for offset in (2, 4):
            place = queue.physical_offset(offset)
            assert place is not None
            flip(tmp_path, place + 4)
        assert (get(store, queue, 0).passed, get(store, queue, 3).passed) == ((2, 4), (4,))
        assert found(get(store, queue, 0)) == [b"m0", b"m1", b"m3", b"m5"]


def test_record_of_another_queue_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference leaves such entries when it truncates a torn record (broker:18-3)."""
    monkeypatch.setattr(EntryRepairer, "mend", lambda *_: False)
    with opened(tmp_path) as store:
        first, second = store.queue("T", 0), store.queue("T", 1)
        fill(store, first, 4)
        _, physical = put(store, second, b"other")
        first.restore(3, ENTRY.pack(physical, store.position - physical, 0))
        assert found(get(store, first, 0)) == [b"m0", b"m1", b"m2"]


def test_buffers_stay_valid_when_the_store_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 5)
        result = get(store, queue, 0)
    assert found(result) == bodies


def test_match_is_searched_from_the_offset(tmp_path: Path) -> None:
    a, b = frozenset({tags_code("A")}), frozenset({tags_code("B")})
    with opened(tmp_path, max_filter_message_size=600) as store:
        queue = store.queue("T", 0)
        assert not store.has_match(queue, 0, a)
        for number in range(25):
            put(store, queue, b"x", tags="A" if number == 13 else None)
        assert store.has_match(queue, 0, a)
        assert store.has_match(queue, 13, a)
        assert not store.has_match(queue, 14, a)
        assert not store.has_match(queue, 25, a)
        assert not store.has_match(queue, 0, b)
        put(store, queue, b"x", tags_code=-(2**40))
        assert store.has_match(queue, 14, b)
        for _ in range(30):
            put(store, queue, b"x")
        assert store.has_match(queue, 0, b)  # more than it looks at
        assert not store.has_match(queue, 26, b)
        queue.min_offset = 30
        assert store.has_match(queue, 29, b)


@pytest.mark.proves("broker:2.6", "broker:3.6")
def test_synchronous_messages_are_read_only_after_the_flush(tmp_path: Path) -> None:
    with opened(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 3)
        assert get(store, queue, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert by_time(store, queue, 0) == 0
        store.flush()
        assert found(get(store, queue, 0)) == bodies
        bodies += fill(store, queue, 2)
        assert (queue.max_offset, queue.next_offset) == (3, 5)
        assert get(store, queue, 3).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert not store.has_match(queue, 3, frozenset({0}))
        assert store.flush() == store.position
        assert get(store, queue, 3).count == 2


def test_interleaved_queues_are_read_back_completely(tmp_path: Path) -> None:
    rng = random.Random(1)
    with opened(tmp_path) as store:
        queues = [store.queue(f"T{number}", number) for number in range(5)]
        expected: dict[ConsumeQueue, list[bytes]] = {queue: [] for queue in queues}
        for number in range(300):
            queue = rng.choice(queues)
            body = b"%d " % number + rng.randbytes(rng.randrange(600))
            put(store, queue, body)
            expected[queue].append(body)
        for queue, bodies in expected.items():
            records = read_all(store, queue)
            assert [record.body for record in records] == bodies
            assert [record.queue_offset for record in records] == list(range(len(bodies)))


@pytest.mark.proves("broker:5.2", "broker:14.2")
def test_records_are_recognised_by_their_contents(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 20)
        seen: list[int] = []

        def even(view: memoryview, at: int) -> bool:
            record = decode_record(view, at)
            seen.append(record.queue_offset)
            return record.queue_offset % 2 == 0

        result = store.get_messages(queue, 3, max_count=3, max_bytes=1 << 20, match=even)
        assert (found(result), result.next_offset, result.count) == (bodies[4:10:2], 9, 3)
        assert seen == list(range(3, 9))
        none = store.get_messages(queue, 3, max_count=3, max_bytes=1 << 20, match=lambda view, at: False)
        assert (none.status, none.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)


def test_read_ends_after_enough_work(tmp_path: Path) -> None:
    """However expensive the filter is and whatever was requested: the next read continues from there."""
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 40)
        seen: list[int] = []

        def last(view: memoryview, at: int) -> bool:
            seen.append(decode_record(view, at).queue_offset)
            return seen[-1] == 39

        dear = MatchCost(fixed=STEPS_MAX // 10)
        count, offset = 0, 0
        while offset < 40:
            result = store.get_messages(queue, offset, max_count=1 << 20, max_bytes=1, match=last, cost=dear)
            assert result.next_offset == offset + 10
            count, offset = count + 1, result.next_offset
        assert (count, seen) == (4, list(range(40)))
        assert found(result) == bodies[39:]
        for by_size in (MatchCost(STEPS_MAX + 1), MatchCost(0, per_kilobyte=STEPS_MAX << 10)):
            one = store.get_messages(queue, 0, max_count=9, max_bytes=1, match=last, cost=by_size)
            assert (one.status, one.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 1)


@pytest.mark.parametrize("codes", [None, frozenset({7})])
def test_number_of_entries_per_read_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: frozenset[int] | None
) -> None:
    monkeypatch.setattr(reads, "STEPS_MAX", 10)
    monkeypatch.setattr(reads, "ENTRIES_MAX", 10)
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 40)
        result = store.get_messages(queue, 0, max_count=1 << 20, max_bytes=1 << 20, codes=codes)
        assert result.next_offset == 10
