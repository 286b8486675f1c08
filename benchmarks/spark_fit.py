"""Streams of one, four and ten million messages: what a query, a micro-batch and a row cost on each side.

Every stream reads the last messages of one topic up to its end, to noop or Parquet, and all of its rows are
counted. The file has the same records; it has no queues, so it is read whole.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import DataFrame

import sparrowmq as mq
from benchmarks.load import JAVA, Load, LoadError
from benchmarks.peers import KAFKA, OURS, create_topic, stored
from benchmarks.report import LEAST, MOST, Floor
from benchmarks.spark_bench import FILE, KAFKA_COLUMNS, OUR_COLUMNS, QUEUES, SIZES, Bench, bodies
from benchmarks.spark_cost import Timed, fit, without_broker
from benchmarks.spark_sources import dump

MILLIONS: Final = {100: (1, 4, 10), 1024: (2,)}
"""Sizes of streams, in `Options.spark_rows`, which is also the size of their micro-batches."""
SMALL_BATCHES: Final = 4
"""The smallest stream runs in so many micro-batches, too: otherwise they would grow with the rows."""
SINKS: Final = ("noop", "parquet")
START: Final = "Spark stream: start on an empty topic"

PARTS: Final = {
    "query": "Spark stream fit: a query",
    "batch": "Spark stream fit: a micro-batch",
    "row": "Spark stream fit: a row",
}


def title(size: int, sink: str) -> str:
    """The series of the largest stream."""
    where = "" if sink == "noop" else " to Parquet"
    return f"Spark stream fit: {MILLIONS[size][-1]} × {SIZES[size]}{where}"


def apart(size: int, sink: str) -> str:
    """The series of our share of the file's rate, the broker's processor time left out."""
    return f"{title(size, sink)}: share of the file's rate, broker apart"


FLOORS: Final = [
    *(Floor(title(size, "noop"), LEAST, 1.5, goal=2.0) for size in SIZES),
    *(Floor(title(size, "parquet"), LEAST, 1.3, goal=1.5) for size in SIZES),
    *(Floor(apart(size, "noop"), LEAST, 0.85, absolute=True) for size in SIZES),
    Floor(START, MOST, 1.0, absolute=True, goal=0.6),
]


class Stream:
    """The streams over the topic with bodies of one size."""

    def __init__(self, bench: Bench, size: int) -> None:
        self._bench = bench
        self._size = size
        self._topic = f"BenchFit{size}"
        self._path = bench.work / f"fit-{size}"
        self._queues: dict[str, dict[str, int]] = {}
        self._kafka: dict[str, int] = {}

    def fill(self) -> None:
        """The same number of messages for ours and Kafka, ours in a file, too."""
        bench, rows = self._bench, MILLIONS[self._size][-1] * self._bench.options.spark_rows
        create_topic(bench.ours, self._topic, QUEUES)
        with Load(JAVA) as load:
            filled = load.run(
                bench.ours, "send", topic=self._topic, threads=4, batch=50, count=rows, size=self._size
            )
        count = filled.result["acknowledged"]
        stored(bench.ours, self._topic, count)
        with mq.PullConsumer(namesrv=bench.ours.namesrv) as consumer:
            for queue in consumer.queues(self._topic):
                broker = self._queues.setdefault(queue.broker_name, {})
                broker[str(queue.queue_id)] = consumer.max_offset(queue)
        if dump(bench.ours.namesrv, self._topic, self._path) != self._stored:
            raise LoadError("the file does not hold every record")
        if bench.kafka is not None:
            sink = bodies(bench.spark, self._stored, self._size).write.format("kafka")
            sink.option("kafka.bootstrap.servers", bench.kafka.servers).option("topic", self._topic).save()
            read = bench.spark.read.format("kafka").option("kafka.bootstrap.servers", bench.kafka.servers)
            counts = read.option("subscribe", self._topic).load().groupBy("partition").count().collect()
            self._kafka = {str(row["partition"]): row["count"] for row in counts}
            if sum(self._kafka.values()) != self._stored:
                raise LoadError(f"Kafka has {self._kafka}, not {self._stored} rows")

    @property
    def _stored(self) -> int:
        return sum(sum(ends.values()) for ends in self._queues.values())

    def run(self, name: str, sink: str, millions: int, *, batches: int = 0) -> Timed:
        """One stream over the last messages, in micro-batches of a million or as many as given."""
        wanted = millions * self._bench.options.spark_rows
        per = -(-wanted // batches) if batches else self._bench.options.spark_rows
        frame, rows = self._frame(name, wanted, per)
        start = time.perf_counter()
        done = self._bench.stream(frame, sink)
        seconds = time.perf_counter() - start
        found = sum(progress.numInputRows for progress in done)
        if found != rows:
            raise LoadError(f"{name}: {found} rows were streamed, not {rows}")
        return Timed(rows, len(done), seconds)

    def _frame(self, name: str, wanted: int, per: int) -> tuple[DataFrame, int]:
        bench = self._bench
        reader: Any = bench.spark.readStream.option("maxOffsetsPerTrigger", per)
        if name == FILE:
            return reader.format("records_file").schema(OUR_COLUMNS).option(
                "path", str(self._path)
            ).load(), self._stored
        if name == KAFKA:
            assert bench.kafka is not None
            starts, rows = last(self._kafka, wanted)
            reader = reader.format("kafka").option("kafka.bootstrap.servers", bench.kafka.servers)
            reader = reader.option("startingOffsets", json.dumps({self._topic: starts}))
            return reader.option("subscribe", self._topic).load().select(*KAFKA_COLUMNS), rows
        ends = {f"{b} {q}": end for b, queues in self._queues.items() for q, end in queues.items()}
        starts, rows = last(ends, wanted)
        places: dict[str, dict[str, int]] = {}
        for key, offset in starts.items():
            broker, _, queue = key.rpartition(" ")
            places.setdefault(broker, {})[queue] = offset
        reader = reader.format("rocketmq").schema(OUR_COLUMNS).option("nameServer", bench.ours.namesrv)
        reader = reader.option("startingOffsets", json.dumps({self._topic: places}))
        return reader.option("subscribe", self._topic).load(), rows


def last(ends: dict[str, int], wanted: int) -> tuple[dict[str, int], int]:
    """Where queues begin that together give about `wanted` messages up to their ends, and how many it is."""
    share = min(1.0, wanted / max(1, sum(ends.values())))
    starts = {queue: end - round(end * share) for queue, end in ends.items()}
    return starts, sum(ends[queue] - start for queue, start in starts.items())


def _streams(bench: Bench, size: int) -> None:
    """Each side in turns: the largest stream into each sink, of 100 B the smaller ones for the fit."""
    streams = Stream(bench, size)
    streams.fill()
    sides = [OURS, *([KAFKA] if bench.kafka is not None else [])]
    for name in (*sides, FILE):
        streams.run(name, "noop", MILLIONS[size][0])  # warms up
    for number in range(min(3, bench.options.rounds)):
        order = sides if number % 2 == 0 else list(reversed(sides))
        rates = {name: _one_side(bench, streams, size, name) for name in order}
        for sink in SINKS:
            timed = streams.run(FILE, sink, MILLIONS[size][-1])
            bench.report.add(title(size, sink), "rows/s", FILE, timed.rows / timed.seconds)
            bench.report.add(apart(size, sink), "", OURS, rates[OURS][sink] / (timed.rows / timed.seconds))


def _one_side(bench: Bench, streams: Stream, size: int, name: str) -> dict[str, float]:
    """All streams of one side; its rates by sink with the processor time of our broker left out."""
    timed, rates = list[Timed](), dict[str, float]()
    for sink in SINKS:
        before = bench.broker_seconds()
        largest = streams.run(name, sink, MILLIONS[size][-1])
        bench.report.add(title(size, sink), "rows/s", name, largest.rows / largest.seconds)
        spent = bench.broker_seconds() - before
        rates[sink] = without_broker(largest.rows, largest.seconds, spent, os.cpu_count() or 1)
        if sink == "noop":
            timed.append(largest)
    if len(MILLIONS[size]) == 1:
        return rates
    timed += [streams.run(name, "noop", millions) for millions in MILLIONS[size][:-1]]
    timed.append(streams.run(name, "noop", MILLIONS[size][0], batches=SMALL_BATCHES))
    cost = fit(timed)
    for part, value, unit in (
        ("query", cost.query, "s"),
        ("batch", cost.batch, "s"),
        ("row", cost.row * 1e6, "µs"),
    ):
        bench.report.add(PARTS[part], unit, name, value)
    return rates


def _starts(bench: Bench) -> None:
    """From `load` until the first trigger is done, on a topic without messages, in a session that is warm."""
    topic = "BenchFitEmpty"
    create_topic(bench.ours, topic, QUEUES)

    def start(load: Callable[[], DataFrame]) -> Callable[[], float]:
        def turn() -> float:
            began = time.perf_counter()
            bench.stream(load(), "noop")
            return time.perf_counter() - began

        return turn

    ours = bench.spark.readStream.format("rocketmq").option("nameServer", bench.ours.namesrv)
    turns = {OURS: start(ours.option("subscribe", topic).schema(OUR_COLUMNS).load)}
    if bench.kafka is not None:
        sink = bodies(bench.spark, 1, 100).write.format("kafka").option("topic", topic)
        sink.option("kafka.bootstrap.servers", bench.kafka.servers).save()
        kafka = bench.spark.readStream.format("kafka").option("subscribe", topic)
        turns[KAFKA] = start(kafka.option("kafka.bootstrap.servers", bench.kafka.servers).load)
    bench.rounds(START, turns, "s")


def measure(bench: Bench) -> None:
    """What `--only` asks for of all this."""
    for size in SIZES:
        if any(map(bench.wants, (title(size, "noop"), title(size, "parquet"), *PARTS.values()))):
            print(f"  {title(size, 'noop')}", file=sys.stderr, flush=True)
            _streams(bench, size)
    _starts(bench)
