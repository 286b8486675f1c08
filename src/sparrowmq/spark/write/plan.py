"""The plan of a write: what is decided about it on the driver, before its first row.

With option `delivery=exactlyOnce` a write that may store a row twice is refused before it runs. If that
cannot be known in advance (whether there is a shuffle, whether the rows of another attempt are the same), the
task ends instead of storing a row twice (`idempotent_send`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyspark.sql.types import StructType

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.schema import SinkColumns, sink_columns
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import finished_jobs
from sparrowmq.spark.write.finished_jobs import Tally
from sparrowmq.spark.write.guarantees import announce, batch_choice, never_once, stream_choice
from sparrowmq.spark.write.queue_choice import QueueChoice, folder_at


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What the tasks of a write do."""

    options: WriteOptions
    columns: SinkColumns
    choice: QueueChoice | None = None
    """The queues of the first try; None when each task takes the topic's queues of now."""
    done: Tally | None = None
    """The result of an earlier run of the job: rows are only counted."""

    def without_hadoop(self) -> WritePlan:
        """The plan for tasks, which need no settings of the checkpoint's file system."""
        return replace(self, options=replace(self.options, hadoop={}))


def batch_plan(options: WriteOptions, schema: StructType) -> WritePlan:
    """The plan of a batch write. Raises `SettingsError` for one that cannot do what its options ask."""
    columns = sink_columns(schema, options)
    keyed = columns.has_key_ids
    announce(options, stream=False, delayed=columns.has_delays, keyed=keyed)
    check_batch(options, columns)
    done = finished_jobs.find(options)
    choice = None if done is not None else batch_choice(options, keyed=keyed)
    return WritePlan(options, columns, choice, done)


def stream_plan(options: WriteOptions, schema: StructType) -> WritePlan:
    """The plan of a streaming write, without the queues of its micro-batches: see `micro_batch_plan`."""
    columns = sink_columns(schema, options)
    announce(options, stream=True, delayed=columns.has_delays, keyed=columns.has_key_ids)
    return WritePlan(options, columns)


def micro_batch_plan(plan: WritePlan) -> WritePlan:
    """The plan of the micro-batch that begins now. Raises `SettingsError` as `batch_plan` does."""
    choice = stream_choice(plan.options, keyed=plan.columns.has_key_ids)
    check_stream(plan.options, plan.columns, choice)
    return replace(plan, choice=choice)


def check_batch(options: WriteOptions, columns: SinkColumns) -> None:
    """Raises `SettingsError` when a batch write must be exactly once but might not be."""
    if not options.exactly_once:
        return
    why = _always(options, columns, stream=False)
    if not why and not columns.has_key_ids:
        why = (
            "a batch write may divide its rows into other partitions when it runs again; identify rows "
            "with option idempotenceKey"
        )
    if not why and not options.plan_location:
        why = "option planLocation is missing, a directory for the plan of the write"
    _refuse(why)


def check_stream(options: WriteOptions, columns: SinkColumns, choice: QueueChoice | None) -> None:
    """The same for the planned micro-batch; `choice` are its queues."""
    if not options.exactly_once:
        return
    why = _always(options, columns, stream=True)
    if not why and choice is None:
        why = "the writer's option checkpointLocation is missing, or is not a readable checkpoint"
    if not why and choice is not None and not columns.has_key_ids:
        other = _without_layout(options, choice.batch)
        if other:
            why = (
                f"offsets of this query do not define how a batch is divided into partitions "
                f"({other[:100]}); identify rows with option idempotenceKey"
            )
    _refuse(why)


def _always(options: WriteOptions, columns: SinkColumns, *, stream: bool) -> str:
    if columns.has_delays:
        return "rows with delay_level or deliver_at cannot be numbered; remove these columns"
    if not options.topic:
        return "rows with a column topic cannot be planned; give option topic"
    if columns.idempotence_key is not None and columns.msg_id is not None:
        return "column msg_id and option idempotenceKey both identify rows; leave one of them out"
    if options.lost_brokers:
        return "rows that a broker of option lostBrokers stored would be stored again; leave that option out"
    return never_once(options, stream)


def _without_layout(options: WriteOptions, batch: int) -> str:
    """A batch's offset that another source wrote; empty when all are SparrowMQ's."""
    offsets = folder_at(f"{options.checkpoint_location.rstrip('/')}/offsets", options.hadoop)
    lines = offsets.content(str(batch)).decode().splitlines()[2:]
    for line in lines:
        try:
            offset = json.loads(line)
        except ValueError:
            return line
        if not isinstance(offset, dict) or not {"queues", "tasks"} <= offset.keys():
            return line
    return ""


def _refuse(why: str) -> None:
    if why:
        raise SettingsError(
            f"option delivery=exactlyOnce: {why}; or leave the option out, and the log states the guarantee"
        )
