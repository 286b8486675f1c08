"""Driving one streaming query to its end: lag, a clean stop, and errors that say what is wrong.

Spark does not retry what fails on the driver and wraps it in pages of traceback; an error of a batch's own
function is raised unchanged; from other errors, the text of SparrowMQ's error is extracted.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path, PurePath
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.metrics.progress import lag
from sparrowmq.spark.offsets.offsets import to_tree
from sparrowmq.spark.options.values import EARLIEST_OFFSET
from sparrowmq.spark.options.versions import limits
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.checkpoints import QueryCheckpoint
from sparrowmq.spark.pipelines.common.source import FollowedSource
from sparrowmq.spark.pipelines.common.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("sparrowmq.spark")

LOOK_SECONDS: Final = 0.2
"""Interval at which the query is checked."""
STOP_SECONDS: Final = 60.0
"""Time limit of a batch after a stop was requested; then it is cancelled, and repeated by the next run."""
_OURS: Final = re.compile(r"sparrowmq\.[\w.]*?\.?(\w+Error): ([^\n]+)")
_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t][^\n]*\n)+)(\S[^\n]*)")
"""The frames of a Python traceback, and the first line of its error."""
_FRAME: Final = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')
_LINE_MAX: Final = 500
"""Characters of an error that are shown."""
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PipelineError(SparrowError):
    """A pipeline ended before its time; the text says why and what to do."""


def explain(error: BaseException) -> str:
    """One line about what Spark raised: the text of our own error in it, else the last Python error in it and
    its place, else its first line.
    """
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1]).strip()
    if "JAVA_GATEWAY_EXITED" in text:
        return "Spark could not start Java: install Java 17 or later, or set JAVA_HOME to it"
    tracebacks = _TRACEBACK.findall(text)
    if tracebacks:
        return _last_line(*tracebacks[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:_LINE_MAX] if lines else type(error).__name__


def _last_line(frames: str, reason: str) -> str:
    """The error of a traceback, and the function that raised it."""
    places = _FRAME.findall(frames)
    if not places:
        return reason[:_LINE_MAX]
    path, line, function = places[-1]
    return f"{reason.strip()[:_LINE_MAX]} (in {function}, {PurePath(path).name}, line {line})"


@contextmanager
def plain_errors() -> Iterator[None]:
    """What Spark raises comes out as a `PipelineError` of one line; what Ctrl-C broke, as Ctrl-C."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _interrupted(error):
            raise KeyboardInterrupt from error
        raise PipelineError(explain(error)) from error


def _interrupted(error: BaseException | None) -> bool:
    """Whether it came of Ctrl-C: Py4J, interrupted in a command, raises what its cleaning up runs into."""
    while error is not None:  # ends: a chain of contexts has no rings
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


class BatchFunction:
    """A `foreachBatch` function that records its error."""

    def __init__(self, write: Callable[[DataFrame, int], None]) -> None:
        self._write = write
        self.error: Exception | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch."""
        try:
            self._write(batch, batch_id)
        except Exception as error:
            self.error = error
            raise


def nothing() -> None:
    """Does nothing."""


def query_name(name: str, checkpoint: str | Path) -> str:
    """A query's name, unique in a session: two pipelines of one name have different checkpoints."""
    return f"{name} ({blake2b(str(checkpoint).encode(), digest_size=4).hexdigest()})"


def stream_options(
    source: FollowedSource, checkpoint: QueryCheckpoint, done: Mapping[MessageQueue, int]
) -> dict[str, str]:
    """Options of the stream; without a checkpoint it continues where the pipeline has `done` each queue."""
    options = {**source.source_options, "startingOffsets": source.start}
    if limits is not None:
        options["maxOffsetsPerTrigger"] = str(source.batch_rows)
    else:
        log.warning("this Spark does not limit micro-batches: batch_rows has no effect before Spark 4.2")
    if done and not checkpoint.has_batches:
        reading.check_retired(source.source_options, done)
        queues = reading.queues_of(source.source_options).ends
        place = {queue: done.get(queue, EARLIEST_OFFSET) for queue in queues}
        options["startingOffsets"] = json.dumps(to_tree(place))
    return options


def run_batches(
    frame: DataFrame,
    write: Callable[[DataFrame, int], None],
    watch: Watch,
    *,
    name: str,
    checkpoint: str | Path,
    every: float | None,
    tick: Callable[[], None] = nothing,
) -> None:
    """Give a stream's micro-batches to `write`, `every` so many seconds, or all that is there when `None`.

    The query is called `query_name(name, checkpoint)` and continues from `checkpoint`; its errors and `tick`
    are those of `drive`, and `PipelineError` if it does not start.
    """
    function = BatchFunction(write)
    writer = frame.writeStream.foreachBatch(function).queryName(query_name(name, checkpoint))
    writer = writer.option("checkpointLocation", str(checkpoint))
    triggered = (
        writer.trigger(availableNow=True)
        if every is None
        else writer.trigger(processingTime=f"{every} seconds")
    )
    with plain_errors():
        query = triggered.start()
    drive(query, function, watch, tick=tick)


def drive(
    query: StreamingQuery,
    function: BatchFunction,
    watch: Watch,
    *,
    tick: Callable[[], None] = nothing,
    stop_seconds: float = STOP_SECONDS,
) -> None:
    """Wait for the query's end, or end it between two batches when `watch` says so.

    `tick` is called a few times a second meanwhile, also when there is nothing to do. Raises what it raises,
    what `function` raised if it is a `SparrowError`, `PipelineError` for everything else.
    """
    error: Exception | None = None
    seen: str | None = None
    try:
        while not _ended(query):  # ends with the query, or when a stop is asked for
            seen = _look(query, watch, seen)
            tick()
            if watch.stopping:
                _stop(query, stop_seconds)
                break
        _look(query, watch, seen)
        error = query.exception()
    except PySparkException as caught:
        error = caught
    finally:
        query.stop()
    if isinstance(function.error, SparrowError):
        raise function.error
    if error is not None:
        raise PipelineError(explain(function.error or error)) from error


def _ended(query: StreamingQuery) -> bool:
    """Wait a moment for the query's end. Raises what ended it."""
    waiting: Any = query
    return bool(waiting.awaitTermination(LOOK_SECONDS))


def _look(query: StreamingQuery, watch: Watch, seen: str | None) -> str | None:
    """Report Spark's progress since the time `seen`: `watch` may know more by now."""
    progress: Any = query.lastProgress
    if progress is None or progress.timestamp == seen:
        return seen
    watch.waiting(lag(progress))
    return str(progress.timestamp)


def _stop(query: StreamingQuery, seconds: float) -> None:
    """Let the current batch end; what begins after it is just undone work of a moment."""
    before: Any = query.lastProgress
    begun = before.batchId if before is not None else -1
    deadline = monotonic() + seconds
    while query.isActive and query.status["isTriggerActive"] and monotonic() < deadline:
        now: Any = query.lastProgress
        if now is not None and now.batchId > begun:
            break
        _ended(query)


@contextmanager
def stopped_by_signals(watch: Watch) -> Iterator[None]:
    """SIGINT and SIGTERM ask the run to stop; the second one does what it did before.

    Without effect outside the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def put_back() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def told(number: int, frame: FrameType | None) -> None:
        watch.stop()
        put_back()

    for number in STOP_SIGNALS:
        before[number] = signal.signal(number, told)
    try:
        yield
    finally:
        put_back()
