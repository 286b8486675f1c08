"""The listener: fed by hand, and attached to a session whose queries read a cluster."""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.metrics.progresses import Q0, RUN, progress, source
from tests.spark.support import Topics, run_available, stream
from tests.support import about, until_sync

from sparrowmq.core.errors import SettingsError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import MetricsListener
from sparrowmq.spark.metrics.cluster import QueueState
from sparrowmq.spark.offsets.offsets import Offsets


def _event(**values: object) -> SimpleNamespace:
    return SimpleNamespace(**{"id": "id", "runId": RUN, "name": "orders"} | values)


def _value(listener: MetricsListener, name: str, **labels: str) -> float | None:
    return listener.registry.get_sample_value(f"sparrow_{name}", labels)


def _scrape(port: int | None) -> dict[str, dict[tuple[str, ...], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def _waiting(ask: object) -> MetricsListener:
    listener = MetricsListener()
    listener._ask = ask  # type: ignore[assignment]
    listener.onQueryProgress(_event(progress=progress(source({Q0: 5}, {Q0: 9}))))
    return listener


def test_a_round_asks_for_what_runs() -> None:
    asked: list[Mapping[str, Offsets]] = []

    def ask(queries: Mapping[str, Offsets]) -> QueueState:
        asked.append(queries)
        return QueueState({Q0: 11}, {RUN: {Q0: 1.0}})

    listener = _waiting(ask)
    listener.look()
    assert asked == [{RUN: {Q0: 5}}]
    assert _value(listener, "query_lag_messages", query="orders") == 6
    listener.onQueryTerminated(_event(exception=None, errorClassOnException=None))
    listener.look()
    assert len(asked) == 1


@pytest.mark.parametrize("error", [TransportError("away"), TimeoutError(), RuntimeError("a mistake")])
def test_what_fails_is_counted_and_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def ask(queries: Mapping[str, Offsets]) -> QueueState:
        raise error

    listener = _waiting(ask)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(3):
            listener.look()
    assert _value(listener, "listener_faults_total") == 3
    assert [type(error).__name__ in line for line in caplog.messages] == [True], "now and then, not always"
    assert _value(listener, "query_lag_messages", query="orders") == 4, "by the event"


def test_events_do_not_wait_for_a_cluster_that_is_slow() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def ask(queries: Mapping[str, Offsets]) -> QueueState:
        asked.set()
        assert go_on.wait(60)
        return QueueState({}, {run: {} for run in queries})

    listener = _waiting(ask)
    looking = threading.Thread(target=listener.look)
    looking.start()
    assert asked.wait(60)
    for number in range(3):
        listener.onQueryStarted(_event(runId=f"run-{number}", name=f"query-{number}"))
    assert _value(listener, "query_active", query="query-2") == 1
    go_on.set()
    looking.join()


def test_only_queries_that_are_wanted() -> None:
    listener = MetricsListener(queries=["bills"])
    listener.onQueryStarted(_event(runId="1", name="bills"))
    listener.onQueryStarted(_event(runId="2", name="orders"))
    listener.onQueryProgress(_event(progress=progress(name="orders")))
    assert _value(listener, "query_active", query="bills") == 1
    assert _value(listener, "query_active", query="orders") is None


def test_wrong_arguments_say_so() -> None:
    with pytest.raises(SettingsError, match="HOST:PORT"):
        MetricsListener(http="here")
    with pytest.raises(SettingsError, check=about(setting="every", value=0)):
        MetricsListener(every=0)
    with pytest.raises(SettingsError, check=about(setting="nameServer", value="nowhere")):
        MetricsListener({"nameServer": "nowhere"})


def test_the_text_file_is_whole(tmp_path: Path) -> None:
    listener = MetricsListener(text_file=tmp_path / "spark.prom")
    listener.onQueryStarted(_event())
    listener.look()
    assert 'sparrow_query_active{query="orders"} 1.0' in (tmp_path / "spark.prom").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["spark.prom"]


def test_a_query_of_the_users(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, tmp_path: Path
) -> None:
    """Lag while a batch hangs, in messages and seconds, and what ended the query."""
    topics.send(topic, 8)
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    hung, go_on = threading.Event(), threading.Event()

    def write(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            hung.set()
            assert go_on.wait(60)
            raise RuntimeError("failing on purpose")
        batch.write.format("noop").mode("overwrite").save()

    text_file = tmp_path / "spark.prom"
    listener = MetricsListener(options, http="127.0.0.1:0", text_file=text_file, every=0.1, ask_seconds=30.0)
    query = None
    with listener.attached(spark):
        try:
            writer = stream(spark, options).writeStream.foreachBatch(write).queryName("lagging")
            query = writer.option("checkpointLocation", checkpoint).start()
            assert hung.wait(60)
            topics.send(topic, 4, first=8)

            def lag() -> float | None:
                return _scrape(listener.port).get("sparrow_query_lag_messages", {}).get(("lagging",))

            until_sync(lambda: lag() == 8)
            found = _scrape(listener.port)
            queues = topics.consumer.queues(topic)
            labels = [(queue.broker_name, "lagging", str(queue.queue_id), topic) for queue in queues]
            assert [found["sparrow_query_queue_lag_messages"][one] for one in labels] == [2] * 4
            assert all(0 <= found["sparrow_query_queue_lag_seconds"][one] < 100 for one in labels)
            assert 0 <= found["sparrow_query_lag_seconds"]["lagging",] < 100
            assert found["sparrow_query_input_rows_total"]["lagging",] == 4
            go_on.set()
            with pytest.raises(StreamingQueryException):
                query.awaitTermination(60)
            until_sync(lambda: _scrape(listener.port)["sparrow_query_active"]["lagging",] == 0)
            assert sum(_scrape(listener.port)["sparrow_query_faults_total"].values()) == 1
            assert 'sparrow_query_starts_total{query="lagging"} 1.0' in text_file.read_text()
        finally:
            go_on.set()
            if query is not None:
                query.stop()
    assert "sparrow-metrics-listener" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(OSError):
        _scrape(listener.port)


def test_progress_of_a_query_gives_lag_by_hand(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str
) -> None:
    from sparrowmq.spark import lag, queue_lags, source_metrics

    topics.send(topic, 8)
    options = topics.options(topic, startingOffsets="earliest")
    query = run_available(stream(spark, options).writeStream.format("noop"), checkpoint)
    last = query.lastProgress
    queues = topics.consumer.queues(topic)
    assert (lag(last), queue_lags(last)) == (0, dict.fromkeys(queues, 0))
    assert source_metrics(last) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 0,
        "avgOffsetsBehindLatest": 0,
    }
    assert all(isinstance(queue, MessageQueue) for queue in queues)
    assert last is not None and last.sources[0].metrics == {}, "Spark can carry them now: give them there"
