"""What the pipelines' commands share: their options, the session, and what is shown while they run."""

from __future__ import annotations

import importlib
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
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sparrowmq.cli.common import UsageError, print_json, print_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.steps import Plan
    from sparrowmq.spark.pipelines.watch import Progress as Done
    from sparrowmq.spark.pipelines.watch import Watch

TIME_FORMAT: Final = "yyyy-MM-dd HH:mm:ss.SSS"
TOLD_TWICE: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that write a line of JSON beside each error that is raised."""
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


def show_topics(frame: DataFrame, as_json: bool) -> None:
    """Print how many messages and bytes of body there are of each topic, and from when to when."""
    from pyspark.sql import functions as F

    counted = frame.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum(F.length("body")).alias("bytes"),
        F.date_format(F.min("store_timestamp"), TIME_FORMAT).alias("first"),
        F.date_format(F.max("store_timestamp"), TIME_FORMAT).alias("last"),
    )
    found: list[Any] = counted.orderBy("topic").collect()
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


def write_out(frame: DataFrame, to: Path) -> None:
    """Write a table to Parquet, and say how many messages are there."""
    frame.write.parquet(str(to))
    print(f"{frame.sparkSession.read.parquet(str(to)).count():,} messages are in {to}")


class Bars:
    """Rows done of rows known, as a bar on standard error, or a line now and then where there is no
    terminal.
    """

    def __init__(self, console: Console, now: Callable[[], float] = time.monotonic) -> None:
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
        elif self._now() >= self._next:
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
def watching(run: Run) -> Iterator[Watch]:
    """A watch that shows progress as asked."""
    from sparrowmq.spark.pipelines import metrics
    from sparrowmq.spark.pipelines.watch import Report, Watch, all_of, json_lines

    with ExitStack() as stack:
        reports: list[Report] = []
        if run.show is Show.BAR:
            reports.append(stack.enter_context(Bars(Console(stderr=True))))
        elif run.show is Show.JSON:
            reports.append(json_lines(sys.stdout))
        if run.metrics is not None:
            report, port = stack.enter_context(metrics.serve(*metrics.address(run.metrics)))
            print(f"metrics at port {port}, path /metrics", file=sys.stderr)
            reports.append(report)
        yield Watch(all_of(*reports))


def run_pipeline(name: str, run: Run, work: Callable[[SparkSession, Watch], Done]) -> None:
    """Run a pipeline to its end, then say in one line what it did; progress as JSON says it itself.

    SIGINT and SIGTERM end it after the batch in hand.
    """
    need_spark()
    from sparrowmq.spark.pipelines.queries import stopped_by_signals

    # Signals come after the session, which sets a handler of its own.
    with watching(run) as watch, session(name, run.master, run.conf) as spark, stopped_by_signals(watch):
        done = work(spark, watch)
    if run.show is not Show.JSON:
        ended = "stopped: " if watch.stopping else ""
        print(f"{ended}{done.rows:,} messages in {done.batches:,} batches, {done.size:,} bytes")
