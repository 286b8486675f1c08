"""`backfill`: a long span of topics in windows, several at once; a killed run is resumed.

The offsets of each window are fixed at the first start, so every attempt at a window reads the same rows. A
window's note is written after its last row: an interrupted window is repeated as a whole, and the built-in
sink overwrites its partial output.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.ddl import ddl
from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.backfill.ledger import BackfillError, BackfillLedger, Settled, window_name
from sparrowmq.spark.pipelines.backfill.settings import BackfillSettings
from sparrowmq.spark.pipelines.backfill.windows import Window, boundaries, by_rows, by_time
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.files import files_of
from sparrowmq.spark.pipelines.common.queries import PipelineError, explain, plain_errors
from sparrowmq.spark.pipelines.common.source import between
from sparrowmq.spark.pipelines.common.steps import AT_MOST, WAIT, Plan, Step, reads
from sparrowmq.spark.pipelines.common.watch import Progress, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")

NAME: Final = "backfill"
Write = Callable[["DataFrame", Window], int | None]
"""Writes one window and returns the number of rows, if known. An interrupted window is written again."""
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
_LOOK_SECONDS: Final = 0.5


def plan_backfill_windows(settings: BackfillSettings) -> Plan:
    """What `backfill_windows` would do now. Asks the cluster, writes nothing.

    Starts no Spark; for a URI, which Spark reaches, there must be a session.
    """
    ledger = BackfillLedger(files_of(settings.directory, NAME))
    settled = _settled(settings, ledger)
    left = settled.left(ledger.done())
    if not left:
        return Plan(NAME, (), 0)
    whole: dict[MessageQueue, Span] = {}
    for span in (one for window in left for one in window.spans):
        whole[span.queue] = Span(span.queue, whole.get(span.queue, span).start, span.end)
    steps = reads("read", whole.values())
    sizes = [len(window) for window in left]
    details = {
        "windows": f"{len(settled.windows):,}, of which {len(settled.windows) - len(left):,} are done",
        "messages of one": f"{min(sizes):,} to {max(sizes):,}",
        "at once": str(settings.parallel),
    }
    steps.append(Step("write", f"{settings.directory}/window=…", details))
    rows_text = AT_MOST if settings.is_narrowed else WAIT
    return Plan(NAME, tuple(steps), sum(sizes), rows_text)


def dry_run_backfill_windows(spark: SparkSession, settings: BackfillSettings) -> int:
    """Number of rows left to write. Counted from offsets; rows are read only if conditions exclude some."""
    ledger = BackfillLedger(files_of(settings.directory, NAME))
    settled = _settled(settings, ledger)
    left = settled.left(ledger.done())
    if not settings.is_narrowed:
        return sum(map(len, left))
    with plain_errors():
        return sum(reading.drain(window_rows(spark, settings, window)) for window in left)


def backfill_windows(
    spark: SparkSession,
    settings: BackfillSettings,
    write: Write | None = None,
    watch: Watch | None = None,
) -> Progress:
    """Process the remaining windows, or until `watch.stop()`; returns the progress.

    Without `write` each window becomes a directory of Parquet files, exactly once. With it, `write(rows,
    window)` is called for each, in `settings.parallel` threads; for an interrupted window it is called again
    with the same rows, so it should overwrite, merge, or check for `window.key`.

    Raises `BackfillError` when the directory holds another backfill, `PipelineError` naming the window if one
    fails: running windows are finished first, no other is started, and the next run continues from there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    ledger = BackfillLedger(files_of(settings.directory, NAME))
    with plain_errors(), ledger.mine():
        settled = _settled(settings, ledger)
        left = settled.left(ledger.done())
        watch.waiting(sum(map(len, left)))
        if left:
            window_rows(spark, settings, left[0])  # report a wrong expression before anything is stored
            if ledger.settled() is None:
                ledger.begin(settled)
            log.info("backfill %s in %s: %d windows left", settled.id, ledger.files.location, len(left))
            with _timestamps_that_files_are_skipped_by(spark):
                _Run(spark, settings, ledger, left, write, watch).carry_out()
    return watch.progress


def read_backfill(spark: SparkSession, directory: str | Path) -> DataFrame:
    """The finished windows as one table; column `window` has their numbers. Raises `BackfillError`."""
    ledger = BackfillLedger(files_of(directory, NAME))
    done = ledger.done()
    if not done:
        text = f"{directory} has no finished window; make some with sparrow pipe backfill"
        raise BackfillError(text, what="windows", value=directory)
    root = ledger.files.location
    paths = [f"{root}/{window_name(number)}" for number in sorted(done)]
    return spark.read.option("basePath", root).parquet(*paths)


@contextmanager
def _timestamps_that_files_are_skipped_by(spark: SparkSession) -> Iterator[None]:
    """Write times to Parquet as microseconds during the block: Spark's default has no statistics."""
    before = spark.conf.get(_TIMESTAMPS, None)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_TIMESTAMPS)
        else:
            spark.conf.set(_TIMESTAMPS, before)


