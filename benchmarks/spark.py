"""Spark reads and writes topics, beside Spark's own Kafka source and beside what a Python source can reach.

Rows a second of batch reads, streams and streams to Parquet, for bodies of 100 B and 1 KB and with the same
six columns on every side; writes; the 95th percentile of micro-batches at 1,000 messages a second; the start
of a session. The ceilings are the same records from a file, and one batch given again and again.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.dataset as dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.kafka_peer import KafkaPeer, jars
from benchmarks.kafka_peer import running as process_running
from benchmarks.load import JAVA, ROOT, Load, LoadError
from benchmarks.options import Options
from benchmarks.peers import APACHE, KAFKA, OURS, Peer, create_topic, running, stored
from benchmarks.report import LEAST, MOST, Floor, Report
from benchmarks.spark_sources import OneBatch, RecordsFile, dump, read_index

FILE: Final = "file"
ONE_BATCH: Final = "one batch"
QUEUES: Final = 4
SIZES: Final = {100: "100 B", 1024: "1 KB"}
SHARE_OF_ROWS: Final = {100: 1.0, 1024: 0.25}
ROWS_PER_BATCH: Final = {100: 200_000, 1024: 100_000}
RATE: Final = 1000
WARM_SECONDS: Final = 5.0
DELAY_SECONDS: Final = 12.0
FIRST_SECONDS_MAX: Final = 60.0
"""The first micro-batch of a new session takes long, the more so beside other work."""
DELAY_ROUNDS_MAX: Final = 3
"""Each round has some sixty micro-batches or more of each side: three rounds of both take 102 s."""
STREAM_SECONDS_MAX: Final = 600
STOP_SECONDS_MAX: Final = 60
START_SECONDS_MAX: Final = 300.0

OUR_COLUMNS: Final = (
    "keys string, body binary, topic string, queue_id int, queue_offset bigint, store_timestamp timestamp"
)
KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")

BATCH: Final = "batch read"
ALL_COLUMNS: Final = "batch read, all columns"
STREAM: Final = "stream"
PARQUET: Final = "stream to Parquet"
WRITE: Final = "write"
DELAY: Final = "Spark, 1,000 messages/s: p95 of micro-batches"
SESSION: Final = "Spark: session and first read"
CRC: Final = "CRC of bodies, not part of reads"


def title(kind: str, size: int) -> str:
    """The series of one measurement."""
    return f"Spark {kind}, {SIZES[size]}"


def share(kind: str, size: int) -> str:
    """The series of our share of the file's rate."""
    return f"{title(kind, size)}: share of the file's rate"


FLOORS: Final = [
    *(
        Floor(share(kind, size), LEAST, 0.85, absolute=True)
        for kind in (BATCH, STREAM, PARQUET)
        for size in SIZES
    ),
    Floor(title(BATCH, 100), LEAST, 1.0),
    Floor(title(BATCH, 1024), LEAST, 1.4),
    Floor(DELAY, MOST, 1.1),
    *(Floor(f"{title(WRITE, size)}, the same sink", LEAST, 2.0) for size in SIZES),
]


@contextmanager
def _session(work: Path, packages: Path | None) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
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
        return any(map(self.wants, [*reads, SESSION] if size == min(SIZES) else reads))

    def source(self, name: str, size: int, *, stream: bool, all_columns: bool = False) -> DataFrame:
        """The topic with bodies of `size`, as a peer or a ceiling reads it."""
        reader: Any = self.spark.readStream if stream else self.spark.read
        if stream:
            reader = reader.option("startingOffsets", "earliest")
            reader = reader.option("maxOffsetsPerTrigger", ROWS_PER_BATCH[size])
        if name == KAFKA:
            assert self.kafka is not None
            topic = reader.format("kafka").option("kafka.bootstrap.servers", self.kafka.servers)
            found: DataFrame = topic.option("subscribe", _topic(size)).load()
            return found if all_columns else found.select(*KAFKA_COLUMNS)
        reader = reader if all_columns else reader.schema(OUR_COLUMNS)
        if name == OURS:
            reader = reader.format("rocketmq").option("nameServer", self.ours.namesrv)
            found = reader.option("subscribe", _topic(size)).load()
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
    ) -> None:
        """Every contender once to warm up, then in turns, the other way round in every second round.

        With `warm=False` turns warm up by themselves; there are at most `most` rounds.
        """
        if not self.wants(name):
            return
        print(f"  {name}", file=sys.stderr, flush=True)
        for turn in turns.values() if warm else ():
            turn()
        for number in range(min(most, self.options.rounds)):
            rates = {who: turns[who]() for who in (list(turns) if number % 2 == 0 else list(reversed(turns)))}
            for who, rate in rates.items():
                self.report.add(name, unit, who, rate)
            if FILE in rates:
                self.report.add(f"{name}: share of the file's rate", "", OURS, rates[OURS] / rates[FILE])


