"""Shared by the pipelines' commands: options, the session, and progress output."""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sparrowmq.cli.base.common import UsageError, print_json, print_table, say, say_lines
from sparrowmq.cli.pipes.zones import PATTERN
from sparrowmq.core.outside import one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.common.steps import Plan
    from sparrowmq.spark.pipelines.common.watch import Progress as Done
    from sparrowmq.spark.pipelines.common.watch import Report

TOLD_TWICE: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that write a line of JSON for each raised error."""
INTERRUPTED: Final = "KeyboardInterrupt while sending command."
"""Py4J's log messages with a traceback after Ctrl-C, which the user does not need."""
PLAIN_SECONDS: Final = 5.0
"""Without a terminal, seconds between two lines instead of bars."""


class Show(StrEnum):
    """Options for the progress output."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark's master: local[N], spark://HOST:PORT, yarn, …")
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; repeatable."),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Option of the data source; repeatable."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only messages stored at or after this time, such as 2026-11-21T08:00.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only messages stored before this time.")
]
Topics = Annotated[list[str] | None, typer.Argument(help="Topics; none with --pattern.")]
Pattern = Annotated[str, typer.Option(help="Regular expression for whole topic names.")]
Follow = Annotated[bool, typer.Option("--follow", help="Continue until Ctrl-C.")]
Every = Annotated[float, typer.Option(help="With --follow: seconds between the starts of batches.")]
BatchRows = Annotated[int, typer.Option(help="Maximum messages per batch.")]
OutTo = Annotated[
    str | None,
    typer.Option("--to", metavar="PATH|URI", help="Write the messages to this new directory as Parquet."),
]
DEFAULT_MASTER: Final = "local[2]"


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary. Raises `UsageError`."""
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} {text!r}: give NAME=VALUE", what=option, value=text)
        found[name] = value
    return found


def need_spark() -> None:
    """Raises `UsageError` with the install command if Spark is not installed."""
    for name in ("pyspark", "pyarrow", "numpy", "prometheus_client", "prompt_toolkit"):
        try:
            importlib.import_module(name)
        except ImportError:
            from sparrowmq.runtime.extras import install_line

            text = f"pipelines need {name}; type: {install_line('spark')}"
            raise UsageError(text, what=name) from None


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        print_json(plan.to_json())
    else:
        say_lines(plan)


def topics_of(frame: DataFrame) -> list[Any]:
    """Messages, bytes of bodies, and first and last store time of each topic: a row for each."""
    from pyspark.sql import functions as F

    counted = frame.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum(F.length("body")).alias("bytes"),
        F.date_format(F.min("store_timestamp"), PATTERN).alias("first"),
        F.date_format(F.max("store_timestamp"), PATTERN).alias("last"),
    )
    return counted.orderBy("topic").collect()


def show_topics(found: Sequence[Any], as_json: bool) -> None:
    """Print the result of `topics_of`."""
    if as_json:
        print_json(*(row.asDict() for row in found))
        return
    columns = ("topic", "messages", "bytes", "first", "last")
    print_table(columns, [[row[name] for name in columns] for row in found], right=("messages", "bytes"))


def check_new(to: str | None) -> None:
    """Raises `UsageError` for an `OutTo` that exists; for a URI, Spark checks it."""
    if to is not None and Path(to).exists():
        raise UsageError(f"{to} exists; give another directory or remove it")


class Bars:
    """Processed and total rows, as a bar on standard error, or as an occasional line without a terminal."""

    def __init__(
        self, console: Console, now: Callable[[], float] = time.monotonic, fleeting: bool = False
    ) -> None:
        self._console = console
        self._now = now
        self._next = now() + PLAIN_SECONDS
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=40),
            TextColumn("{task.completed:,.0f} rows, {task.fields[lag]}", markup=False),
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
        """Show the progress."""
        lag = one_line(_lag_text(done))
        if self._console.is_terminal:
            total = None if done.lag is None else done.rows + done.lag
            if self._task is None:
                self._task = self._progress.add_task(done.pipeline, total=total, lag=lag)
            self._progress.update(self._task, completed=done.rows, total=total, lag=lag)
        elif self._now() >= self._next and (done.rows or done.lag is not None):
            self._next = self._now() + PLAIN_SECONDS
            self._console.print(f"{done.pipeline}: {done.rows:,} rows, {lag}", highlight=False, markup=False)


def _lag_text(done: Done) -> str:
    """The waiting messages; names the topic whose oldest message waits longest."""
    if done.lag is None:
        return "lag not known"
    late = [lag for lag in done.topics or () if lag.messages and lag.seconds is not None]
    if not late:
        return f"lag {done.lag:,}"
    worst = max(late, key=lambda lag: lag.seconds or 0.0)
    return f"lag {done.lag:,}, {worst.topic} by {worst.seconds:,.0f} s"


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of the log is to be shown."""
    return record.getMessage() != INTERRUPTED


@contextmanager
def session(name: str, master: str, conf: Sequence[str]) -> Iterator[SparkSession]:
    """A quiet session. The output of Spark's processes is kept in a file, and the file named, if something
    fails.

    Workers of a cluster get this package.
    """
    from pyspark.logger import PySparkLogger

    from sparrowmq.spark.interpreter import is_local
    from sparrowmq.spark.pipelines.common.queries import plain_errors
    from sparrowmq.spark.sessions import builder, standard_error_to
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
            say(f"sparrow: see Spark's log in {log}", err=True)
        else:
            log.unlink()
        raise
    else:
        log.unlink()
    finally:
        package.unlink(missing_ok=True)


@contextmanager
def served(address: str | None) -> Iterator[list[Report]]:
    """The report that serves metrics at `HOST:PORT` within the block; none without an address."""
    from sparrowmq.spark.metrics.http import address as parsed
    from sparrowmq.spark.pipelines.common.prometheus import serve

    if address is None:
        yield []
        return
    with serve(*parsed(address)) as (report, port):
        say(f"metrics at port {port}, path /metrics", err=True)
        yield [report]


def write_out(frame: DataFrame, to: str) -> int:
    """Write a table to Parquet. Returns the number of messages in its files."""
    from sparrowmq.spark.pipelines.common.directories import directory, is_uri, spark_path

    where = to if is_uri(to) else spark_path(directory(to, "table"))
    frame.write.parquet(where)
    return int(frame.sparkSession.read.schema(frame.schema).parquet(where).count())
