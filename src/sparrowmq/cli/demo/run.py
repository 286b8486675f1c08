"""The demo from beginning to end: it starts a cluster, sends the flights, runs Spark, and reconciles the
results.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.demo import pipeline
from sparrowmq.cli.demo.flights import data_directory
from sparrowmq.cli.demo.java import check_java
from sparrowmq.cli.demo.reconcile import Reconciliation, read_parquet
from sparrowmq.cli.demo.report import DemoRun, DemoSample, render
from sparrowmq.cli.demo.screen import Screen, show_result
from sparrowmq.cli.demo.traffic import Traffic, TrafficPlan, delete_topics
from sparrowmq.cli.demo.workplace import Workplace, prepare
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TITLE: Final = "Flights from New York, 2013"
TICK_SECONDS: Final = 0.1
SAMPLE_SECONDS: Final = 0.25
STALL_SECONDS_MAX: Final = 120.0
"""After this time without progress, the demo fails with an error that says what is missing."""
SUMMARY_SECONDS_MAX: Final = 15.0
"""How long the last summaries may take to arrive."""
TOPIC_SECONDS_MAX: Final = 30.0
LOG_FILE_BYTES: Final = 256 * 1024 * 1024
JVM_SECONDS_MAX: Final = 15.0
NEEDED: Final = ("pyspark", "pyarrow", "numpy")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the command line."""

    rows: int
    rate: float | None
    keep: bool
    namesrv: str | None
    directory: Path
    master: str = "local[2]"


