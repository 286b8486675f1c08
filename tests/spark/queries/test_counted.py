"""Every message is in the table once, at its place, whatever dies, grows, ends or comes back meanwhile."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.conftest import LONG
from tests.spark.counted import (
    COLUMNS,
    GATE_SECONDS,
    Ledger,
    Run,
    ToParquet,
    Verdict,
    audit,
    jvm_of,
    kill,
    python_workers,
    read_parquet,
)
from tests.spark.counted_child import ARROW_ROWS, runs, start_file_sink
from tests.spark.fleet import Fleet
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.timeout(3600 if LONG else 600)]

ROOT = Path(__file__).resolve().parents[3]
ROWS = 40_000 if LONG else 6_000
"""Messages of one send: more than what fits between source and gate, so that reading is not done there."""
SIZE = 400
AWAY_SECONDS = 60 if LONG else 1
"""How long a killed broker stays away."""
SEED = 20_261_121


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Arrow batches between JVM and Python small enough for a gate to stand between two of them."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name) or ""
    spark.conf.set(name, ARROW_ROWS)
    yield
    spark.conf.set(name, before)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two brokers."""
    with Fleet(tmp_path_factory.mktemp("fleet")) as made:
        made.start("broker-b")
        yield made


def table(*rows: tuple[str, int, int, bytes]) -> pa.Table:
    return pa.table(
        {name: list(column) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)}
    )


def test_an_audit_names_what_differs() -> None:
    ledger = Ledger("", "T")
    ledger._note("a/0", 5, 3)
    ledger._note("b/1", 0, 2)
    right = [("a", 0, 5, b"%012d.."), ("a", 0, 6, b"%012d"), ("a", 0, 7, b"%012d"), ("b", 1, 0, b"%012d")]
    rows = [(*row[:3], row[3] % number) for number, row in enumerate([*right, ("b", 1, 1, b"%012d")])]
    assert audit(ledger, table(*rows)) == Verdict(5)
    found = audit(
        ledger, table(rows[1], rows[2], rows[2], ("b", 1, 9, rows[3][3]), ("a", 0, 8, b"%012d" % 9))
    )
    assert found == Verdict(5, {"a/0": [0], "b/1": [4]}, {"a/0": [2]}, {"b/1": [3]}, [9])
    assert found.faults.splitlines() == [
        "a/0: 1 missing: [0]",
        "b/1: 1 missing: [4]",
        "a/0: 1 duplicate: [2]",
        "b/1: 1 misplaced: [3]",
        "1 never sent: [9]",
    ]


def test_a_batch_read_is_complete(spark: SparkSession, fleet: Fleet, tmp_path: Path) -> None:
    fleet.create_topic("Batch", 3)
    ledger = Ledger(fleet.namesrv, "Batch")
    ledger.send(ROWS, size=SIZE)
    options = {"nameServer": fleet.namesrv, "subscribe": "Batch", "minPartitions": "4"}
    spark.read.format("rocketmq").options(**options).load().write.parquet(str(tmp_path / "out"))
    verdict = audit(ledger, read_parquet(tmp_path / "out"))
    assert verdict.faults == ""
    assert verdict.rows == ROWS


