from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.spark.metrics.progresses import OTHER_RUN, Q0, Q1, RUN, progress, source

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.metrics.figures import KINDS_MAX, Book, QueryFigures, fault_kind, most_behind


def _only(book: Book) -> QueryFigures:
    [found] = book.queries
    return found


def test_batches_add_up_and_the_last_one_gives_the_rates() -> None:
    book = Book()
    book.started(RUN, "orders", 10.0)
    book.progressed(progress(source({Q0: 5, Q1: 7}, {Q0: 9, Q1: 7})), 11.0)
    state = [SimpleNamespace(numRowsDroppedByWatermark=3, numRowsTotal=40)]
    times = {"watermark": "2026-01-01T00:00:00.000Z"}
    book.progressed(progress(rows=5, batchDuration=250, stateOperators=state, eventTime=times), 12.0)
    one = _only(book)
    assert (one.name, one.active, one.starts, one.batches, one.rows) == ("orders", True, 1, 2, 15)
    assert (one.rows_in_per_second, one.rows_done_per_second, one.batch_seconds) == (100.0, 200.0, 0.25)
    assert (one.late_rows, one.state_rows, one.watermark, one.seen) == (3, 40, 1767225600.0, 12.0)


def test_rates_of_a_moment_and_watermarks_of_1970_are_not_known() -> None:
    book = Book()
    rates = {"inputRowsPerSecond": float("nan"), "processedRowsPerSecond": float("inf")}
    book.progressed(progress(**rates, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}), 1.0)
    one = _only(book)
    assert (one.rows_in_per_second, one.rows_done_per_second, one.watermark) == (None, None, None)


def test_lag_by_event_then_by_the_cluster() -> None:
    book = Book()
    book.progressed(progress(source({Q0: 5, Q1: 7}, {Q0: 9, Q1: 7})), 11.0)
    assert _only(book).lags == {Q0: 4, Q1: 0}
    assert _only(book).lag_seconds(12.0) == {}  # nobody asked
    book.asked(RUN, {Q0: 5, Q1: 7}, {Q0: 20}, {Q0: 8.0}, 12.0)
    assert _only(book).lags == {Q0: 15, Q1: 0}
    assert _only(book).lag_seconds(12.5) == {Q0: 4.5, Q1: 0.0}
    book.progressed(progress(source({Q0: 19, Q1: 7}, None)), 13.0)
    assert _only(book).lags == {Q0: 1, Q1: 0}
    assert _only(book).lag_seconds(13.0) == {Q1: 0.0}, "the time was that of offset 5"
    book.asked(RUN, {Q0: 5, Q1: 7}, {Q0: 21}, {Q0: 8.0}, 14.0)
    assert _only(book).lag_seconds(14.0) == {Q1: 0.0}, "an answer that comes late is of offset 5, too"


def test_an_end_takes_the_lag_away_and_counts_its_kind() -> None:
    book = Book()
    book.started(RUN, "orders", 1.0)
    book.progressed(progress(source({Q0: 5}, {Q0: 9})), 2.0)
    book.ended(RUN, "… sparrowmq.spark.cluster.faults.DataLossError: queue t/b/0: …", "STREAM_FAILED", 3.0)
    one = _only(book)
    assert (one.active, one.lags, one.faults) == (False, {}, {"DataLossError": 1})
    book.started(OTHER_RUN, "orders", 4.0)
    assert (_only(book).active, _only(book).starts) == (True, 2)
    book.ended(RUN, "again", None, 5.0)
    assert _only(book).active, "that run was over"
    book.ended(OTHER_RUN, None, None, 6.0)
    assert (_only(book).active, _only(book).faults) == (False, {"DataLossError": 1})


def test_kinds_of_faults_are_bounded() -> None:
    book = Book()
    for number in range(KINDS_MAX + 3):
        book.started(str(number), "q", 1.0)
        book.ended(str(number), "text", f"KIND_{number}", 1.0)
    faults = _only(book).faults
    assert len(faults) == KINDS_MAX + 1
    assert faults["other"] == 3


@pytest.mark.parametrize(
    ("error", "kind", "found"),
    [
        ("a sparrowmq.core.errors.SettingsError: no", "STREAM_FAILED", "SettingsError"),
        ("text", "DIVIDE_BY_ZERO", "DIVIDE_BY_ZERO"),
        ("text", None, "unknown"),
    ],
)
def test_the_kind_of_a_fault(error: str, kind: str | None, found: str) -> None:
    assert fault_kind(error, kind) == found


def test_a_query_without_a_name_is_listed_by_id_and_idle_counts_as_alive() -> None:
    book = Book()
    book.progressed(progress(name=None), 1.0)
    book.idle(RUN, 7.0)
    book.idle("somebody else's", 8.0)
    assert (_only(book).name, _only(book).seen) == ("00000000-0000-0000-0000-000000000009", 7.0)


def test_queries_are_bounded_those_that_ended_first_go_first() -> None:
    book = Book(queries_max=2)
    for run in ("a", "b", "c"):
        book.started(run, run, 1.0)
    assert ([one.name for one in book.queries], book.figures.unseen) == (["a", "b"], 1)
    book.ended("b", None, None, 2.0)
    book.ended("a", None, None, 3.0)
    book.progressed(progress(run="c", name="c"), 4.0)
    assert ([one.name for one in book.queries], book.figures.unseen) == (["a", "c"], 0)
    book.started("d", "d", 5.0)
    book.started("e", "e", 5.0)
    assert ([one.name for one in book.queries], book.figures.unseen) == (["c", "d"], 1)
    book.ended("e", None, None, 6.0)
    assert book.figures.unseen == 0


def test_who_is_asked_for() -> None:
    book = Book()
    book.started("a", "a", 1.0)
    book.progressed(progress(source({Q0: 5}, None)), 1.0)
    assert book.waiting() == {RUN: {Q0: 5}}
    book.ended(RUN, None, None, 2.0)
    assert book.waiting() == {}


def test_the_queues_that_are_most_behind() -> None:
    lags = {MessageQueue("t", "b", number): number for number in range(5)}
    one = QueryFigures(name="q", done=dict.fromkeys(lags, 0), ends=lags)
    assert most_behind([one], 2) == {("q", MessageQueue("t", "b", 4)), ("q", MessageQueue("t", "b", 3))}
