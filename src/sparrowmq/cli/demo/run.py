"""The demo from beginning to end: a cluster, flights through it, Spark behind it, the reconciliation."""

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
from typing import TYPE_CHECKING, Final

from rich.console import Console

from sparrowmq.cli.common import UsageError
from sparrowmq.cli.demo import pipeline
from sparrowmq.cli.demo.flights import data_directory
from sparrowmq.cli.demo.java import check_java
from sparrowmq.cli.demo.reconcile import Verdict, read_parquet
from sparrowmq.cli.demo.report import Run, Sample, render
from sparrowmq.cli.demo.screen import Screen, show_result
from sparrowmq.cli.demo.traffic import Plan, Traffic, delete_topics
from sparrowmq.cli.demo.workplace import Workplace, prepare
from sparrowmq.core.errors import SparrowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TITLE: Final = "Flights from New York, 2013"
TICK_SECONDS: Final = 0.1
SAMPLE_SECONDS: Final = 0.25
STALL_SECONDS_MAX: Final = 120.0
"""Without any progress for so long the demo gives up and says what is missing."""
SUMMARY_SECONDS_MAX: Final = 15.0
"""How long the last summaries may take to come back."""
TOPIC_SECONDS_MAX: Final = 30.0
LOG_FILE_BYTES: Final = 256 * 1024 * 1024
JVM_SECONDS_MAX: Final = 15.0
NEEDED: Final = ("pyspark", "pyarrow", "numpy")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    rows: int
    rate: float | None
    keep: bool
    namesrv: str | None
    directory: Path
    master: str = "local[2]"


def check_needs() -> Path:
    """The data's directory; raises `UsageError` naming the first thing that is missing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UsageError(f"the demo needs {', '.join(missing)}; type:  pip install 'sparrowmq[demo]'")
    check_java()
    return data_directory()


@contextlib.contextmanager
def cluster(options: Options, place: Workplace) -> Iterator[str]:
    """The name server's address: of the cluster given, or of one in a child process for the block."""
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
def spark_session(job: pipeline.Job) -> Iterator[SparkSession]:
    """A session whose JVM has ended when the block does: stopped after a good end, killed after any other."""
    conf = pipeline.configuration(job)
    with late_interrupt():
        gateway = pipeline.launch(job, conf)
    try:
        spark = pipeline.session(gateway, conf)
        # Spark's own handler cancels jobs from inside the signal; here the end of the block ends them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield spark
        with quiet_signals():
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                gateway.proc.wait(JVM_SECONDS_MAX)
    finally:
        with quiet_signals():
            gateway.proc.kill()
            gateway.proc.wait()


