"""Streaming reads: `Follower` behind the methods that Spark calls (spark:2.1).

Spark creates two readers for a query. One runs in a separate process on the driver and returns offsets and
plans; the other is pickled right after construction and only reads (spark:P-04, P-05).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.schema import read_shape
from sparrowmq.spark.offsets.offsets import StreamOffset, spans
from sparrowmq.spark.offsets.planning import plan, settle, settle_by_cores
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.versions import SupportsTriggerAvailableNow, limits
from sparrowmq.spark.read.reader import SpansPartition

if TYPE_CHECKING:  # the driver's process loads the modules that follow queues, a task's those that read them
    from sparrowmq.spark.read.follow import Follower

Json = dict[str, Any]


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues from Spark's checkpoint on. Offsets are `offsets.StreamOffset` as JSON."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = read_shape(schema, options)
        self._follower_: Follower | None = None
        self._last: StreamOffset | None = None
        self._is_restart = True
        """True until a batch was planned: a batch planned without `latestOffset` was planned before, and is
        repeated.
        """
        self._again: tuple[StreamOffset, frozenset[MessageQueue]] | None = None
        """The end of that batch, and the queues it must no longer read."""

    @property
    def _follower(self) -> Follower:
        if self._follower_ is None:
            from sparrowmq.spark.read.driver import Driver
            from sparrowmq.spark.read.follow import Follower

            self._follower_ = Follower(Driver(self._options), self._options)
        return self._follower_

    def initialOffset(self) -> Json:
        """The start of a new query; the same at every call."""
        return self._follower.initial().to_json()

    def getDefaultReadLimit(self) -> Any:
        """The limit that Spark passes back to `latestOffset`; the options hold the finer ones
        (spark:S-20).
        """
        options = self._options
        if options.max_offsets is not None:
            return limits.ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return limits.ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return limits.ReadMinRows(options.min_offsets)
        return limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on, read nothing beyond the current ends."""
        self._follower.fix_target()

    def latestOffset(self, start: Json | None = None, limit: Any = None) -> Json:
        """The end of the next batch; `start` itself, unchanged, when there is none (spark:S-11).

        Spark before 4.2 calls it without arguments.
        """
        if start is None:
            return self._latest_without_start()
        self._is_restart = False
        offset = StreamOffset.from_json(start)
        end = self._follower.latest(offset, limited=not isinstance(limit, limits.ReadAllAvailable))
        return start if end is offset else self._laid_out(offset, end).to_json()

    def _latest_without_start(self) -> Json:
        if self._last is None:  # a new query: a restarted one would have planned its last batch before
            self._last = self._follower.initial()
            self._is_restart = False
        end = self._follower.latest(self._last, limited=False)
        if end is not self._last:
            self._last = self._laid_out(self._last, end)
        return self._last.to_json()

    def _laid_out(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        return replace(end, layout=settle(spans(start, end), self._options))

    def reportLatestOffset(self) -> Json | None:
        """The queues' ends, from which progress events compute the lag (spark:S-15)."""
        known = self._follower.known_ends()
        return None if known is None else known.to_json()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch; depends only on the arguments (spark:S-51).

        Options and cores matter only for an end without a layout, as older releases wrote. A repeated batch
        skips queues that nobody can read any more, or whose topic was created again since; its other tasks
        keep their positions.
        """
        last = StreamOffset.from_json(end)
        if self._last is None:
            self._last = last
        found = spans(StreamOffset.from_json(start), last)
        layout = last.layout or settle_by_cores(found, self._options)
        tasks = plan(found, layout)
        if self._is_restart and tasks:
            self._is_restart = False
            self._again = last, self._follower.replaced(StreamOffset.from_json(start), last)
        if self._again is not None and self._again[0] == last:
            gone = self._again[1]
            tasks = [tuple(span for span in task if span.queue not in gone) for task in tasks]
        return [SpansPartition(task) for task in tasks]

    def commit(self, end: Json) -> None:
        """A batch is done. Spark says so when it plans the next one (spark:S-03)."""
        self._follower.report(StreamOffset.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        from sparrowmq.spark.read.fetch import read_batches

        assert isinstance(partition, SpansPartition)
        return read_batches(partition.spans, self._options, self._shape.stored, self._shape.fit)
