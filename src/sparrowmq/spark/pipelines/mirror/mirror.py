"""`mirror`: copies topics of one cluster to another, queue by queue in order, with their consumer groups.

Each micro-batch is sent with explicit queues as one batch of an idempotent job, so SparrowMQ's brokers store
a repeated batch once; Apache's store it again, under the same message ids. Once it is stored, the ends of the
target queues give the positions of the copies (`offset_map`), and groups are moved accordingly
(`group_offsets`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.queries import run_batches
from sparrowmq.spark.pipelines.common.watch import Progress, Watch
from sparrowmq.spark.pipelines.mirror import rows as mirror_rows
from sparrowmq.spark.pipelines.mirror.directory import MirrorDirectory
from sparrowmq.spark.pipelines.mirror.job import MirrorJob, shaped
from sparrowmq.spark.pipelines.mirror.plan import NAME
from sparrowmq.spark.pipelines.mirror.plan import plan_mirror as plan_mirror
from sparrowmq.spark.pipelines.mirror.settings import MirrorSettings as MirrorSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def dry_run_mirror(spark: SparkSession, settings: MirrorSettings) -> int:
    """Check the settings against both clusters without reading messages. Returns an upper bound of the
    messages to send.

    Messages that already came through the target are counted, but not sent.
    """
    state = MirrorDirectory(settings.directory).load(settings.source, settings.target)
    found = reading.queues_of(settings.source_options)
    spans = reading.unread(settings, state.done, found)
    if not spans:
        return 0
    frame = reading.batch(spark, reading.assigned(settings.source_options, spans), mirror_rows.SCHEMA)
    mapping = {queue: state.queues.get(queue, queue) for queue in found.ends}
    shaped(frame, settings, mapping)
    return sum(map(len, spans))


def mirror(spark: SparkSession, settings: MirrorSettings, watch: Watch | None = None) -> Progress:
    """Bring the target up to date, with `follow` until `watch.stop()`. Returns what was done.

    Raises `MirrorError` when the directory belongs to another mirror, `DataLossError` when messages were
    deleted before they were mirrored, `PipelineError` for failures of Spark. Sent messages stay, and the next
    run continues there.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    home = MirrorDirectory(settings.directory)
    with home.locked():
        job = MirrorJob(spark, settings, home, watch)
        job.begin()
        run_batches(
            reading.stream(spark, job.stream_options(), mirror_rows.SCHEMA),
            job.write,
            watch,
            name=f"mirror {settings.source} to {settings.target}",
            checkpoint=home.checkpoint.location,
            every=settings.every if settings.follow else None,
            tick=job.tick,
        )
        job.end()
    return watch.progress