@contextlib.contextmanager
def late_interrupt() -> Iterator[None]:
    """Ctrl-C during the block is raised at its end: a JVM that is being launched must not be left alone."""
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
    """A second Ctrl-C does not break the cleaning up after the first."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Watch:
    """Samples the counters, moves the bars, and says when the work is done or stuck."""

    def __init__(self, traffic: Traffic, progress: pipeline.Progress, screen: Screen) -> None:
        self.samples: list[Sample] = []
        self._traffic = traffic
        self._progress = progress
        self._screen = screen
        self._started = time.monotonic()
        self._moved = self._started

    def sample(self) -> Sample:
        """Take a sample and show it."""
        traffic = self._traffic
        seconds = round(time.monotonic() - self._started, 2)
        now = Sample(seconds, traffic.sent, traffic.stored, self._progress.processed)
        last = self.samples[-1] if self.samples else None
        if last is None or seconds - last.seconds >= SAMPLE_SECONDS:
            self.samples.append(now)
        if last is None or (last.sent, last.processed) != (now.sent, now.processed):
            self._moved = time.monotonic()
        self._screen.show(now, traffic.total)
        return now

    def done(self) -> bool:
        """Whether every flight was sent and processed. Raises when nothing moves or a part has failed."""
        self._traffic.check()
        now = self.sample()
        if self._traffic.all_sent.is_set() and now.processed >= now.sent:
            self.samples.append(now)
            return True
        if time.monotonic() - self._moved > STALL_SECONDS_MAX:
            raise SparrowError(
                f"nothing moved for {STALL_SECONDS_MAX:g} s: sent {now.sent:,}, stored {now.stored:,}, "
                f"processed {now.processed:,}"
            )
        return False


def _follow(query: StreamingQuery, watch: Watch) -> None:
    while not watch.done():  # ends by itself when nothing moves
        if not query.isActive:
            raise SparrowError(f"the Spark stream ended: {query.exception()}")
        time.sleep(TICK_SECONDS)


def _await_summaries(traffic: Traffic, progress: pipeline.Progress) -> None:
    deadline = time.monotonic() + SUMMARY_SECONDS_MAX
    while traffic.summaries < progress.summaries and time.monotonic() < deadline:
        traffic.check()
        time.sleep(TICK_SECONDS)


@dataclass(slots=True)
class Flow:
    """Everything through the cluster once: `execute` runs it, the rest is what came of it."""

    options: Options
    place: Workplace
    data: Path
    screen: Screen
    progress: pipeline.Progress

    def execute(self, namesrv: str) -> tuple[Traffic, list[Sample]]:
        """Send, stream and wait until all is done; the clients are closed and Spark has ended then."""
        stamp = time.strftime("%Y%m%d_%H%M%S")
        plan = Plan(
            namesrv,
            f"SparrowDemoFlights_{stamp}",
            f"SparrowDemoSummaries_{stamp}",
            f"SparrowDemo_{stamp}",
            self.data,
            self.options.rows,
            self.options.rate,
        )
        job = pipeline.Job(
            namesrv,
            plan.flights_topic,
            plan.summary_topic,
            self.data,
            self.place.parquet,
            self.place.checkpoint,
            self.place.scratch,
            self.place.sockets,
            self.place.spark_log,
            self.options.master,
        )
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

    def _stream(self, job: pipeline.Job, traffic: Traffic) -> list[Sample]:
        """Start Spark, then the sending, and follow both to the end; the samples taken meanwhile."""
        with spark_session(job) as spark:
            if not traffic.topics_ready.wait(TOPIC_SECONDS_MAX):
                raise SparrowError(f"no topic could be made at {job.namesrv} within {TOPIC_SECONDS_MAX:g} s")
            traffic.check()
            query = pipeline.start(spark, job, self.progress)
            watch = Watch(traffic, self.progress, self.screen)
            traffic.begin()
            _follow(query, watch)
            query.processAllAvailable()  # until the last batch stands in the checkpoint as well
            _await_summaries(traffic, self.progress)
            query.stop()
        return watch.samples

    def _remove_topics(self, plan: Plan) -> None:
        try:
            delete_topics(plan)
        except SparrowError as error:
            self.screen.say(f"the demo's topics stay in the cluster: {error}")


def _run_through(options: Options, console: Console, place: Workplace, data: Path) -> Run:
    """The whole flow, and the page and the Parquet files that come of it."""
    started = time.monotonic()
    progress = pipeline.Progress()
    with cluster(options, place) as namesrv, Screen(console) as screen:
        screen.say(f"name server {namesrv}, data {place.run}")
        traffic, samples = Flow(options, place, data, screen, progress).execute(namesrv)
    verdict = Verdict(
        expected=traffic.total or 0,
        sent=traffic.sent,
        stored=traffic.stored,
        parquet=read_parquet(place.parquet, traffic.total or 0),
        counted=progress.totals.flights,
    )
    seconds = time.monotonic() - started
    run = Run(TITLE, seconds, progress.totals, samples, verdict, progress.summaries, traffic.summaries)
    place.page.write_text(render(run), encoding="utf-8")
    place.publish()
    return run


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether to show a log record: Spark's Python side logs each call that a killed JVM leaves open."""
    return record.name != "root" and not record.name.startswith("py4j")


def run_demo(options: Options, console: Console) -> int:
    """Run the demo; the exit status says whether sent = stored = in Parquet."""
    data = check_needs()
    place = prepare(options.directory)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_ours)
    # The data's package brings a pandas newer than PySpark has tested; nothing here uses pandas.
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
