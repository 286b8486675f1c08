"""What the pipelines' commands share: their options, the session, and what is shown while they run."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sparrowmq.cli.common import UsageError, print_json, print_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.steps import Plan
    from sparrowmq.spark.pipelines.watch import Progress as Done
    from sparrowmq.spark.pipelines.watch import Report, Watch

T = TypeVar("T")
TIME_FORMAT: Final = "yyyy-MM-dd HH:mm:ss.SSS"
TOLD_TWICE: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that write a line of JSON beside each error that is raised."""
INTERRUPTED: Final = "KeyboardInterrupt while sending command."
"""What Py4J logs with a traceback when Ctrl-C comes; who pressed it knows."""
PLAIN_SECONDS: Final = 5.0
"""Without a terminal there are no bars but a line this often."""


class Show(StrEnum):
    """How a run tells what it does."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark's master: local[N], spark://HOST:PORT, yarn, …")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of the data source; may be repeated."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Stored at or after, such as 2026-11-21T08:00."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Stored before.")]
OutTo = Annotated[
    Path | None, typer.Option("--to", help="Write the messages to Parquet there; it must not exist.")
]
DEFAULT_MASTER: Final = "local[2]"


@dataclass(frozen=True, slots=True)
class Run:
    """How a pipeline is run."""

    master: str = DEFAULT_MASTER
    conf: Sequence[str] = ()
    show: Show = Show.BAR
    metrics: str | None = None
    as_json: bool = False
    """Whether the result is JSON, too."""
    fleeting: bool = False
    """Whether the bar goes when it is done: what follows says it all."""


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary. Raises `UsageError`."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text!r}: give NAME=VALUE")
        found[name] = value
    return found


def millis(text: str | None) -> int | None:
    """A moment in epoch milliseconds; without a zone it is local time. Raises `UsageError`."""
    if text is None:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise UsageError(f"{text!r} is no time: give one such as 2026-11-21T08:00:00") from None


def need_spark() -> None:
    """Raise `UsageError` with what to type when Spark is not installed."""
    for name in ("pyspark", "pyarrow", "numpy", "prometheus_client", "prompt_toolkit"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise UsageError(f"pipelines need {name}: pip install 'sparrowmq[spark]'") from None


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        print_json(plan.to_json())
    else:
        print(plan)


def topics_of(frame: DataFrame) -> list[Any]:
    """How many messages and bytes of body there are of each topic, and from when to when: a row for each."""
    from pyspark.sql import functions as F

    counted = frame.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum(F.length("body")).alias("bytes"),
        F.date_format(F.min("store_timestamp"), TIME_FORMAT).alias("first"),
        F.date_format(F.max("store_timestamp"), TIME_FORMAT).alias("last"),
    )
    return counted.orderBy("topic").collect()


def show_topics(found: Sequence[Any], as_json: bool) -> None:
    """Print what `topics_of` gave."""
    if as_json:
        for row in found:
            print_json(row.asDict())
        return
    columns = ("topic", "messages", "bytes", "first", "last")
    print_table(columns, [[row[name] for name in columns] for row in found], right=("messages", "bytes"))


def check_new(to: Path | None) -> None:
    """Raise `UsageError` for an `OutTo` that exists."""
    if to is not None and to.exists():
        raise UsageError(f"{to} exists; give another place or remove it")


class Bars:
    """Rows done of rows known, as a bar on standard error, or a line now and then where there is no
    terminal.
    """

    def __init__(
        self, console: Console, now: Callable[[], float] = time.monotonic, fleeting: bool = False
    ) -> None:
        self._console = console
        self._now = now
        self._next = now() + PLAIN_SECONDS
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:,.0f} rows, {task.fields[lag]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=fleeting,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, done: Done) -> None:
        """Show what was done."""
        lag = _lag_text(done)
        if self._console.is_terminal:
            total = None if done.lag is None else done.rows + done.lag
            if self._task is None:
                self._task = self._progress.add_task(done.pipeline, total=total, lag=lag)
            self._progress.update(self._task, completed=done.rows, total=total, lag=lag)
        elif self._now() >= self._next and (done.rows or done.lag is not None):
            self._next = self._now() + PLAIN_SECONDS
            self._console.print(f"{done.pipeline}: {done.rows:,} rows, {lag}", highlight=False, markup=False)


def _lag_text(done: Done) -> str:
    """What waits; the topic whose oldest message waits longest by name."""
    if done.lag is None:
        return "lag not known"
    late = [lag for lag in done.topics or () if lag.messages and lag.seconds is not None]
    if not late:
        return f"lag {done.lag:,}"
    worst = max(late, key=lambda lag: lag.seconds or 0.0)
    return f"lag {done.lag:,}, {worst.topic} by {worst.seconds:,.0f} s"


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the log tells what is not known."""
    return record.getMessage() != INTERRUPTED


