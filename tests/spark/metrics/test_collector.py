from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.spark.metrics.progresses import Q0, Q1, RUN, progress, source

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.metrics.collector import QueryCollector
from sparrowmq.spark.metrics.figures import Book

Samples = dict[tuple[str, tuple[str, ...]], float]
"""A sample's name and the values of its labels, which are sorted by name → its value."""


def scraped(book: Book, *, now: float = 20.0, queues_max: int = 2000) -> Samples:
    registry = CollectorRegistry()
    registry.register(QueryCollector(lambda: book.figures, now=lambda: now, queues_max=queues_max))
    text = generate_latest(registry).decode()
    return {
        (sample.name.removeprefix("sparrow_query_"), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_known_is_told() -> None:
    book = Book()
    book.started(RUN, "orders", 1.0)
    assert scraped(book) == {
        ("active", ("orders",)): 1,
        ("starts_total", ("orders",)): 1,
        ("batches_total", ("orders",)): 0,
        ("input_rows_total", ("orders",)): 0,
        ("late_rows_total", ("orders",)): 0,
        ("last_progress_timestamp_seconds", ("orders",)): 1,
        ("queues_not_shown", ("orders",)): 0,
        ("sparrow_queries_not_shown", ()): 0,
    }
    book.progressed(progress(source({Q0: 5, Q1: 7}, {Q0: 9, Q1: 7})), 11.0)
    book.asked(RUN, {Q0: 5, Q1: 7}, {Q0: 9, Q1: 7}, {Q0: 17.5}, 18.0)
    found = scraped(book)
    for name, value in {
        "lag_messages": 4,
        "lag_seconds": 2.5,
        "lag_timestamp_seconds": 18.0,
        "min_offsets_behind_latest": 0,
        "max_offsets_behind_latest": 4,
        "avg_offsets_behind_latest": 2,
        "input_rows_per_second": 100,
        "processed_rows_per_second": 200,
        "batch_seconds": 1.5,
        "input_rows_total": 10,
    }.items():
        assert found[name, ("orders",)] == value, name
    assert found["queue_lag_messages", ("b", "orders", "0", "t")] == 4
    assert found["queue_lag_seconds", ("b", "orders", "0", "t")] == 2.5
    assert found["queue_lag_seconds", ("b", "orders", "1", "t")] == 0
    book.ended(RUN, "text", "KIND", 19.0)
    found = scraped(book)
    assert found["faults_total", ("KIND", "orders")] == 1
    assert found["active", ("orders",)] == 0
    assert not [name for name, _ in found if "lag" in name or "behind" in name]


def test_bad_rows_are_counted_by_name() -> None:
    book = Book(queries_max=1)
    book.judged("orders", 10, 1)
    book.judged("orders", 5, 0)
    book.judged("bills", 7, 7)
    found = scraped(book)
    assert found["sparrow_judged_rows_total", ("orders",)] == 15
    assert found["sparrow_bad_rows_total", ("orders",)] == 1
    assert found["sparrow_bad_rows_total", ("other",)] == 7


def test_queues_beyond_the_bound_are_in_the_totals() -> None:
    lags = {MessageQueue("t", "b", number): number for number in range(10)}
    book = Book()
    book.progressed(progress(source(dict.fromkeys(lags, 0), lags)), 1.0)
    found = scraped(book, queues_max=3)
    shown = [labels[2] for name, labels in found if name == "queue_lag_messages"]
    assert shown == ["7", "8", "9"]
    assert found["lag_messages", ("orders",)] == 45
    assert found["queues_not_shown", ("orders",)] == 7
