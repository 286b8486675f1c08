"""What the Spark benchmarks share: one session on two cores, the sides, streams that are run and checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow.dataset as dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.kafka_peer import KafkaPeer
from benchmarks.load import ROOT, LoadError
from benchmarks.options import Options
from benchmarks.peers import KAFKA, OURS, Peer
from benchmarks.report import Report
from benchmarks.spark_cost import without_broker
from benchmarks.spark_sources import OneBatch, RecordsFile

FILE: Final = "file"
ONE_BATCH: Final = "one batch"
QUEUES: Final = 4
SIZES: Final = {100: "100 B", 1024: "1 KB"}
SHARE_OF_ROWS: Final = {100: 1.0, 1024: 0.25}
ROWS_PER_BATCH: Final = {100: 200_000, 1024: 100_000}
STREAM_SECONDS_MAX: Final = 600
STOP_SECONDS_MAX: Final = 60
OUR_COLUMNS: Final = (
    "keys string, body binary, topic string, queue_id int, queue_offset bigint, store_timestamp timestamp"
)
KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
BATCH: Final = "batch read"
ALL_COLUMNS: Final = "batch read, all columns"
STREAM: Final = "stream"
PARQUET: Final = "stream to Parquet"
SHARE: Final = "share of the file's rate, broker apart"
PIPE: Final = "Spark: sparrow pipe archive from nothing, 100 B"
SESSION: Final = "Spark: session and first read"


def title(kind: str, size: int) -> str:
    """The series of one measurement."""
    return f"Spark {kind}, {SIZES[size]}"


def share(kind: str, size: int) -> str:
    """The series of our share of the file's rate, our broker's processor time left out."""
    return f"{title(kind, size)}: {SHARE}"


def topic_of(size: int) -> str:
    """The topic with bodies of `size`."""
    return f"BenchSpark{size}"


def bodies(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """So many bodies of `size` bytes."""
    return spark.range(0, rows, 1, 2).select(sql.lit("x" * size).cast("binary").alias("value"))


@contextmanager
def session(work: Path, packages: Path | None) -> Iterator[SparkSession]:
    """As the guide advises for one machine, but for the checkpoints, which are as Spark makes them."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    home = subprocess.run(
        [sys.executable, "-m", "sparrowmq.spark.home"], capture_output=True, text=True, check=True
    )
    os.environ["SPARK_HOME"] = home.stdout.strip()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    made = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.sql.streaming.stopTimeout", f"{STOP_SECONDS_MAX}s")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.local.dir", str(work))
        .config("spark.log.level", "ERROR")
    )
    if packages is not None:
        made = made.config("spark.jars", ",".join(str(path) for path in sorted(packages.glob("*.jar"))))
    spark = made.getOrCreate()
    try:
        for source in (RecordsFile, OneBatch):
            spark.dataSource.register(source)
        yield spark
    finally:
        spark.stop()


@dataclass
class Bench:
    """What all measurements share."""

    spark: SparkSession
    options: Options
    report: Report
    work: Path
    ours: Peer
    apache: Peer | None
    kafka: KafkaPeer | None
    files: dict[int, Path] = field(default_factory=dict)
    _runs: int = 0

    def rows(self, size: int) -> int:
        """Messages of a topic with bodies of `size`."""
        return int(self.options.spark_rows * SHARE_OF_ROWS[size])

    def wants(self, name: str) -> bool:
        """Whether `--only` lets a series be measured."""
        return self.options.only in name

    def wants_topic(self, size: int) -> bool:
        """Whether anything is measured that reads the topic with bodies of `size`."""
        reads = [title(kind, size) for kind in (BATCH, ALL_COLUMNS, STREAM, PARQUET)]
        return any(map(self.wants, [*reads, SESSION, PIPE] if size == min(SIZES) else reads))

    def source(self, name: str, size: int, *, stream: bool, all_columns: bool = False) -> DataFrame:
        """The topic with bodies of `size`, as a peer or a ceiling reads it."""
        reader: Any = self.spark.readStream if stream else self.spark.read
        if stream:
            reader = reader.option("startingOffsets", "earliest")
            reader = reader.option("maxOffsetsPerTrigger", ROWS_PER_BATCH[size])
        if name == KAFKA:
            assert self.kafka is not None
            topic = reader.format("kafka").option("kafka.bootstrap.servers", self.kafka.servers)
            found: DataFrame = topic.option("subscribe", topic_of(size)).load()
            return found if all_columns else found.select(*KAFKA_COLUMNS)
        reader = reader if all_columns else reader.schema(OUR_COLUMNS)
        if name == OURS:
            reader = reader.format("rocketmq").option("nameServer", self.ours.namesrv)
            found = reader.option("subscribe", topic_of(size)).load()
        else:
            format_name = "records_file" if name == FILE else "one_batch"
            found = reader.format(format_name).option("path", str(self.files[size])).load()
        return found

    def stream(self, frame: DataFrame, sink: str) -> list[StreamingQueryProgress]:
        """Run a stream over what is there; its batches that had rows. Checks Parquet's rows."""
        self._runs += 1
        root = self.work / f"run-{self._runs}"
        writer = frame.writeStream.trigger(availableNow=True).option(
            "checkpointLocation", str(root / "state")
        )
        writer = writer.format(sink)
        query = writer.start(str(root / "out")) if sink == "parquet" else writer.start()
        if not query.awaitTermination(STREAM_SECONDS_MAX):
            raise LoadError(f"a stream into {sink} goes on after {STREAM_SECONDS_MAX} s: {query.status}")
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
        if sink == "parquet":
            written = dataset.dataset(root / "out", format="parquet").count_rows()
            if written != sum(progress.numInputRows for progress in batches):
                raise LoadError(f"{written} rows in Parquet, {batches}")
        shutil.rmtree(root, ignore_errors=True)
        return batches

    def rounds(
        self,
        name: str,
        turns: dict[str, Callable[[], float]],
        unit: str = "rows/s",
        *,
        warm: bool = True,
        most: int = sys.maxsize,
        rows: int = 0,
    ) -> None:
        """Every contender once to warm up, then in turns, the other way round in every second round.

        With `warm=False` turns warm up by themselves; there are at most `most` rounds. With `rows`, which a
        turn reads, our share of the file's rate is that without our broker's processor time.
        """
        if not self.wants(name):
            return
        print(f"  {name}", file=sys.stderr, flush=True)
        for turn in turns.values() if warm else ():
            turn()
        for number in range(min(most, self.options.rounds)):
            rates: dict[str, float] = {}
            apart = 0.0
            for who in list(turns) if number % 2 == 0 else list(reversed(turns)):
                before = self.broker_seconds()
                rates[who] = turns[who]()
                if who == OURS and rows:
                    spent = self.broker_seconds() - before
                    apart = without_broker(rows, rows / rates[who], spent, os.cpu_count() or 1)
            for who, rate in rates.items():
                self.report.add(name, unit, who, rate)
            if FILE in rates and rows:
                self.report.add(f"{name}: {SHARE}", "", OURS, apart / rates[FILE])

    def broker_seconds(self) -> float:
        """Processor time of our broker so far."""
        times = psutil.Process(self.ours.broker_pid).cpu_times()
        return float(times.user + times.system)