def check_needs() -> Path:
    """The data's directory. Raises `UsageError` naming the first missing requirement."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        from sparrowmq.runtime.extras import install_line

        text = f"the demo needs {', '.join(missing)}; type:  {install_line('demo')}"
        raise UsageError(text, what=missing[0])
    check_java()
    return data_directory()


@contextlib.contextmanager
def cluster(options: DemoOptions, place: Workplace) -> Iterator[str]:
    """The name server's address: of the given cluster, or of one in a child process within the block."""
    from sparrowmq.runtime.child import ChildServers

    if options.namesrv is not None:
        yield options.namesrv
        return
    broker = {
        "listenPort": "0",
        "storePathRootDir": str(place.store),
        "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    }
    with ChildServers(broker, {"listenPort": "0"}, log=place.servers_log) as servers:
        yield servers.nameserver_address


@contextlib.contextmanager
def spark_session(job: pipeline.DemoJob) -> Iterator[SparkSession]:
    """A session whose JVM ends with the block: stopped after success, otherwise killed."""
    from pyspark import SparkContext

    try:
        with late_interrupt():
            spark = pipeline.session(job)
        # Spark's own handler cancels jobs inside the signal handler; here the end of the block ends them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield spark
        with quiet_signals():
            gateway: Any = SparkContext._gateway
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                gateway.proc.wait(JVM_SECONDS_MAX)
    finally:
        with quiet_signals():
            launched: Any = SparkContext._gateway
            if launched is not None:
                launched.proc.kill()
                launched.proc.wait()


@contextlib.contextmanager
def late_interrupt() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block, because a JVM must not be abandoned during its launch."""
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if seen:
        raise KeyboardInterrupt


@contextlib.contextmanager
def quiet_signals() -> Iterator[None]:
    """A second Ctrl-C does not interrupt the clean-up after the first."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class DemoWatch:
    """Samples the counters, moves the bars, and detects whether the work is done or stuck."""

    def __init__(self, traffic: Traffic, progress: pipeline.StreamProgress, screen: Screen) -> None:
        self.samples: list[DemoSample] = []
        self._traffic = traffic
        self._progress = progress
        self._screen = screen
        self._started = time.monotonic()
        self._moved = self._started

    def sample(self) -> DemoSample:
        """Take a sample and show it."""
        traffic = self._traffic
        seconds = round(time.monotonic() - self._started, 2)
        now = DemoSample(seconds, traffic.sent, traffic.stored, self._progress.processed)
        last = self.samples[-1] if self.samples else None
        if last is None or seconds - last.seconds >= SAMPLE_SECONDS:
            self.samples.append(now)
        if last is None or (last.sent, last.processed) != (now.sent, now.processed):
            self._moved = time.monotonic()
        self._screen.show(now, traffic.total)
        return now

    def done(self) -> bool:
        """Whether every flight was sent and processed. Raises without progress, or if a part has failed."""
        self._traffic.check()
        now = self.sample()
        if self._traffic.all_sent.is_set() and now.processed >= now.sent:
            self.samples.append(now)
            return True
        if time.monotonic() - self._moved > STALL_SECONDS_MAX:
            raise SparrowError(
                f"no progress for {STALL_SECONDS_MAX:g} s: sent {now.sent:,}, stored {now.stored:,}, "
                f"processed {now.processed:,}",
                what="progress",
                limit=STALL_SECONDS_MAX,
            )
        return False


def _follow(query: StreamingQuery, watch: DemoWatch) -> None:
    while not watch.done():  # ends: without progress it raises
        if not query.isActive:
            why = query.exception()
            raise SparrowError(f"the Spark stream ended: {why}", what="stream", value=why)
        time.sleep(TICK_SECONDS)


def _await_summaries(traffic: Traffic, progress: pipeline.StreamProgress) -> None:
    deadline = time.monotonic() + SUMMARY_SECONDS_MAX
    while traffic.summaries < progress.summaries and time.monotonic() < deadline:
        traffic.check()
        time.sleep(TICK_SECONDS)


@dataclass(slots=True)
class DemoFlow:
    """One pass of all flights through the cluster: `execute` runs it, the other attributes are
    its results.
    """

    options: DemoOptions
    place: Workplace
    data: Path
    screen: Screen
    progress: pipeline.StreamProgress

    def execute(self, namesrv: str) -> tuple[Traffic, list[DemoSample]]:
        """Send, stream and wait until all is done; afterwards the clients are closed and Spark has ended."""
        stamp = time.strftime("%Y%m%d_%H%M%S")
        plan = TrafficPlan(
            namesrv,
            f"SparrowDemoFlights_{stamp}",
            f"SparrowDemoSummaries_{stamp}",
            f"SparrowDemo_{stamp}",
            self.data,
            self.options.rows,
            self.options.rate,
        )
        job = pipeline.DemoJob(plan, self.place, self.options.master)
        traffic = Traffic(plan, self.screen.summary)
        traffic.start()
        try:
            samples = self._stream(job, traffic)
        finally:
            with quiet_signals():
                traffic.stop()
                if self.options.namesrv is not None and not self.options.keep:
                    self._remove_topics(plan)
        traffic.check()
        return traffic, samples

    def _stream(self, job: pipeline.DemoJob, traffic: Traffic) -> list[DemoSample]:
        """Start Spark, then the sending, and follow both to the end. Returns the samples."""
        with spark_session(job) as spark:
            if not traffic.topics_ready.wait(TOPIC_SECONDS_MAX):
                raise SparrowError(
                    f"no topic could be created at {job.plan.namesrv} within {TOPIC_SECONDS_MAX:g} s"
                )
            traffic.check()
            query = pipeline.start(spark, job, self.progress)
            watch = DemoWatch(traffic, self.progress, self.screen)
            traffic.begin()
            _follow(query, watch)
            query.processAllAvailable()  # until the checkpoint also contains the last batch
            _await_summaries(traffic, self.progress)
            query.stop()
        return watch.samples

    def _remove_topics(self, plan: TrafficPlan) -> None:
        try:
            delete_topics(plan)
        except SparrowError as error:
            self.screen.say(f"the demo's topics stay in the cluster: {error}")


def _run_through(options: DemoOptions, console: Console, place: Workplace, data: Path) -> DemoRun:
    """The whole run, and the page and the Parquet files with its results."""
    started = time.monotonic()
    progress = pipeline.StreamProgress()
    with cluster(options, place) as namesrv, Screen(console) as screen:
        screen.say(f"name server {namesrv}, data {place.run}")
        traffic, samples = DemoFlow(options, place, data, screen, progress).execute(namesrv)
    verdict = Reconciliation(
        expected=traffic.total or 0,
        sent=traffic.sent,
        stored=traffic.stored,
        parquet=read_parquet(place.parquet, traffic.total or 0),
        counted=progress.totals.flights,
    )
    seconds = time.monotonic() - started
    run = DemoRun(TITLE, seconds, progress.totals, samples, verdict, progress.summaries, traffic.summaries)
    place.page.write_text(render(run), encoding="utf-8")
    place.publish()
    return run


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether to show a log record: Spark's Python side logs each call that a killed JVM did not answer."""
    return record.name != "root" and not record.name.startswith("py4j")


def run_demo(options: DemoOptions, console: Console) -> int:
    """Run the demo. The exit status says whether sent = stored = in Parquet."""
    data = check_needs()
    place = prepare(options.directory)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_ours)
    # The data's package installs a pandas newer than PySpark has tested; nothing here uses pandas.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        run = _run_through(options, console, place, data)
    except KeyboardInterrupt:
        console.print("stopped")
        raise
    except Exception as error:
        saved = place.save_logs()
        raise SparrowError(f"the demo failed: {error}\nlogs: {saved}") from error
    finally:
        with quiet_signals():
            kept = place.finish(options.keep)
    show_result(console, run.totals, run.verdict)
    console.print(f"{run.totals.flights:,} flights in {run.seconds:.0f} s", highlight=False)
    console.print(f"page     {place.page}\nParquet  {place.result}", highlight=False, soft_wrap=True)
    if kept is not None:
        console.print(f"kept     {kept}", highlight=False, soft_wrap=True)
    return 1 if run.verdict.faults else 0
