"""What the table of idempotent producers decides, keeps, forgets, and writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.producer_mark import Mark, binding, mark_head
from sparrowmq.store.producer_state import (
    FILE_NAME,
    RANGES_KEPT,
    SWEEP_MS,
    Finding,
    ProducerTable,
    StateFile,
    Stored,
    Verdict,
    load,
    places,
    save,
    scan_start,
)

NOW = 1_700_000_000_000


def mark(sequence: int, epoch: int = 0, producer: str = "p") -> Mark:
    return Mark(producer, epoch, sequence, binding("T", 0))


def table_with(count: int, *, epoch: int = 0, offset: int = 100, **limits: int) -> ProducerTable:
    table = ProducerTable(**limits)
    table.note("T", 0, mark(0, epoch), count, offset, NOW)
    return table


def judge(table: ProducerTable, sequence: int, count: int = 1, epoch: int = 0) -> Verdict:
    return table.judge("T", 0, mark(sequence, epoch), count, NOW)


def test_a_new_producer_begins_at_zero() -> None:
    table = ProducerTable()
    assert judge(table, 0, 5) == Verdict(Finding.TAKE)
    refused = judge(table, 3)
    assert refused.finding is Finding.UNKNOWN and "sequence 0 is expected, not 3" in refused.text
    assert len(table) == 0, "judging keeps nothing"


def test_what_follows_is_taken_and_a_gap_is_not() -> None:
    table = table_with(10)
    assert judge(table, 10, 7) == Verdict(Finding.TAKE)
    gap = judge(table, 11)
    assert gap.finding is Finding.GAP and "expected is 10" in gap.text


def test_repeated_messages_get_their_first_places() -> None:
    table = table_with(10)
    assert judge(table, 0, 10) == Verdict(Finding.TAKE, tuple(range(100, 110)))
    assert judge(table, 4, 2) == Verdict(Finding.TAKE, (104, 105))
    assert judge(table, 8, 5) == Verdict(Finding.TAKE, (108, 109)), "the rest is new"


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    table = table_with(10)
    assert judge(table, 1, epoch=1).finding is Finding.GAP
    assert judge(table, 0, epoch=1) == Verdict(Finding.TAKE)
    table.note("T", 0, mark(0, 1), 1, 110, NOW)
    fenced = judge(table, 9, epoch=0)
    assert fenced.finding is Finding.FENCED and "epoch 0 is over, the queue is at 1" in fenced.text
    assert judge(table, 0, epoch=1).repeated == (110,)


def test_neighbours_make_one_range_and_others_push_the_oldest_out() -> None:
    table = ProducerTable()
    for number in range(20):
        table.note("T", 0, mark(number), 1, 50 + number, NOW)
    found = table.find("p", "T", 0)
    assert found is not None and found.ranges == (Stored(0, 19, 50),)
    for number in range(20, 20 + RANGES_KEPT):
        table.note("T", 0, mark(number), 1, number * 10, NOW)
    found = table.find("p", "T", 0)
    assert found is not None and len(found.ranges) == RANGES_KEPT and found.ranges[0] == Stored(20, 20, 200)
    old = judge(table, 19)
    assert old.finding is Finding.TOO_OLD and old.text.endswith("places are known from 20 on")
    assert judge(table, 20, 2).repeated == (200, 210)


def test_noting_a_log_again_changes_nothing() -> None:
    table = table_with(10)
    before = table.snapshot(), table.changes
    table.note("T", 0, mark(3), 1, 999, NOW + 1)
    table.note("T", 0, mark(0, -1), 1, 999, NOW + 1)
    assert (table.snapshot(), table.changes) == before


def test_producers_queues_and_topics_are_apart() -> None:
    table = table_with(10)
    for topic, queue_id, producer in (("T", 1, "p"), ("U", 0, "p"), ("T", 0, "q")):
        assert table.judge(topic, queue_id, mark(0, producer=producer), 1, NOW) == Verdict(Finding.TAKE)


def test_beyond_the_limit_a_new_producer_is_refused_unless_an_idle_one_goes() -> None:
    table = table_with(1, producers_max=1, expire_ms=1000)
    other = mark(0, producer="q")
    full = table.judge("T", 0, other, 1, NOW + 1000)
    assert full.finding is Finding.LIMIT and "maxProducerStates is 1" in full.text
    assert judge(table, 1).finding is Finding.TAKE, "known ones go on"
    assert table.judge("T", 0, other, 1, NOW + 1001).finding is Finding.TAKE
    assert len(table) == 0


def test_an_idle_producer_is_forgotten() -> None:
    table = table_with(5, expire_ms=10)
    late = table.judge("T", 0, mark(5), 1, NOW + 11)
    assert late.finding is Finding.UNKNOWN and len(table) == 0
    table = table_with(5, expire_ms=10)
    table.sweep(NOW + 11)
    assert len(table) == 0
    table.note("T", 0, mark(0), 1, 0, NOW)
    table.sweep(NOW + 11 + SWEEP_MS - 1)
    assert len(table) == 1, "looked for at most once a minute"


def test_a_deleted_topic_or_queue_is_forgotten() -> None:
    table = table_with(5)
    table.note("T", 1, mark(0), 1, 0, NOW)
    table.note("U", 0, mark(0), 1, 0, NOW)
    table.drop_topic("T", 1)
    assert {key for key, _ in table.snapshot()} == {("p", "T", 0), ("p", "U", 0)}
    table.drop_topic("T")
    assert {key for key, _ in table.snapshot()} == {("p", "U", 0)}


def test_a_record_is_replayed_only_where_its_mark_belongs() -> None:
    table = ProducerTable()
    own = mark_head("p", 2, "T", 0) + b"7\x02"
    table.replay("%RETRY%g", 0, own, 3, NOW)
    table.replay("T", 1, own, 3, NOW)
    table.replay("T", 0, b"SPARROW_PRODUCER\x01nonsense\x02", 3, NOW)
    table.replay("T", 0, b"TAGS\x01x\x02", 3, NOW)
    assert len(table) == 0
    table.replay("T", 0, own, 3, NOW)
    found = table.find("p", "T", 0)
    assert found is not None and (found.epoch, found.last, found.ranges) == (2, 7, (Stored(7, 7, 3),))


def test_a_hole_in_the_log_is_passed_over_when_replayed() -> None:
    table = table_with(3)
    table.note("T", 0, mark(5), 1, 105, NOW)
    assert judge(table, 5).repeated == (105,)
    assert judge(table, 3).finding is Finding.TOO_OLD
    assert judge(table, 6).finding is Finding.TAKE


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=6), st.data())
def test_places_are_those_of_each_sequence(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    ranges, offsets, sequence, offset = [], {}, 0, 0
    for count, gap in runs:
        offset += gap
        ranges.append(Stored(sequence, sequence + count - 1, offset))
        for _ in range(count):
            offsets[sequence] = offset
            sequence, offset = sequence + 1, offset + 1
    first = data.draw(st.integers(0, sequence + 2))
    end = data.draw(st.integers(first, sequence + 3))
    wanted = [offsets.get(number) for number in range(first, end)]
    assert places(ranges, first, end) == (None if None in wanted else tuple(wanted))


def test_the_file_brings_the_table_back(tmp_path: Path) -> None:
    table = table_with(5, epoch=3)
    table.note("T", 0, mark(5, 3), 2, 300, NOW + 5)
    table.note("U", 7, mark(0, producer="q"), 1, 0, NOW)
    save(tmp_path, 4711, table.snapshot())
    file = load(tmp_path)
    assert (file.position, file.damaged) == (4711, False)
    again = ProducerTable()
    again.restore(file.rows)
    assert again.snapshot() == table.snapshot() and again.changes == 0
    again.clear()
    assert len(again) == 0 and "0 of 50000" in repr(again)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"version":2,"position":1,"producers":[]}',
        b'{"version":1,"producers":[]}',
        b"\xff",
    ],
)
def test_a_file_that_cannot_be_used_is_told(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    assert load(tmp_path) == StateFile(damaged=True)
    assert "read from the whole log" in caplog.text


def test_no_file_is_no_damage(tmp_path: Path) -> None:
    assert load(tmp_path) == StateFile()


@pytest.mark.parametrize(
    ("file", "covered", "start"),
    [
        (StateFile(500), None, 500),
        (StateFile(500), 700, 700),
        (StateFile(900), 700, 900),
        (StateFile(50), 60, 100),
        (StateFile(), None, 800),
        (StateFile(), 700, 100),
        (StateFile(damaged=True), None, 100),
        (StateFile(damaged=True), 700, 100),
        (StateFile(1001), None, 100),
    ],
    ids=str,
)
def test_where_the_log_is_read_from(file: StateFile, covered: int | None, start: int) -> None:
    assert scan_start(file, covered, log_start=100, log_end=1000, recovered_from=800) == start