@contextmanager
def session(name: str, master: str, conf: Sequence[str]) -> Iterator[SparkSession]:
    """A quiet session; what Spark's processes say is kept in a file when something fails, and named.

    Workers of a cluster get this package.
    """
    from pyspark.logger import PySparkLogger

    from sparrowmq.spark.pipelines.queries import plain_errors
    from sparrowmq.spark.session import builder, is_local, standard_error_to
    from sparrowmq.spark.shipping import package_zip

    handle, path = tempfile.mkstemp(prefix="sparrow-pipe-", suffix=".log")
    os.close(handle)
    log = Path(path)
    package = log.with_suffix(".zip")
    for logger in TOLD_TWICE:
        PySparkLogger.getLogger(logger).disabled = True
    logging.getLogger().addFilter(_is_news)
    made: Any = builder(f"sparrow pipe {name}", master)
    if not is_local(master):
        made = made.config("spark.submit.pyFiles", str(package_zip(package)))
    for key, value in pairs(conf, "--conf").items():
        made = made.config(key, value)
    try:
        with plain_errors():
            with standard_error_to(log):
                spark: SparkSession = made.getOrCreate()
            try:
                yield spark
            finally:
                with standard_error_to(log):
                    spark.stop()
    except Exception:
        if log.stat().st_size:
            print(f"sparrow: what Spark wrote is in {log}", file=sys.stderr)
        else:
            log.unlink()
        raise
    else:
        log.unlink()
    finally:
        package.unlink(missing_ok=True)


@contextmanager
def watching(run: Run, *more: Report) -> Iterator[Watch]:
    """A watch that shows progress as asked, and tells `more`."""
    from sparrowmq.spark.pipelines.watch import Watch, all_of, json_lines

    with ExitStack() as stack:
        reports: list[Report] = [*more, *stack.enter_context(served(run.metrics))]
        if run.show is Show.BAR:
            reports.append(stack.enter_context(Bars(Console(stderr=True), fleeting=run.fleeting)))
        elif run.show is Show.JSON:
            reports.append(json_lines(sys.stdout))
        yield Watch(all_of(*reports))


@contextmanager
def served(address: str | None) -> Iterator[list[Report]]:
    """The report that serves metrics at `HOST:PORT` meanwhile; none without an address."""
    from sparrowmq.spark.pipelines import metrics

    if address is None:
        yield []
        return
    with metrics.serve(*metrics.address(address)) as (report, port):
        print(f"metrics at port {port}, path /metrics", file=sys.stderr)
        yield [report]


def run_pipeline(name: str, run: Run, work: Callable[[SparkSession, Watch], Done]) -> None:
    """Run a pipeline to its end, then say in one line what it did; progress as JSON says it itself.

    SIGINT and SIGTERM end it after the batch in hand.
    """
    need_spark()
    from sparrowmq.spark.pipelines.queries import stopped_by_signals

    # Signals come after the session, which sets a handler of its own.
    with watching(run) as watch, session(name, run.master, run.conf) as spark, stopped_by_signals(watch):
        done = work(spark, watch)
    if run.as_json:
        print_json({**done.to_json(), "stopped": watch.stopping})
    elif run.show is not Show.JSON:
        ended = "stopped: " if watch.stopping else ""
        batches = "1 batch" if done.batches == 1 else f"{done.batches:,} batches"
        print(f"{ended}{done.rows:,} messages in {batches}, {done.size:,} bytes")


def run_read(name: str, run: Run, most: int | None, work: Callable[[SparkSession], T]) -> T:
    """The result of `work`, which only reads: `most` messages, if that is known. It is shown as asked."""
    need_spark()
    from sparrowmq.spark.pipelines.following import followed

    with watching(run) as watch, session(name, run.master, run.conf) as spark:
        watch.begin(name, most)
        with followed(spark, watch, most):
            return work(spark)


def write_out(frame: DataFrame, to: Path) -> int:
    """Write a table to Parquet; how many messages are in its files."""
    from sparrowmq.spark.pipelines.archive_home import written

    frame.write.parquet(str(to))
    return written(to).rows
