"""`replay`: sends messages of an archive, of the live log or of dead letters to a topic again, without
repeats.

The offsets to replay are fixed at the first start, so a replay into its own source topic ends, and a restart
does the same work. It runs in parts; each is a separate write under the replay's id (the sink's `jobId` and
`jobBatch`), so brokers that know idempotent producers store a repeated part once.
"""

from __future__ import annotations

import dataclasses
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

from sparrowmq.spark.pipelines.common.queries import plain_errors
from sparrowmq.spark.pipelines.common.watch import Progress, Watch
from sparrowmq.spark.pipelines.common.writing import body_bytes_max
from sparrowmq.spark.pipelines.replay.directory import Part, ReplayError
from sparrowmq.spark.pipelines.replay.job import FIRST_ROWS, ReplayJob
from sparrowmq.spark.pipelines.replay.plan import NAME
from sparrowmq.spark.pipelines.replay.plan import plan_replay as plan_replay
from sparrowmq.spark.pipelines.replay.plan import promises as promises
from sparrowmq.spark.pipelines.replay.rows import part_rows
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings
from sparrowmq.spark.pipelines.replay.settled import settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("sparrowmq.spark")


def dry_run_replay(spark: SparkSession, settings: ReplaySettings) -> int:
    """Check the settings with the first messages of each topic, without sending. Returns an upper bound of
    the messages.

    It counts offsets, and reads `FIRST_ROWS` messages of a topic. Raises `ReplayError` when some of those
    could not be sent.
    """
    home = settings.replay_directory
    replay, place = settled(settings, home), home.place()
    left = place.left(replay)
    with plain_errors():
        while (part := place.next_part(replay, FIRST_ROWS, settings.tasks)) is not None:
            rows = part_rows(spark, settings, settings.source_options, replay, part)
            _check_rows(rows, part, body_bytes_max(settings.sink_options(part.topic)))
            tried = {span.queue: span.end for span in left if span.queue.topic == part.topic}
            place = dataclasses.replace(place, done={**place.done, **tried})
    return sum(map(len, left))


def replay(spark: SparkSession, settings: ReplaySettings, watch: Watch | None = None) -> Progress:
    """Send the rest of a replay, or until `watch.stop()`. Returns what was done.

    Raises `ReplayError` when the directory holds another replay, `SettingsError` for wrong expressions and
    topics, `DataLossError` when messages were deleted before they were read, `PipelineError` for failures of
    Spark. Sent messages stay, and the next run continues there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    home = settings.replay_directory
    with home.locked(), plain_errors():
        whole = settled(settings, home)
        if not whole.spans:
            return watch.progress
        job = ReplayJob(spark, settings, home, whole)
        job.check()
        if home.replay() is None:
            home.begin(whole)
        log.info("replay %s in %s: %d messages", whole.id, home.root, whole.size)
        watch.waiting(job.lag)
        while not watch.stopping and (part := job.next_part()) is not None:
            began = monotonic()
            sent, size = job.send(part)
            watch.batch(sent, size, monotonic() - began, job.lag)
    return watch.progress


def _check_rows(rows: DataFrame, part: Part, bytes_max: int) -> None:
    """Raises `ReplayError` when some rows cannot be sent."""
    from pyspark.sql import functions as F

    length = F.octet_length("body")
    bad = F.coalesce((length < 1) | (length > bytes_max), F.lit(True))
    found: Any = rows.select(
        F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(bad.cast("int")), F.lit(0)).alias("bad")
    ).first()
    if found["bad"]:
        raise ReplayError(
            f"{found['bad']} of {found['rows']} messages of {part.topic} could not be sent: their bodies are "
            f"null, empty or over {bytes_max} bytes; exclude them with where, or change values",
            what="messages",
            value=found["bad"],
        )
