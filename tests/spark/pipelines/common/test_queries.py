"""Errors as one line, signals that stop, and queries that end (with stubs in place of Spark's)."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import StreamOffset
from sparrowmq.spark.pipelines.common.queries import (
    BatchFunction,
    PipelineError,
    drive,
    explain,
    plain_errors,
    run_batches,
    stopped_by_signals,
)
from sparrowmq.spark.pipelines.common.watch import Watch

TRACE = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "stream.py", line 1, in latestOffset
sparrowmq.spark.cluster.faults.DataLossError: queue T/b/0: offsets 1 to 2 cannot be read. Set option x
UnboundLocalError: local variable"""


def test_errors_in_one_line() -> None:
    assert explain(Exception(TRACE)) == "queue T/b/0: offsets 1 to 2 cannot be read. Set option x"
    assert explain(Exception("\n  first\nsecond")) == "first"
    assert explain(Exception("x" * 1000)) == "x" * 500
    assert explain(ValueError()) == "ValueError"
    assert "install Java 17" in explain(Exception("[JAVA_GATEWAY_EXITED] Java gateway process exited"))
    with pytest.raises(PipelineError, match="offsets 1 to 2 cannot be read"), plain_errors():
        raise PySparkException(TRACE)


WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted: Task 0 \
in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (host executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 3100, in main
    process()
    ~~~~~~~^^
  File "/opt/site-packages/pyarrow/table.py", line 12, in convert
TypeError: Cannot convert ChunkedArray

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
Driver stacktrace: SQLSTATE: XXKST
Caused by: org.apache.spark.SparkException: Job aborted
"""


def test_an_error_of_a_task_is_its_reason_and_its_place() -> None:
    told = "TypeError: Cannot convert ChunkedArray (in convert, table.py, line 12)"
    assert explain(Exception(WORKER)) == told
    outer = """Traceback (most recent call last):
  File "job.py", line 7, in write
py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.
: org.apache.spark.SparkException: """
    assert explain(Exception(outer + WORKER)) == told
    with pytest.raises(PipelineError, match=r"^TypeError: Cannot convert ChunkedArray \(in convert"):
        drive(Query(looks=1, error=PySparkException(WORKER)), BatchFunction(nothing), Watch())  # type: ignore[arg-type]


def test_an_interrupted_query_is_not_an_error_of_spark() -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise Py4JError("Gateway must be connected to send cancel cmd.")

    with pytest.raises(KeyboardInterrupt), plain_errors():
        interrupted()
    with pytest.raises(PipelineError, match="Gateway"), plain_errors():
        raise Py4JError("Gateway must be connected to send cancel cmd.")


class Writer:
    """A stream's writer whose query does not start."""

    def __init__(self) -> None:
        self.name = ""

    @property
    def writeStream(self) -> Writer:
        return self

    def queryName(self, name: str) -> Writer:
        self.name = name
        return self

    def foreachBatch(self, write: Any) -> Writer:
        return self

    def option(self, name: str, value: str) -> Writer:
        return self

    def trigger(self, **when: Any) -> Writer:
        return self

    def start(self) -> Any:
        raise PySparkException("cannot start\nmore")


def test_queries_of_one_name_are_told_apart_by_their_checkpoints() -> None:
    def named(checkpoint: str) -> str:
        frame: Any = Writer()
        with pytest.raises(PipelineError, check=about(args=("cannot start",))):
            run_batches(
                frame, lambda batch, number: None, Watch(), name="a b", checkpoint=checkpoint, every=None
            )
        return str(frame.name)

    assert named("/x") == named("/x") != named("/y")
    assert named("/x").startswith("a b (")


def test_a_batch_function_remembers_what_it_raised() -> None:
    def write(frame: Any, batch_id: int) -> None:
        if batch_id:
            raise SettingsError("no")

    function = BatchFunction(write)
    function(None, 0)  # type: ignore[arg-type]
    assert function.error is None
    with pytest.raises(SettingsError):
        function(None, 1)  # type: ignore[arg-type]
    assert isinstance(function.error, SettingsError)


@dataclass
class Batch:
    batchId: int
    sources: tuple[Any, ...] = ()
    timestamp: str = "2026-11-22T05:00:00.000Z"


@dataclass
class Query:
    """A query that is looked at `looks` times before it ends."""

    looks: int
    error: Exception | None = None
    active_batches: int = 0
    lastProgress: Batch | None = None
    stops: int = 0
    waited: list[float] = field(default_factory=list)

    def awaitTermination(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.looks -= 1
        if self.looks <= 0 and self.error is not None:
            raise self.error
        return self.looks <= 0

    @property
    def isActive(self) -> bool:
        return self.looks > 0

    @property
    def status(self) -> dict[str, bool]:
        self.active_batches -= 1
        return {"isTriggerActive": self.active_batches >= 0}

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.stops += 1


def nothing(frame: Any, batch_id: int) -> None:
    """A batch function that is never called."""


def test_a_query_is_waited_for_and_closed() -> None:
    query = Query(looks=3, lastProgress=Batch(0))
    drive(query, BatchFunction(nothing), Watch())  # type: ignore[arg-type]
    assert (len(query.waited), query.stops) == (3, 1)


@dataclass
class Ends:
    endOffset: str
    latestOffset: str


def test_what_spark_knew_a_while_ago_is_not_told_again() -> None:
    def offsets(number: int) -> str:
        return json.dumps(StreamOffset({MessageQueue("T", "b", 0): number}).to_json())

    first = Batch(0, (Ends(offsets(10), offsets(30)),), "1")
    second = Batch(1, (Ends(offsets(20), offsets(31)),), "2")
    query, told = Query(looks=9, lastProgress=first), list[tuple[int, int | None]]()
    watch = Watch(lambda progress: told.append((progress.rows, progress.lag)))

    def tick() -> None:
        if len(query.waited) == 2:
            watch.batch(10, 0, 0.0, lag=10)  # the batch is done, Spark has not said so yet
        if len(query.waited) == 5:
            query.lastProgress = second

    drive(query, BatchFunction(nothing), watch, tick=tick)  # type: ignore[arg-type]
    assert told == [(0, 20), (10, 10), (10, 11)]


def test_what_is_done_now_and_then_while_a_query_runs() -> None:
    calls: list[int] = []
    drive(Query(looks=3), BatchFunction(nothing), Watch(), tick=lambda: calls.append(1))  # type: ignore[arg-type]
    assert calls == [1, 1]

    def fail() -> None:
        raise SettingsError("no more")

    query = Query(looks=3)
    with pytest.raises(SettingsError, check=about(args=("no more",))):
        drive(query, BatchFunction(nothing), Watch(), tick=fail)  # type: ignore[arg-type]
    assert query.stops == 1


def test_a_stop_waits_for_the_current_batch() -> None:
    query, watch = Query(looks=100, active_batches=3), Watch()
    watch.stop()
    drive(query, BatchFunction(nothing), watch)  # type: ignore[arg-type]
    assert (len(query.waited), query.stops) == (4, 1)


def test_a_stop_does_not_wait_for_the_next_batch() -> None:
    query, watch = Query(looks=100, active_batches=100), Watch()
    watch.stop()

    def look(seconds: float) -> bool:
        query.waited.append(seconds)
        query.lastProgress = Batch(len(query.waited))
        return False

    query.awaitTermination = look  # type: ignore[method-assign]
    drive(query, BatchFunction(nothing), watch)  # type: ignore[arg-type]
    assert (len(query.waited), query.stops) == (2, 1)


def test_a_batch_that_takes_too_long_is_cut_off() -> None:
    query, watch = Query(looks=10**6, active_batches=10**6), Watch()
    watch.stop()
    drive(query, BatchFunction(nothing), watch, stop_seconds=0.0)  # type: ignore[arg-type]
    assert (len(query.waited), query.stops) == (1, 1)


def test_what_ended_a_query_is_raised() -> None:
    function = BatchFunction(nothing)
    with pytest.raises(PipelineError, match="offsets 1 to 2 cannot be read"):
        drive(Query(looks=1, error=PySparkException(TRACE)), function, Watch())  # type: ignore[arg-type]
    function.error = ValueError("from the batch")
    with pytest.raises(PipelineError, check=about(args=("from the batch",))):
        drive(Query(looks=1, error=PySparkException(TRACE)), function, Watch())  # type: ignore[arg-type]
    function.error = SettingsError("as it was")
    query = Query(looks=1, error=PySparkException(TRACE))
    with pytest.raises(SettingsError, check=about(args=("as it was",))):
        drive(query, function, Watch())  # type: ignore[arg-type]
    assert query.stops == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_once(number: signal.Signals) -> None:
    told: list[int] = []
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(number, lambda got, frame: told.append(got))
    try:
        watch = Watch()
        with stopped_by_signals(watch):
            os.kill(os.getpid(), number)
            assert watch.stopping and not told
            os.kill(os.getpid(), number)
            assert told == [number]
        os.kill(os.getpid(), number)
        assert told == [number, number]
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def test_other_threads_get_no_signals() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def work() -> None:
        with stopped_by_signals(Watch()):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
