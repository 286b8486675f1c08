"""Pipelines on Spark: messages a second that archive, replay, mirror and audit do, bodies of 100 bytes.

Each runs as its users run it, in one session on two cores, over what waits in a topic of our broker, and what
it stored is counted. Nobody else has them, so there is no other side, and no floor.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.dataset as dataset
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import sparrowmq as mq
from benchmarks.load import ROOT, LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer, create_topic, running, stored
from benchmarks.report import Floor, Report
from sparrowmq.spark import (
    ArchiveSettings,
    AuditedGroup,
    AuditSettings,
    MirrorSettings,
    ReplaySettings,
    archive,
    audit,
    mirror,
    replay,
)
from sparrowmq.spark.sessions import builder

TOPIC: Final = "BenchPipes"
GROUP: Final = "bench_pipes"
QUEUES: Final = 4
SIZE: Final = 100
SHARE_OF_ROWS: Final = 0.25
ROUNDS_MAX: Final = 3
"""A round of all four takes about a minute."""

FLOORS: Final[list[Floor]] = []


@dataclass
class Bench:
    """What all measurements share."""

    spark: SparkSession
    source: Peer
    target: Peer
    work: Path
    rows: int
    _runs: int = 0

    @property
    def ledger(self) -> Path:
        """What was sent, as a producer's own file."""
        return self.work / "sent.parquet"

    def fill(self) -> None:
        """Fill the topic, write the ledger, and let a group be through with all of it."""
        create_topic(self.source, TOPIC, QUEUES)
        ids = self.spark.range(0, self.rows, 1, 2)
        bodies = ids.select(sql.lpad(sql.col("id").cast("string"), SIZE, "0").alias("body"))
        bodies.write.format("rocketmq").options(nameServer=self.source.namesrv, topic=TOPIC).mode(
            "append"
        ).save()
        self.expect(self.source, TOPIC, self.rows)
        reader = self.spark.read.format("rocketmq").option("nameServer", self.source.namesrv)
        sent = reader.option("subscribe", TOPIC).load()
        sent.selectExpr("topic", "msg_id as id", "born_timestamp as time").write.parquet(str(self.ledger))
        with mq.Admin(self.source.namesrv) as admin:
            admin.groups.create(GROUP)
            for status in admin.topics.status(TOPIC):
                admin.groups.commit(GROUP, status.queue, status.max_offset)

    def new(self) -> str:
        """A name that no run has had."""
        self._runs += 1
        return f"run{self._runs}"

    def expect(self, peer: Peer, topic: str, rows: int) -> None:
        """Raise `LoadError` unless the topic has so many messages."""
        if (found := sum(stored(peer, topic, rows))) != rows:
            raise LoadError(f"{topic} has {found} messages, not {rows}")

    def archive(self) -> float:
        """Into Parquet."""
        where = self.work / self.new()
        settings = ArchiveSettings(directory=where, topics=(TOPIC,), name_server=self.source.namesrv)
        rate = self._timed(lambda: archive(self.spark, settings).rows)
        files = dataset.dataset(where / "data", format="parquet", partitioning="hive")
        if (found := files.count_rows()) != self.rows:
            raise LoadError(f"the archive has {found} messages, not {self.rows}")
        return rate

    def replay(self) -> float:
        """Into another topic of the same cluster."""
        name = self.new()
        create_topic(self.source, name, QUEUES)
        settings = ReplaySettings(
            home=self.work / name, to=name, topics=(TOPIC,), name_server=self.source.namesrv
        )
        rate = self._timed(lambda: replay(self.spark, settings).rows)
        self.expect(self.source, name, self.rows)
        return rate

    def mirror(self) -> float:
        """To another cluster, where each run adds to the topic."""
        create_topic(self.target, TOPIC, QUEUES)
        before = sum(stored(self.target, TOPIC))
        settings = MirrorSettings(
            directory=self.work / self.new(),
            source="here",
            target="there",
            name_server=self.source.namesrv,
            target_name_server=self.target.namesrv,
            topics=(TOPIC,),
        )
        rate = self._timed(lambda: mirror(self.spark, settings).rows)
        self.expect(self.target, TOPIC, before + self.rows)
        return rate

    def audit(self) -> float:
        """A ledger of all sends against the topic and a group's offsets."""
        settings = AuditSettings(
            directory=self.work / self.new(),
            topics=(TOPIC,),
            groups=(AuditedGroup(GROUP),),
            name_server=self.source.namesrv,
            ledger=str(self.ledger),
        )

        def judge() -> int:
            verdict = audit(self.spark, settings)
            if verdict.status or verdict.sent != verdict.stored or verdict.consumed != {GROUP: self.rows}:
                raise LoadError("\n".join(verdict.lines()))
            return verdict.stored

        return self._timed(judge)

    def _timed(self, work: Callable[[], int]) -> float:
        """Messages a second; raises `LoadError` when not all of them were done."""
        start = time.perf_counter()
        if (done := work()) != self.rows:
            raise LoadError(f"{done} messages were done, not {self.rows}")
        return self.rows / (time.perf_counter() - start)


def main(options: Options, report: Report) -> None:
    """Fill one topic, then let the pipelines take turns over it, the first turn to warm up."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-pipes-")))
        source, target = stack.enter_context(running([OURS, OURS]))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        made = builder("benchmarks").config("spark.driver.memory", "3g").config("spark.local.dir", str(work))
        spark = made.getOrCreate()
        stack.callback(spark.stop)
        bench = Bench(spark, source, target, work, int(options.spark_rows * SHARE_OF_ROWS))
        turns = {
            "archive": bench.archive,
            "replay": bench.replay,
            "mirror": bench.mirror,
            "audit": bench.audit,
        }
        wanted = {f"pipeline {name}": turn for name, turn in turns.items() if options.only in name}
        bench.fill()
        for number in range(1 + min(ROUNDS_MAX, options.rounds)):
            for title, turn in wanted.items():
                print(f"  {title}, {f'round {number}' if number else 'warm'}", file=sys.stderr, flush=True)
                rate = turn()
                if number:
                    report.add(title, "msg/s", OURS, rate)
