"""How far a query is that only reads: how many messages its tasks have read, asked of Spark now and then.

A stream tells its progress batch by batch; of a batch read Spark knows what each task has read so far, which
it shows on its own page. What runs is found by a tag that jobs inherit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.util import InheritableThread

from sparrowmq.spark.pipelines.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.5
"""How often Spark is asked."""
EVENTS_MS: Final = 10_000
"""So long the last figures may take to reach Spark's own books."""


@contextmanager
def followed(spark: SparkSession, watch: Watch, most: int | None) -> Iterator[None]:
    """Counts in `watch` what the queries of this thread read meanwhile, of `most` messages if that is known.

    At a good end nothing waits. What a report raises is raised at the end. Needs a session of this process's
    own, not one of Spark Connect.
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
        except Exception as error:  # of another thread: brought to the caller's
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
    """Rows that the scans of the tagged jobs have given so far; what Spark cannot say counts as none."""
    jvm = context._jsc.sc()
    tracker, store, total = context.statusTracker(), jvm.statusStore(), 0
    for job in jvm.statusTracker().getJobIdsForTag(tag):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            try:
                total += store.lastStageAttempt(stage).inputRecords()
            except Py4JError:  # a stage that was not begun
                continue
    return total


def _settle(context: Any) -> None:
    """Wait until Spark's books have what has ended: events reach them a moment later."""
    try:
        context._jsc.sc().listenerBus().waitUntilEmpty(EVENTS_MS)
    except Py4JError:  # a busy driver: the figures of a moment ago will do
        return
