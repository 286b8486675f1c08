"""What the table of idempotent producers decides, keeps, forgets, and writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.protocol.producer_mark import (
    Mark,
    ProducerEnd,
    begins_at,
    binding,
    end_properties,
    fenced_at,
    mark_head,
)
from sparrowmq.store.tables.producer_state import (
    FILE_NAME,
    RANGES_KEPT,
    SWEEP_MS,
    Ended,
    ProducerStates,
    SequenceFinding,
    SequenceVerdict,
    StateFile,
    StoredRange,
    load,
    places,
    save,
    scan_start,
)

NOW = 1_700_000_000_000


def mark(sequence: int, epoch: int = 0, producer: str = "p") -> Mark:
    return Mark(producer, epoch, sequence, binding("T", 0))


def table_with(count: int, *, epoch: int = 0, offset: int = 100, **limits: int) -> ProducerStates:
    table = ProducerStates(**limits)
    table.note("T", 0, mark(0, epoch), count, offset, NOW)
    return table


def judge(table: ProducerStates, sequence: int, count: int = 1, epoch: int = 0) -> SequenceVerdict:
    return table.judge("T", 0, mark(sequence, epoch), count, NOW)


def test_new_producer_begins_at_zero() -> None:
    table = ProducerStates()
    assert judge(table, 0, 5) == SequenceVerdict(SequenceFinding.TAKE)
    refused = judge(table, 3)
    assert refused.finding is SequenceFinding.UNKNOWN and "sequence 0 is expected, not 3" in refused.text
    assert len(table) == 0, "judging keeps nothing"


def test_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    table = table_with(10)
    assert judge(table, 10, 7) == SequenceVerdict(SequenceFinding.TAKE)
    gap = judge(table, 11)
    assert gap.finding is SequenceFinding.GAP and "expected is 10" in gap.text


def test_repeated_messages_get_their_first_places() -> None:
    table = table_with(10)
    assert judge(table, 0, 10) == SequenceVerdict(SequenceFinding.TAKE, tuple(range(100, 110)))
    assert judge(table, 4, 2) == SequenceVerdict(SequenceFinding.TAKE, (104, 105))
    assert judge(table, 8, 5) == SequenceVerdict(SequenceFinding.TAKE, (108, 109)), "the rest is new"


def test_new_epoch_begins_at_zero_and_ends_the_old_one() -> None:
    table = table_with(10)
    assert judge(table, 1, epoch=1).finding is SequenceFinding.GAP
    assert judge(table, 0, epoch=1) == SequenceVerdict(SequenceFinding.TAKE)
    table.note("T", 0, mark(0, 1), 1, 110, NOW)
    fenced = judge(table, 9, epoch=0)
    assert fenced.finding is SequenceFinding.FENCED and "epoch 0 is over, the queue is at 1" in fenced.text
    assert judge(table, 0, epoch=1).repeated == (110,)


def test_adjacent_places_form_one_range_and_others_evict_the_oldest() -> None:
    table = ProducerStates()
    for number in range(20):
        table.note("T", 0, mark(number), 1, 50 + number, NOW)
    found = table.find("p", "T", 0)
    assert found is not None and found.ranges == (StoredRange(0, 19, 50),)
    for number in range(20, 20 + RANGES_KEPT):
        table.note("T", 0, mark(number), 1, number * 10, NOW)
    found = table.find("p", "T", 0)
    assert (
        found is not None and len(found.ranges) == RANGES_KEPT and found.ranges[0] == StoredRange(20, 20, 200)
    )
    old = judge(table, 19)
    assert old.finding is SequenceFinding.TOO_OLD and old.text.endswith("places are known from 20 on")
    assert begins_at(old.text) == 50
    assert judge(table, 20, 2).repeated == (200, 210)
    table.note("T", 0, mark(0, 1), 1, 990, NOW)
    found = table.find("p", "T", 0)
    assert found is not None and found.begins_at == 990, "of each epoch"


def test_replaying_a_log_again_changes_nothing() -> None:
    table = table_with(10)
    before = table.snapshot(), table.changes
    table.note("T", 0, mark(3), 1, 999, NOW + 1)
    table.note("T", 0, mark(0, -1), 1, 999, NOW + 1)
    assert (table.snapshot(), table.changes) == before


def test_producers_queues_and_topics_are_separate() -> None:
    table = table_with(10)
    for topic, queue_id, producer in (("T", 1, "p"), ("U", 0, "p"), ("T", 0, "q")):
        assert table.judge(topic, queue_id, mark(0, producer=producer), 1, NOW) == SequenceVerdict(
            SequenceFinding.TAKE
        )


def test_new_producer_beyond_the_limit_is_refused_unless_an_idle_one_is_evicted() -> None:
    table = table_with(1, producers_max=1, expire_ms=1000)
    other = mark(0, producer="q")
    full = table.judge("T", 0, other, 1, NOW + 1000)
    assert full.finding is SequenceFinding.LIMIT and "maxProducerStates is 1" in full.text
    assert judge(table, 1).finding is SequenceFinding.TAKE, "known ones go on"
    assert table.judge("T", 0, other, 1, NOW + 1001).finding is SequenceFinding.TAKE
    assert len(table) == 0


def test_idle_producer_is_forgotten() -> None:
    table = table_with(5, expire_ms=10)
    late = table.judge("T", 0, mark(5), 1, NOW + 11)
    assert late.finding is SequenceFinding.UNKNOWN and len(table) == 0
    table = table_with(5, expire_ms=10)
    table.sweep(NOW + 11)
    assert len(table) == 0
    table.note("T", 0, mark(0), 1, 0, NOW)
    table.sweep(NOW + 11 + SWEEP_MS - 1)
    assert len(table) == 1, "looked for at most once a minute"


def test_end_of_a_family_forgets_it_and_refuses_late_messages() -> None:
    table = ProducerStates()
    for producer, epoch in (("job-a-0", 4), ("job-a-1", 5), ("job-a-1", 8), ("job-b-0", 4), ("job-a", 4)):
        table.note("T", 0, mark(0, epoch, producer), 3, 0, NOW)
    table.note("U", 0, mark(0, 4, "job-a-0"), 3, 0, NOW)
    assert table.end("job-a", "T", 8, "done", NOW) == Ended(8, "done", NOW)
    left = {(producer, topic) for (producer, topic, _), _ in table.snapshot().producers}
    assert left == {("job-a-1", "T"), ("job-b-0", "T"), ("job-a", "T"), ("job-a-0", "U")}
    late = table.judge("T", 0, mark(0, 7, "job-a-9"), 1, NOW)
    assert late.finding is SequenceFinding.FENCED and fenced_at(late.text) == 8
    assert table.judge("T", 0, mark(0, 8, "job-a-9"), 1, NOW).finding is SequenceFinding.TAKE
    table.note("T", 0, mark(0, 7, "job-a-0"), 1, 0, NOW)
    assert table.find("job-a-0", "T", 0) is None, "nor does the log bring it back"


def test_end_never_goes_back_and_is_forgotten_like_idle_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = ProducerStates(expire_ms=10)
    assert table.end("f", "T", 8, "", NOW).note == ""
    assert table.end("f", "T", 8, "done", NOW).note == "done"
    assert table.end("f", "T", 8, "other", NOW).note == table.end("f", "T", 3, "x", NOW).note == "done"
    changes = table.changes
    table.expire(NOW + 11)
    assert table.end_of("f", "T").epoch == 0 and table.changes > changes
    monkeypatch.setattr("sparrowmq.store.tables.producer_state.ENDED_MAX", 2)
    for number in range(3):
        table.end(f"f{number}", "T", 1, "", NOW)
    assert [name for (name, _), _ in table.snapshot().ended] == ["f1", "f2"]
    table.drop_topic("T", 0)
    assert table.snapshot().ended, "a queue that was deleted is not the topic"
    table.drop_topic("T")
    assert not table.snapshot().ended


def test_deleted_topic_or_queue_is_forgotten() -> None:
    table = table_with(5)
    table.note("T", 1, mark(0), 1, 0, NOW)
    table.note("U", 0, mark(0), 1, 0, NOW)
    table.drop_topic("T", 1)
    assert {key for key, _ in table.snapshot().producers} == {("p", "T", 0), ("p", "U", 0)}
    table.drop_topic("T")
    assert {key for key, _ in table.snapshot().producers} == {("p", "U", 0)}


def test_record_is_replayed_only_where_its_mark_belongs() -> None:
    table = ProducerStates()
    own = mark_head("p", 2, "T", 0) + b"7\x02"
    table.replay("%RETRY%g", 0, own, 3, NOW)
    table.replay("T", 1, own, 3, NOW)
    table.replay("T", 0, b"SPARROW_PRODUCER\x01nonsense\x02", 3, NOW)
    table.replay("T", 0, b"TAGS\x01x\x02", 3, NOW)
    assert len(table) == 0
    table.replay("T", 0, own, 3, NOW)
    found = table.find("p", "T", 0)
    assert found is not None and (found.epoch, found.last, found.ranges) == (2, 7, (StoredRange(7, 7, 3),))


def test_ends_and_deleted_topics_are_replayed() -> None:
    table = ProducerStates()
    for topic in ("T", "U"):
        table.note(topic, 0, mark(0, 4, "job-0"), 3, 0, NOW)
    end = end_properties(ProducerEnd("T", "job", 8, "done"))
    table.replay("T", 0, end, 0, NOW)
    assert len(table) == 2, "not in a topic of users"
    table.replay(PRODUCER_ENDS_TOPIC, 0, end, 0, NOW + 1)
    table.replay(PRODUCER_ENDS_TOPIC, 0, b"SPARROW_PRODUCER\x01nonsense\x02", 1, NOW)
    assert table.end_of("job", "T") == Ended(8, "done", NOW + 1)
    assert [key for key, _ in table.snapshot().producers] == [("job-0", "U", 0)]
    assert not table.is_news("job", "T", 8, "other") and table.is_news("job", "T", 9, "")
    assert table.knows("T") and table.knows("U") and not table.knows("V")
    changes = table.changes
    table.replay(PRODUCER_ENDS_TOPIC, 0, end_properties(ProducerEnd("T")), 2, NOW)
    assert not table.knows("T") and table.changes > changes and table.knows("U")


def test_gap_in_the_log_is_skipped_in_replay() -> None:
    table = table_with(3)
    table.note("T", 0, mark(5), 1, 105, NOW)
    assert judge(table, 5).repeated == (105,)
    assert judge(table, 3).finding is SequenceFinding.TOO_OLD
    assert judge(table, 6).finding is SequenceFinding.TAKE


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=6), st.data())
def test_places_belong_to_each_sequence(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    ranges, offsets, sequence, offset = [], {}, 0, 0
    for count, gap in runs:
        offset += gap
        ranges.append(StoredRange(sequence, sequence + count - 1, offset))
        for _ in range(count):
            offsets[sequence] = offset
            sequence, offset = sequence + 1, offset + 1
    first = data.draw(st.integers(0, sequence + 2))
    end = data.draw(st.integers(first, sequence + 3))
    wanted = [offsets.get(number) for number in range(first, end)]
    assert places(ranges, first, end) == (None if None in wanted else tuple(wanted))


def test_file_restores_the_table(tmp_path: Path) -> None:
    table = table_with(5, epoch=3)
    table.note("T", 0, mark(5, 3), 2, 300, NOW + 5)
    table.note("U", 7, mark(0, producer="q"), 1, 0, NOW)
    table.end("f", "T", 7, "note", NOW)
    save(tmp_path, 4711, table.snapshot())
    file = load(tmp_path)
    assert (file.position, file.damaged) == (4711, False)
    again = ProducerStates()
    again.restore(file.rows, file.ended)
    assert again.snapshot() == table.snapshot() and again.changes == 0
    assert again.end_of("f", "T").epoch == 7
    older = ProducerStates()
    older.restore(row[:7] for row in file.rows)
    assert [held.begins_at for _, held in older.snapshot().producers] == [None, None], (
        "written before that was kept"
    )
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
def test_unusable_file_is_reported(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).write_bytes(data)
    assert load(tmp_path) == StateFile(damaged=True)
    assert "read from the whole log" in caplog.text


def test_missing_file_is_no_damage(tmp_path: Path) -> None:
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
def test_log_is_read_from_the_expected_position(file: StateFile, covered: int | None, start: int) -> None:
    assert scan_start(file, covered, log_start=100, log_end=1000, recovered_from=800) == start