def _topic(size: int) -> str:
    return f"BenchSpark{size}"


def _fill(bench: Bench, size: int) -> None:
    """The same number of messages for ours and Kafka, and ours in a file."""
    create_topic(bench.ours, _topic(size), QUEUES)
    with Load(JAVA) as load:
        count = bench.rows(size)
        filled = load.run(bench.ours, "send", topic=_topic(size), threads=4, batch=50, count=count, size=size)
    ends = stored(bench.ours, _topic(size), filled.result["acknowledged"])
    bench.files[size] = bench.work / f"records-{size}"
    if dump(bench.ours.namesrv, _topic(size), bench.files[size]) != sum(ends):
        raise LoadError("the file does not hold every record")
    if bench.kafka is not None:
        _bodies(bench.spark, sum(ends), size).write.format("kafka").option(
            "kafka.bootstrap.servers", bench.kafka.servers
        ).option("topic", _topic(size)).save()
    wanted = (sum(ends), sum(end * (end - 1) // 2 for end in ends))
    for name in (OURS, FILE):
        row = bench.source(name, size, stream=False).agg(sql.count("*"), sql.sum("queue_offset")).first()
        if row is None or tuple(row) != wanted:
            raise LoadError(f"{name}: rows and sum of offsets are {row}, not {wanted}")
    if bench.kafka is not None and (found := bench.source(KAFKA, size, stream=False).count()) != wanted[0]:
        raise LoadError(f"Kafka has {found} rows, not {wanted[0]}")


def _bodies(spark: SparkSession, rows: int, size: int) -> DataFrame:
    return spark.range(0, rows, 1, 2).select(sql.lit("x" * size).cast("binary").alias("value"))


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
    bench.rounds(title(BATCH, size), {name: batch(name) for name in (*contenders, ONE_BATCH)})
    bench.rounds(title(ALL_COLUMNS, size), {name: batch(name, every=True) for name in contenders})
    bench.rounds(title(STREAM, size), {name: stream(name, "noop") for name in (*contenders, ONE_BATCH)})
    bench.rounds(title(PARQUET, size), {name: stream(name, "parquet") for name in contenders})


def _writes(bench: Bench, size: int) -> None:
    name = title(WRITE, size)
    if not bench.wants(name):
        return
    rows = bench.rows(size)
    frame = _bodies(bench.spark, rows, size).persist()
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

    def p95(name: str, frame: DataFrame) -> float:
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
        return float(statistics.quantiles([one.batchDuration for one in found], n=20)[-1])

    def ours() -> float:
        with process_running(feed):
            source = bench.spark.readStream.format("rocketmq").schema(OUR_COLUMNS)
            source = source.option("nameServer", bench.ours.namesrv).option("subscribe", "BenchDelay")
            return p95(OURS, source.load())

    def kafka() -> float:
        assert bench.kafka is not None
        with bench.kafka.feeding("BenchDelay", RATE, 100):
            source = bench.spark.readStream.format("kafka").option("subscribe", "BenchDelay")
            source = source.option("kafka.bootstrap.servers", bench.kafka.servers)
            return p95(KAFKA, source.load().select(*KAFKA_COLUMNS))

    turns: dict[str, Callable[[], float]] = {OURS: ours}
    if bench.kafka is not None:
        turns[KAFKA] = kafka
        _bodies(bench.spark, 1, 100).write.format("kafka").option(
            "kafka.bootstrap.servers", bench.kafka.servers
        ).option("topic", "BenchDelay").save()
    bench.rounds(DELAY, turns, "ms", warm=False, most=DELAY_ROUNDS_MAX)


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

    topic = f"subscribe={_topic(100)}"
    turns: dict[str, Callable[[], float]] = {
        OURS: lambda: start("rocketmq", f"nameServer={bench.ours.namesrv},{topic}")
    }
    if bench.kafka is not None:
        servers = f"kafka.bootstrap.servers={bench.kafka.servers}"
        packages = ",".join(str(path) for path in sorted(jars("spark").glob("*.jar")))
        turns[KAFKA] = lambda: start("kafka", f"{servers},{topic}", f"spark.jars={packages}")
    bench.rounds(SESSION, turns, "s")


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
        spark = stack.enter_context(_session(work, packages))
        bench = Bench(spark, options, report, work, peers[OURS], peers.get(APACHE), kafka)
        for size in SIZES:
            if bench.wants_topic(size):
                _fill(bench, size)
                _reads(bench, size)
            _crc(bench, size)
        for size in SIZES:
            _writes(bench, size)
        if bench.wants(DELAY):
            _delay(bench)
        if bench.wants(SESSION):
            _starts(bench)