@pytest.mark.proves("spark:S-07", "spark:S-22", "spark:E-01")
def test_available_now_goes_on_from_its_checkpoint(spark: SparkSession, fleet: Fleet, tmp_path: Path) -> None:
    fleet.create_topic("Available", 2)
    ledger = Ledger(fleet.namesrv, "Available")
    run = Run(spark, ledger, tmp_path, {"maxOffsetsPerTrigger": str(ROWS // 3)})
    for _ in range(2):
        ledger.send(ROWS, size=SIZE)
        run.start(available_now=True)
        run.finish()
        assert run.verdict() == Verdict(ledger.count)
    assert len(run.sink.rows) >= 6


class Life:
    """One running query and what happens to it; each event leaves more messages to be read."""

    def __init__(self, spark: SparkSession, fleet: Fleet, run: Run) -> None:
        self._spark = spark
        self._fleet = fleet
        self._run = run
        self._queues = 2
        self._added = 0

    def sends(self) -> None:
        """More messages in two goes."""
        for _ in range(2):
            self._run.ledger.send(ROWS // 2, size=SIZE)

    def _in_the_middle(self, event: Callable[[], object]) -> None:
        """`event` comes while a task stands between two of its Arrow batches."""
        run = self._run
        run.gate.close()
        run.ledger.send(ROWS, size=SIZE)
        run.gate.wait(run.check)
        try:
            event()
        finally:
            run.gate.open()

    def workers_are_killed(self) -> None:
        """kill -9 of every Python worker of the running task: Spark tries it again."""

        def event() -> None:
            assert kill(python_workers(jvm_of(self._spark))) >= 2

        self._in_the_middle(event)

    def the_query_is_stopped(self) -> None:
        """Stopped in a batch and started from its checkpoint: the same batch comes again."""
        run = self._run
        assert run.query is not None
        self._in_the_middle(run.query.stop)
        run.start()

    def a_broker_is_killed(self) -> None:
        """kill -9 of a broker in the middle of a batch; it is back some time later."""
        self._in_the_middle(lambda: self._fleet.kill("broker-b"))
        back = time.monotonic() + AWAY_SECONDS
        until_sync(lambda: self._run.check() and time.monotonic() >= back, AWAY_SECONDS + 60)
        self._fleet.start("broker-b")

    def queues_and_a_broker_are_added(self) -> None:
        """The topic gets a queue more on each broker, and one broker more."""
        self._queues += 1
        self._added += 1
        self._fleet.start(f"broker-n{self._added}")
        self._fleet.create_topic(self._run.ledger.topic, self._queues)
        self._run.ledger.send(ROWS, size=SIZE)

    def a_broker_is_removed(self) -> None:
        """The broker that came last goes; what it had was read."""
        self._fleet.stop(f"broker-n{self._added}")
        self._run.ledger.send(ROWS, size=SIZE)


EVENTS = (
    Life.sends,
    Life.workers_are_killed,
    Life.the_query_is_stopped,
    Life.a_broker_is_killed,
    Life.queues_and_a_broker_are_added,
    Life.a_broker_is_removed,
)


def events() -> Iterator[Callable[[Life], None]]:
    """Each once, in order; in the long tier many more, drawn."""
    yield from EVENTS
    if LONG:
        rng = random.Random(SEED)
        for _ in range(40):
            yield from rng.choice([*((event,) for event in EVENTS[:4]), EVENTS[4:]])


@pytest.mark.proves("spark:S-08", "spark:S-31", "spark:S-51", "spark:S-53", "spark:E-04")
def test_a_stream_lives_through_everything(spark: SparkSession, fleet: Fleet, tmp_path: Path) -> None:
    fleet.create_topic("Life", 2)
    ledger = Ledger(fleet.namesrv, "Life")
    ledger.send(ROWS, size=SIZE)
    run = Run(spark, ledger, tmp_path, {"maxOffsetsPerTrigger": str(ROWS)})
    run.start()
    life = Life(spark, fleet, run)
    try:
        run.drain()
        for event in events():
            event(life)
            run.drain()
            assert run.verdict() == Verdict(ledger.count), f"{event.__doc__} (seed {SEED})"
    finally:
        run.gate.open()
        assert run.query is not None
        run.query.stop()


def child(plan: dict[str, object], log: Path) -> subprocess.Popen[bytes]:
    """A driver of its own."""
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.counted_child", json.dumps(plan)],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.mark.proves("spark:S-07", "spark:E-01", "spark:E-03", "spark:E-04")
def test_a_killed_driver_leaves_no_gap_and_no_double(
    spark: SparkSession, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.create_topic("Driver", 2)
    ledger = Ledger(fleet.namesrv, "Driver")
    ledger.send(2 * ROWS, size=SIZE)
    options = {"maxOffsetsPerTrigger": str(ROWS // 2), "maxPartitions": "1"}
    plan: dict[str, object] = {
        "namesrv": fleet.namesrv,
        "topic": "Driver",
        "root": str(tmp_path),
        "options": options,
        "master": "local[2]",
        "conf": {},
    }
    batches, files = runs(spark, plan)
    driver = child(plan, tmp_path / "log")
    try:
        for run in (batches, files):
            run.gate.wait(lambda: driver.poll() is None)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    for run in (batches, files):
        run.ledger = ledger
        run.gate.open()
    assert batches.verdict().rows < ledger.count
    ledger.send(ROWS, size=SIZE)
    batches.start(available_now=True)
    start_file_sink(files)
    batches.finish()
    files.finish()
    assert batches.verdict() == Verdict(ledger.count)
    seen = spark.read.parquet(str(files.out)).select(*COLUMNS).toArrow()
    assert audit(ledger, seen) == Verdict(ledger.count)


def expire(cluster: LocalCluster) -> dict[int, int]:
    """Make all but the last file of the log old and have it deleted; the queues' minimum offsets then."""
    files = sorted((cluster.data / "commitlog").iterdir())[:-1]
    for path in files:
        os.utime(path, (0, 0))
    with mq.Admin(cluster.namesrv) as admin:
        (broker,) = admin.brokers.list()
        admin.brokers.delete_expired_files(broker.broker_name)
        until_sync(lambda: not any(path.exists() for path in files))
        until_sync(lambda: all(one.min_offset for one in admin.topics.status("Retention")))
        return {one.queue.queue_id: one.min_offset for one in admin.topics.status("Retention")}


@pytest.mark.proves("spark:S-52")
def test_retention_passes_the_reader(spark: SparkSession, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "mapped_file_size_commit_log": 1 << 17,
        "clean_resource_interval": 20,
        "delete_commit_log_files_interval": 1,
        "delete_file_batch_max": 50,
    }
    with LocalCluster(**settings) as cluster:
        cluster.create_topic("Retention", 2)
        ledger = Ledger(cluster.namesrv, "Retention")
        ledger.send(4000, size=SIZE)
        lowest: dict[int, int] = {}
        run = Run(spark, ledger, tmp_path, {"maxOffsetsPerTrigger": "1000"})

        def before(batch_id: int) -> None:
            if batch_id == 1 and not lowest:
                lowest.update(expire(cluster))

        run.sink = ToParquet(run.out, before)
        run.start(available_now=True)
        assert run.query is not None
        with pytest.raises(StreamingQueryException, match=r"Retention.*cannot be read.*failOnDataLoss=false"):
            run.query.awaitTermination(GATE_SECONDS)
        first = run.verdict()
        assert (first.rows, first.duplicate, first.misplaced) == (1000, {}, {})
        run.options["failOnDataLoss"] = "false"
        run.start(available_now=True)
        run.finish()
        verdict = run.verdict()
        gone = {
            f"broker-a/{queue}": [
                number
                for number in first.missing[f"broker-a/{queue}"]
                if ledger.offsets[number] < lowest[queue]
            ]
            for queue in (0, 1)
        }
        assert verdict == Verdict(4000 - sum(map(len, gone.values())), missing=gone)
        assert all(gone.values())


CHECKPOINT = ROOT / "tests" / "spark" / "data" / "checkpoint-0.1.0"
CHECKPOINT_ROWS = (70, 140)
"""Messages that were read when the checkpoint was kept, and those that are sent in all."""


@pytest.mark.proves("spark:S-12")
def test_a_checkpoint_of_the_first_release_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.create_topic("Checkpoint", 2)
        ledger = Ledger(cluster.namesrv, "Checkpoint")
        ledger.send(CHECKPOINT_ROWS[0])
        ledger.send(CHECKPOINT_ROWS[1] - CHECKPOINT_ROWS[0])
        run = Run(spark, ledger, tmp_path)
        shutil.copytree(CHECKPOINT, run.checkpoint)
        run.start(available_now=True)
        run.finish()
        verdict = run.verdict()
        assert verdict.rows == CHECKPOINT_ROWS[1] - CHECKPOINT_ROWS[0]
        assert sorted(number for numbers in verdict.missing.values() for number in numbers) == list(
            range(CHECKPOINT_ROWS[0])
        )
        assert (verdict.duplicate, verdict.misplaced) == ({}, {})
