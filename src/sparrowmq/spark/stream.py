"""Streaming reads: `Follower` behind the methods that Spark calls (spark:2.1).

Spark builds two readers for a query. One lives in a process of its own on the driver and is asked for offsets
and plans; the other is pickled right after construction and only reads (spark:P-04, P-05).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq.spark.compat import SupportsTriggerAvailableNow, limits
from sparrowmq.spark.driver import Driver
from sparrowmq.spark.fetch import read_batches
from sparrowmq.spark.follow import Follower
from sparrowmq.spark.offsets import StreamOffset, spans
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.planning import cores, plan
from sparrowmq.spark.reader import SpansPartition
from sparrowmq.spark.schema import read_shape

Json = dict[str, Any]


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows queues from Spark's checkpoint on. Offsets are `offsets.StreamOffset` as JSON."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = read_shape(schema, options)
        self._follower_: Follower | None = None
        self._last: StreamOffset | None = None

    @property
    def _follower(self) -> Follower:
        if self._follower_ is None:
            self._follower_ = Follower(Driver(self._options), self._options)
        return self._follower_

    def initialOffset(self) -> Json:
        """Where a new query starts; the same at every call."""
        return self._follower.initial().to_json()

    def getDefaultReadLimit(self) -> Any:
        """The limit Spark hands back to `latestOffset`; the options hold the finer ones (spark:S-20)."""
        options = self._options
        if options.max_offsets is not None:
            return limits.ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return limits.ReadMaxBytes(options.max_bytes)
        if options.min_offsets is not None:
            return limits.ReadMinRows(options.min_offsets)
        return limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing beyond this moment's ends is read from now on."""
        self._follower.fix_target()

    def latestOffset(self, start: Json | None = None, limit: Any = None) -> Json:
        """The end of the next batch; `start` itself, unchanged, when there is none (spark:S-11).

        Spark before 4.2 calls it without arguments.
        """
        if start is None:
            return self._latest_without_start()
        offset = StreamOffset.from_json(start)
        self._follower.report(offset)
        end = self._follower.latest(offset, limited=not isinstance(limit, limits.ReadAllAvailable))
        return start if end is offset else end.to_json()

    def _latest_without_start(self) -> Json:
        if self._last is None:  # a new query: a restarted one would have planned its last batch before
            self._last = self._follower.initial()
        self._last = self._follower.latest(self._last, limited=False)
        return self._last.to_json()

    def reportLatestOffset(self) -> Json | None:
        """The queues' ends, from which progress events give the lag (spark:S-15)."""
        known = self._follower.known_ends()
        return None if known is None else known.to_json()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch: depends on nothing but arguments, options and cores (spark:S-51)."""
        last = StreamOffset.from_json(end)
        if self._last is None:
            self._last = last
        found = spans(StreamOffset.from_json(start), last)
        return [SpansPartition(task) for task in plan(found, self._options, cores())]

    def commit(self, end: Json) -> None:
        """A batch is done; the last one's report comes with `latestOffset` (spark:S-03)."""
        self._follower.report(StreamOffset.from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        assert isinstance(partition, SpansPartition)
        return read_batches(partition.spans, self._options, self._shape.stored, self._shape.fit)
