"""What an archive holds: no offset twice, nothing forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import (
    ArchiveError,
    ArchiveLedger,
    ArchiveUnit,
    evolve,
    merged,
    rounds,
)
from sparrowmq.spark.pipelines.archive.plan import plan_backfill
from sparrowmq.spark.pipelines.archive.settings import ArchiveSettings

A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)


def unit(number: int, *spans: Span, **more: object) -> ArchiveUnit:
    rows = sum(map(len, spans))
    return ArchiveUnit(number=number, spans=spans, rows=rows, size=10 * rows, **more)  # type: ignore[arg-type]


def test_a_unit_survives_json() -> None:
    one = unit(3, Span(A, 0, 5), Span(B, 2, 4), columns={"body": "binary"}, done={"q": 7})
    assert ArchiveUnit.from_text(json.dumps(one.to_json()), "here") == one


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "number": "x"}', "null"])
def test_what_is_no_unit_is_named(text: str) -> None:
    with pytest.raises(ArchiveError, check=about(what="", value="here")):
        ArchiveUnit.from_text(text, "here")


def test_a_unit_from_the_future() -> None:
    with pytest.raises(ArchiveError, check=about(what="version", value=2, limit=1)):
        ArchiveUnit.from_text('{"version": 2}', "here")


def test_an_empty_ledger() -> None:
    ledger = ArchiveLedger()
    assert (ledger.rows, ledger.next_number, ledger.queues, ledger.ends()) == (0, 0, [], {})
    assert ledger.missing(Span(A, 3, 5)) == [Span(A, 3, 5)]
    assert not ledger.has("q", 0)


def test_spans_that_meet_are_one() -> None:
    ledger = ArchiveLedger(
        [unit(1, Span(A, 5, 9)), unit(0, Span(A, 0, 5)), unit(2, Span(A, 12, 13), Span(B, 1, 2))]
    )
    assert ledger.covered(A) == (Span(A, 0, 9), Span(A, 12, 13))
    assert ledger.ends() == {A: 13, B: 2}
    assert ledger.missing(Span(A, 0, 20)) == [Span(A, 9, 12), Span(A, 13, 20)]
    assert (ledger.queues, ledger.next_number) == ([A, B], 3)


@pytest.mark.parametrize(("start", "end"), [(4, 6), (0, 20), (5, 6), (8, 9), (0, 6), (8, 20)])
def test_nothing_is_archived_twice(start: int, end: int) -> None:
    ledger = ArchiveLedger([unit(0, Span(A, 5, 9))])
    there = Span(A, max(start, 5), min(end, 9))
    with pytest.raises(ArchiveError, check=about(what="offsets", value=there)):
        ledger.with_unit(unit(1, Span(A, start, end)))


def test_neighbours_and_other_queues_are_new() -> None:
    ledger = ArchiveLedger([unit(0, Span(A, 5, 9))])
    grown = ledger.with_unit(unit(1, Span(A, 9, 10), Span(A, 4, 5), Span(B, 5, 9)))
    assert grown.covered(A) == (Span(A, 4, 10),)
    assert ledger.covered(A) == (Span(A, 5, 9),)


def test_batches_of_a_query_are_known_also_when_merged() -> None:
    units = [unit(0, Span(A, 0, 2), done={"q": 0}), unit(1, Span(A, 2, 3), done={"q": 4, "r": 1})]
    for ledger in (ArchiveLedger(units), ArchiveLedger([merged(units, size=5, columns={})])):
        assert ledger.has("q", 4) and ledger.has("q", 3)
        assert not ledger.has("q", 5)
        assert ledger.has("r", 1) and not ledger.has("r", 2) and not ledger.has("s", 0)


def test_columns_may_come_but_not_change() -> None:
    assert evolve({"a": "int"}, {"b": "string"}, "x") == {"a": "int", "b": "string"}
    assert evolve({"a": "int", "b": "int"}, {"a": "int"}, "x") == {"a": "int", "b": "int"}
    with pytest.raises(ArchiveError, check=about(what="type", value="a", other="int")):
        evolve({"a": "int"}, {"a": "bigint"}, "x")
    with pytest.raises(ArchiveError, check=about(what="case", value="A", other="a")):
        evolve({"a": "int"}, {"A": "int"}, "x")
    ledger = ArchiveLedger([unit(0, columns={"a": "int"}), unit(1, columns={"b": "date"})])
    assert ledger.columns == {"a": "int", "b": "date"}


spans = st.builds(
    lambda queue, start, length: Span(queue, start, start + length),
    st.sampled_from([A, B]),
    st.integers(0, 60),
    st.integers(1, 20),
)


@given(st.lists(spans, max_size=12), spans)
def test_missing_is_what_no_unit_has(given_spans: list[Span], asked: Span) -> None:
    ledger = ArchiveLedger(unit(number, span) for number, span in enumerate(given_spans))
    have = {offset for one in given_spans if one.queue == asked.queue for offset in range(one.start, one.end)}
    missing = ledger.missing(asked)
    assert all(len(one) for one in missing)
    assert [o for one in missing for o in range(one.start, one.end)] == sorted(
        set(range(asked.start, asked.end)) - have
    )
    covered = [o for one in ledger.covered(asked.queue) for o in range(one.start, one.end)]
    assert covered == sorted(have)


@given(st.lists(spans, max_size=12))
def test_merging_covers_the_same(given_spans: list[Span]) -> None:
    units = [unit(number, span) for number, span in enumerate(given_spans)]
    if not units:
        return
    one = merged(units, size=1, columns={})
    assert one.rows == sum(u.rows for u in units)
    assert one.number == len(units) - 1
    for queue in (A, B):
        assert ArchiveLedger([one]).covered(queue) == ArchiveLedger(units).covered(queue)


@given(st.lists(spans, max_size=12))
def test_rounds_have_each_queue_once(given_spans: list[Span]) -> None:
    found = rounds(given_spans)
    assert sorted(span for group in found for span in group) == sorted(given_spans)
    assert all(len({span.queue for span in group}) == len(group) for group in found)


def test_a_backfill_of_a_time_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    settings = ArchiveSettings(directory=tmp_path / "archive", topics=("T",))
    with pytest.raises(SettingsError, check=about(setting="since", value=2)):
        plan_backfill(settings, since=2, until=1)