def window_rows(spark: SparkSession, settings: BackfillSettings, window: Window) -> DataFrame:
    """The rows of a window, filtered and transformed according to the settings; the same at every attempt."""
    schema = ddl({name: SOURCE_COLUMNS[name] for name in settings.columns}) if settings.columns else None
    frame = reading.batch(spark, reading.assigned(settings.source_options, window.spans), schema)
    if settings.where:
        frame = frame.where(settings.where)
    return frame.selectExpr(*settings.select) if settings.select else frame


class _Run:
    """One run: threads that take the next window until none is left."""

    def __init__(
        self,
        spark: SparkSession,
        settings: BackfillSettings,
        ledger: BackfillLedger,
        left: Sequence[Window],
        write: Write | None,
        watch: Watch,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._ledger = ledger
        self._write = write
        self._watch = watch
        self._lock = threading.Lock()
        self._waiting = deque(left)
        self._left = len(left)
        self._lag = sum(map(len, left))
        self._failed: tuple[Window, Exception] | None = None

    def carry_out(self) -> None:
        """Process all windows. Raises the error of the first that failed, after running windows have
        ended.
        """
        from pyspark.util import InheritableThread

        count = min(self._settings.parallel, len(self._waiting))
        threads = [
            InheritableThread(target=self._work, name=f"sparrow-backfill-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # ends: every window does; polls, so that Ctrl-C is handled
                thread.join(_LOOK_SECONDS)
        if self._failed is None:
            return
        window, error = self._failed
        if isinstance(error, BackfillError):
            raise error
        where = self._ledger.files.location
        raise PipelineError(
            f"window {window.number} of {where}: {_text(error)}; {self._left} windows are left; the next "
            f"run continues with them",
            what="window",
            value=window.number,
            limit=self._left,
        ) from error

    def _work(self) -> None:
        while (window := self._next()) is not None:
            try:
                self._do(window)
            except Exception as error:
                with self._lock:
                    self._failed = self._failed or (window, error)

    def _next(self) -> Window | None:
        with self._lock:
            if self._watch.stopping or self._failed is not None or not self._waiting:
                return None
            return self._waiting.popleft()

    def _do(self, window: Window) -> None:
        began = monotonic()
        self._ledger.check_run()
        self._spark.sparkContext.setJobDescription(f"backfill window {window.number}")
        if self._write is None:
            rows, size = self._to_files(window)
        else:
            told = self._write(window_rows(self._spark, self._settings, window), window)
            rows, size = len(window) if told is None else told, 0
        seconds = monotonic() - began
        self._ledger.note(window, rows=rows, size=size, seconds=round(seconds, 3), at=round(time(), 3))
        with self._lock:  # the number of waiting messages only decreases, whichever window ends first
            self._left -= 1
            self._lag -= len(window)
            self._watch.batch(rows, size, seconds, self._lag)

    def _to_files(self, window: Window) -> tuple[int, int]:
        """Replace the content of the window's directory by its rows; returns rows and bytes."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen, name = Observation(), window_name(window.number)
        frame = window_rows(self._spark, self._settings, window)
        frame = frame.observe(seen, F.count(F.lit(1)).alias("rows"))
        where = f"{self._ledger.files.location}/{name}"
        frame.write.mode("overwrite").parquet(where)
        rows = int(seen.get["rows"])
        if rows != len(window) and not self._settings.is_narrowed:
            raise BackfillError(
                f"{where} has {rows} messages instead of {len(window)}: it is not marked as done; run it "
                f"again"
            )
        return rows, self._ledger.files.size(name)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, SparrowError) else explain(error)


def _settled(settings: BackfillSettings, ledger: BackfillLedger) -> Settled:
    """The stored plan; if there is none, the plan for the current state."""
    found = ledger.settled()
    if found is not None:
        found.check(settings.asked, ledger.files.location)
        return found
    return Settled.now(settings.asked, _cut(settings))


def _cut(settings: BackfillSettings) -> list[Window]:
    """Cut what is stored now into windows. Asks the cluster."""
    spans = reading.spans_of(between(settings.source_options, settings.since, settings.until))
    if not spans:
        return []
    if settings.window_ms is None:
        return by_rows(spans, settings.rows)
    since, until = _extent(settings, spans)
    moments = boundaries(since, until, settings.window_ms)
    return by_time(spans, moments, [_offsets_at(settings, moment) for moment in moments])


def _extent(settings: BackfillSettings, spans: Sequence[Span]) -> tuple[int, int]:
    """The store times of the messages, epoch milliseconds, the end excluded."""
    options = settings.source_options
    firsts = reading.store_times(options, {span.queue: span.start for span in spans})
    lasts = reading.store_times(options, {span.queue: span.end - 1 for span in spans})
    since = min(firsts.values(), default=0)
    return since, max(lasts.values(), default=since) + 1


def _offsets_at(settings: BackfillSettings, moment: int) -> dict[MessageQueue, int]:
    """The first offset stored at or after a moment, for queues that have earlier messages."""
    earlier = reading.spans_of(between(settings.source_options, None, moment))
    return {span.queue: span.end for span in earlier}
