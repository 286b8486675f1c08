"""Rows a second that Spark reads from a topic, beside the same records from a file."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks.file_source import RecordsFile, dump
from benchmarks.load import JAVA, ROOT, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer, create_topic, running, stored
from benchmarks.report import LEAST, Floor, Report

TOPIC: Final = "BenchSpark"
QUEUES: Final = 4
TOPIC_READ: Final = "Spark batch read of a topic"
FILE_READ: Final = "Spark batch read of the same records in a file"
SHARE: Final = "Spark batch read: share of the file's rate"

FLOORS: Final = [Floor(SHARE, LEAST, 0.7, absolute=True)]


@contextmanager
def _session() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        spark.dataSource.register(RecordsFile)
        yield spark
    finally:
        spark.stop()


def _check(frame: DataFrame, ends: list[int], what: str) -> None:
    """Count and sum of offsets show that every message is there once."""
    row = frame.agg(sql.count("*"), sql.sum("queue_offset")).collect()[0]
    wanted = (sum(ends), sum(end * (end - 1) // 2 for end in ends))
    if tuple(row) != wanted:
        raise LoadError(f"{what}: rows and sum of offsets are {tuple(row)}, not {wanted}")


def _rate(frame: DataFrame, rows: int) -> float:
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return rows / (time.perf_counter() - start)


def _fill(peer: Peer, rows: int) -> list[int]:
    """Fill the topic; the number of messages in each queue."""
    create_topic(peer, TOPIC, QUEUES)
    with Load(JAVA) as load:
        filled = load.run(peer, "send", topic=TOPIC, threads=4, batch=50, count=rows)
    return stored(peer, TOPIC, filled.result["acknowledged"])


def main(options: Options, report: Report) -> None:
    """Fill a topic on each peer, dump ours to a file, then read all in turns."""
    with running(options.peers) as peers, _session() as spark, tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "records"
        reads: list[tuple[str, str, int, Callable[[], DataFrame]]] = []
        for peer in peers:
            ends = _fill(peer, options.spark_rows)
            topic = spark.read.format("rocketmq").option("nameServer", peer.namesrv)
            topic = topic.option("subscribe", TOPIC)
            _check(topic.load(), ends, f"the topic on {peer.name}")
            reads.append((TOPIC_READ, peer.name, sum(ends), topic.load))
            if peer.name == OURS:
                if dump(peer.namesrv, TOPIC, path) != sum(ends):
                    raise LoadError("the file does not hold every record")
                file = spark.read.format("records_file").option("path", str(path))
                _check(file.load(), ends, "the file")
                reads.append((FILE_READ, OURS, sum(ends), file.load))
        for _ in range(options.rounds):
            rates = {}
            for title, name, rows, load in reads:
                rates[title, name] = _rate(load(), rows)
                report.add(title, "rows/s", name, rates[title, name])
            if (TOPIC_READ, OURS) in rates:
                report.add(SHARE, "", OURS, rates[TOPIC_READ, OURS] / rates[FILE_READ, OURS])
