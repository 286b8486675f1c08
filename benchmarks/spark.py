"""Spark reads and writes topics, beside Spark's own Kafka source and beside what a Python source can reach.

Rows a second of batch reads, streams and streams to Parquet, for bodies of 100 B and 1 KB and with the same
six columns on every side; writes; how long micro-batches take at 1,000 messages a second; the start of a
session and of a pipeline's command. The ceilings are the same records from a file, and one batch given again
and again. What streams cost at size is in `spark_fit`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow.dataset as dataset
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from benchmarks import spark_fit
from benchmarks.kafka_peer import KafkaPeer, jars
from benchmarks.kafka_peer import running as process_running
from benchmarks.load import JAVA, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import APACHE, KAFKA, OURS, Peer, create_topic, running, stored
from benchmarks.report import LEAST, MOST, Floor, Report
from benchmarks.spark_bench import (
    ALL_COLUMNS,
    BATCH,
    FILE,
    KAFKA_COLUMNS,
    ONE_BATCH,
    OUR_COLUMNS,
    PARQUET,
    PIPE,
    QUEUES,
    SESSION,
    SIZES,
    STREAM,
    Bench,
    bodies,
    session,
    share,
    title,
    topic_of,
)
from benchmarks.spark_sources import dump, read_index

RATE: Final = 1000
WARM_SECONDS: Final = 5.0
DELAY_SECONDS: Final = 12.0
FIRST_SECONDS_MAX: Final = 60.0
"""The first micro-batch of a new session takes long, the more so beside other work."""
DELAY_ROUNDS_MAX: Final = 3
"""Each round has some sixty micro-batches or more of each side: three rounds of both take 102 s."""
START_SECONDS_MAX: Final = 300.0
WRITE: Final = "write"
CRC: Final = "CRC of bodies, not part of reads"
DELAY: Final = "Spark, 1,000 messages/s: {} of micro-batches"

P50: Final = DELAY.format("p50")
P95: Final = DELAY.format("p95")

FLOORS: Final = [
    *(Floor(share(BATCH, size), LEAST, 0.9, absolute=True) for size in SIZES),
    *(Floor(title(BATCH, size), LEAST, 3.0) for size in SIZES),
    Floor(P50, MOST, 0.5),
    Floor(P95, MOST, 0.5),
    Floor(P95, MOST, 100.0, absolute=True, only_goal=True),
    *(Floor(title(WRITE, size), LEAST, 1.0, goal=1.5) for size in SIZES),
    *(Floor(f"{title(WRITE, size)}, the same sink", LEAST, 1.3, goal=1.5) for size in SIZES),
    *spark_fit.FLOORS,
    Floor(PIPE, MOST, 12.0, absolute=True, goal=6.0),
]


def _fill(bench: Bench, size: int) -> None:
    """The same number of messages for ours and Kafka, and ours in a file."""
    create_topic(bench.ours, topic_of(size), QUEUES)
    with Load(JAVA) as load:
        count = bench.rows(size)
        filled = load.run(
            bench.ours, "send", topic=topic_of(size), threads=4, batch=50, count=count, size=size
        )
    ends = stored(bench.ours, topic_of(size), filled.result["acknowledged"])
    bench.files[size] = bench.work / f"records-{size}"
    if dump(bench.ours.namesrv, topic_of(size), bench.files[size]) != sum(ends):
        raise LoadError("the file does not hold every record")
    if bench.kafka is not None:
        bodies(bench.spark, sum(ends), size).write.format("kafka").option(
            "kafka.bootstrap.servers", bench.kafka.servers
        ).option("topic", topic_of(size)).save()
    wanted = (sum(ends), sum(end * (end - 1) // 2 for end in ends))
    for name in (OURS, FILE):
        row = bench.source(name, size, stream=False).agg(sql.count("*"), sql.sum("queue_offset")).first()
        if row is None or tuple(row) != wanted:
            raise LoadError(f"{name}: rows and sum of offsets are {row}, not {wanted}")
    if bench.kafka is not None and (found := bench.source(KAFKA, size, stream=False).count()) != wanted[0]:
        raise LoadError(f"Kafka has {found} rows, not {wanted[0]}")


def _timed(rows: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return rows / (time.perf_counter() - start)


def _noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _reads(bench: Bench, size: int) -> None:
    rows = sum(count for _, _, count in read_index(bench.files[size]))
    kafka = [KAFKA] if bench.kafka is not None else []

    def batch(name: str, *, every: bool = False) -> Callable[[], float]:
        return lambda: _timed(rows, lambda: _noop(bench.source(name, size, stream=False, all_columns=every)))

    def stream(name: str, sink: str) -> Callable[[], float]:
        def turn() -> float:
            start = time.perf_counter()
            done = sum(
                progress.numInputRows
                for progress in bench.stream(bench.source(name, size, stream=True), sink)
            )
            if done != rows:
                raise LoadError(f"{name}: {done} rows were streamed, not {rows}")
            return rows / (time.perf_counter() - start)

        return turn

    contenders = [OURS, *kafka, FILE]
    bench.rounds(title(BATCH, size), {name: batch(name) for name in (*contenders, ONE_BATCH)}, rows=rows)
    bench.rounds(title(ALL_COLUMNS, size), {name: batch(name, every=True) for name in contenders}, rows=rows)
    bench.rounds(
        title(STREAM, size), {name: stream(name, "noop") for name in (*contenders, ONE_BATCH)}, rows=rows
    )
    bench.rounds(title(PARQUET, size), {name: stream(name, "parquet") for name in contenders}, rows=rows)


def _writes(bench: Bench, size: int) -> None:
    name = title(WRITE, size)
    if not bench.wants(name):
        return
    rows = bench.rows(size)
    frame = bodies(bench.spark, rows, size).persist()
    frame.count()

    def to_rocketmq(peer: Peer) -> Callable[[], float]:
        def turn() -> float:
            topic = f"BenchWrite{size}"
            before = sum(stored(peer, topic))
            sink = frame.write.format("rocketmq").option("nameServer", peer.namesrv).option("topic", topic)
            rate = _timed(rows, sink.mode("append").save)
            if (found := sum(stored(peer, topic, before + rows)) - before) != rows:
                raise LoadError(f"{peer.name}: {rows} rows were written, {found} stored")
            return rate

        create_topic(peer, f"BenchWrite{size}", QUEUES)
        return turn

    def to_kafka() -> float:
        assert bench.kafka is not None
        sink = frame.write.format("kafka").option("kafka.bootstrap.servers", bench.kafka.servers)
        return _timed(rows, sink.option("topic", f"BenchWrite{size}").save)

    if bench.kafka is not None:
        bench.rounds(name, {OURS: to_rocketmq(bench.ours), KAFKA: to_kafka})
    if bench.apache is not None:
        turns = {OURS: to_rocketmq(bench.ours), APACHE: to_rocketmq(bench.apache)}
        bench.rounds(f"{name}, the same sink", turns)
    frame.unpersist()


def _delay(bench: Bench) -> None:
    """Micro-batches of a stream that runs as fast as it can while messages come at a steady rate."""
    seconds = min(1.0, bench.options.seconds / 6.0)
    feed = [sys.executable, "-m", "benchmarks.feed", bench.ours.namesrv, "BenchDelay", str(RATE), "100"]
    create_topic(bench.ours, "BenchDelay", QUEUES)

    def delays(name: str, frame: DataFrame) -> tuple[float, float]:
        root = bench.work / f"delay-{name}-{time.time_ns()}"
        query = frame.writeStream.format("noop").option("checkpointLocation", str(root)).start()
        deadline = time.monotonic() + FIRST_SECONDS_MAX
        while not any(progress.numInputRows for progress in query.recentProgress):
            if query.exception() or time.monotonic() > deadline:
                raise LoadError(f"{name}: no micro-batch in {FIRST_SECONDS_MAX} s: {query.exception()}")
            time.sleep(0.05)
        time.sleep(WARM_SECONDS * seconds)
        first = query.lastProgress.batchId if query.lastProgress else 0
        time.sleep(DELAY_SECONDS * seconds)
        query.stop()
        found = [one for one in query.recentProgress if one.batchId > first and one.numInputRows]
        if len(found) < 5:
            raise LoadError(f"{name}: {len(found)} micro-batches: {query.exception()}")
        steps = statistics.quantiles([one.batchDuration for one in found], n=20)
        return float(steps[9]), float(steps[-1])

    def ours() -> tuple[float, float]:
        with process_running(feed):
            source = bench.spark.readStream.format("rocketmq").schema(OUR_COLUMNS)
            source = source.option("nameServer", bench.ours.namesrv).option("subscribe", "BenchDelay")
            return delays(OURS, source.load())

    def kafka() -> tuple[float, float]:
        assert bench.kafka is not None
        with bench.kafka.feeding("BenchDelay", RATE, 100):
            source = bench.spark.readStream.format("kafka").option("subscribe", "BenchDelay")
            source = source.option("kafka.bootstrap.servers", bench.kafka.servers)
            return delays(KAFKA, source.load().select(*KAFKA_COLUMNS))

    turns: dict[str, Callable[[], tuple[float, float]]] = {OURS: ours}
    if bench.kafka is not None:
        turns[KAFKA] = kafka
        bodies(bench.spark, 1, 100).write.format("kafka").option(
            "kafka.bootstrap.servers", bench.kafka.servers
        ).option("topic", "BenchDelay").save()
    for _ in range(min(DELAY_ROUNDS_MAX, bench.options.rounds)):
        for name, turn in turns.items():
            for series, value in zip((P50, P95), turn(), strict=True):
                bench.report.add(series, "ms", name, value)


_FIRST_READ: Final = """
import sys, time
start = time.perf_counter()
from pyspark.sql import SparkSession
made = SparkSession.builder.master("local[2]")
for setting in sys.argv[3:]:
    made = made.config(*setting.split("=", 1))
