"""Progress of a query that only reads: the number of messages read by its tasks, polled from Spark.

A stream reports its progress per batch. For a batch read, Spark knows how much each task has read, as on its
web page. A tag that jobs inherit identifies the jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.util import InheritableThread

from sparrowmq.spark.pipelines.common.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.5
"""Seconds between two polls."""
EVENTS_MS: Final = 10_000
"""Seconds that the last figures may take to reach Spark's status store."""


@contextmanager
def followed(spark: SparkSession, watch: Watch, most: int | None) -> Iterator[None]:
    """Count in `watch` what the queries of this thread read within the block, of `most` messages if known.

    At a successful end no messages wait. An exception of a report is raised at the end. Needs a classic
    session, not Spark Connect.
    """
    context = spark.sparkContext
    tag = f"sparrow-{uuid4().hex}"
    ended = threading.Event()
    raised: list[Exception] = []

    def look() -> None:
        try:
            while not ended.wait(LOOK_SECONDS):
                rows = _rows_read(context, tag)
                watch.read(rows, None if most is None else max(0, most - rows))
        except Exception as error:  # from another thread: raised in the caller's
            raised.append(error)

    context.addJobTag(tag)
    looking = InheritableThread(target=look, name="sparrow-followed", daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
        context.removeJobTag(tag)
    if raised:
        raise raised[0]
    _settle(context)
    watch.read(_rows_read(context, tag), 0)


def _rows_read(context: Any, tag: str) -> int:
    """Rows that the scans of the tagged jobs have returned so far; 0 if Spark does not know."""
    jvm = context._jsc.sc()
    tracker, store, total = context.statusTracker(), jvm.statusStore(), 0
    for job in jvm.statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            try:
                total += store.lastStageAttempt(stage).inputRecords()
            except Py4JError:  # a stage that has not started
                continue
    return total


def _settle(context: Any) -> None:
    """Wait until Spark's status store knows the ended jobs: events arrive a moment later."""
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty(EVENTS_MS)
    except Py4JError:  # a busy driver: use the latest known figures
        return