spark = made.getOrCreate()
options = dict(pair.split("=", 1) for pair in sys.argv[2].split(","))
assert spark.read.format(sys.argv[1]).options(**options).load().count()
print(time.perf_counter() - start)
"""


def _starts(bench: Bench) -> None:
    """A new driver each time: from nothing to the first count."""
    quiet = [
        "spark.ui.enabled=false",
        "spark.python.unix.domain.socket.enabled=true",
        "spark.log.level=ERROR",
    ]

    def start(*arguments: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", _FIRST_READ, *arguments, *quiet],
            capture_output=True,
            text=True,
            timeout=START_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise LoadError(done.stderr[-2000:])
        return float(done.stdout.split()[-1])

    topic = f"subscribe={topic_of(100)}"
    turns: dict[str, Callable[[], float]] = {
        OURS: lambda: start("rocketmq", f"nameServer={bench.ours.namesrv},{topic}")
    }
    if bench.kafka is not None:
        servers = f"kafka.bootstrap.servers={bench.kafka.servers}"
        packages = ",".join(str(path) for path in sorted(jars("spark").glob("*.jar")))
        turns[KAFKA] = lambda: start("kafka", f"{servers},{topic}", f"spark.jars={packages}")
    bench.rounds(SESSION, turns, "s")


def _pipe(bench: Bench) -> None:
    """A new process each time: from nothing until the topic is in Parquet, which is counted."""
    rows = sum(count for _, _, count in read_index(bench.files[100]))

    def turn() -> float:
        with tempfile.TemporaryDirectory(dir=bench.work) as folder:
            command = [sys.executable, "-m", "sparrowmq.cli.main", "pipe", "archive", topic_of(100)]
            start = time.perf_counter()
            done = subprocess.run(
                [*command, "--namesrv", bench.ours.namesrv, "--to", folder],
                capture_output=True,
                text=True,
                timeout=START_SECONDS_MAX,
                check=False,
            )
            seconds = time.perf_counter() - start
            if done.returncode != 0:
                raise LoadError(done.stderr[-2000:])
            found = sum(dataset.dataset(path).count_rows() for path in Path(folder).rglob("*.parquet"))
            if found != rows:
                raise LoadError(f"the archive has {found} rows, not {rows}")
            return seconds

    bench.rounds(PIPE, {OURS: turn}, "s", warm=False)


def _crc(bench: Bench, size: int) -> None:
    """What checking every body would cost: microseconds a message, on one core."""
    bodies = [os.urandom(size) for _ in range(20_000)]

    def turn() -> float:
        start = time.perf_counter()
        for body in bodies:
            zlib.crc32(body)
        return (time.perf_counter() - start) / len(bodies) * 1e6

    bench.rounds(f"{CRC}, {SIZES[size]}", {OURS: turn}, "µs")


def main(options: Options, report: Report) -> None:
    """Fill the topics on both sides, then measure one thing after the other, in turns."""
    writes = any(options.only in title(WRITE, size) for size in SIZES)
    names = [name for name in options.peers if name == OURS or (name == APACHE and writes)]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        kafka, packages = None, None
        if options.peers != [OURS]:
            packages = jars("spark")
            kafka = KafkaPeer()
            stack.callback(kafka.close)
            kafka.start()
        peers = {peer.name: peer for peer in stack.enter_context(running(names))}
        spark = stack.enter_context(session(work, packages))
        bench = Bench(spark, options, report, work, peers[OURS], peers.get(APACHE), kafka)
        for size in SIZES:
            if bench.wants_topic(size):
                _fill(bench, size)
                _reads(bench, size)
            _crc(bench, size)
        for size in SIZES:
            _writes(bench, size)
        if bench.wants(P50) or bench.wants(P95):
            _delay(bench)
        spark_fit.measure(bench)
        if bench.wants(PIPE):
            _pipe(bench)
        if bench.wants(SESSION):
            _starts(bench)
