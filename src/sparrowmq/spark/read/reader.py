"""Batch reads: a snapshot of the topic, settled when it is planned (spark:B-01)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq.spark.bodies.schema import read_shape
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.offsets.planning import plan, settle
from sparrowmq.spark.offsets.pushdown import Wanted, wanted
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.options.values import EARLIEST

if TYPE_CHECKING:  # the planner imports the query code, a task the reading code
    from sparrowmq.spark.read.lookup import Lookup

_PLAN_SECONDS: Final = 300.0


@dataclass
class SpansPartition(InputPartition):
    """Input of one task."""

    spans: tuple[Span, ...]

    def __repr__(self) -> str:
        return f"SpansPartition({sum(map(len, self.spans))} messages of {len(self.spans)} spans)"


class _OptionalPush:
    """A `pushFilters` for sessions with and without `spark.sql.python.filterPushdown.enabled`.

    While it is off, Spark fails every query on a reader whose `pushFilters` has another function than Spark's
    own, and a reader cannot see the setting (spark:B-06). So this defines Spark's function, although it is
    never called.
    """

    def __init__(self, push: Callable[[list[Any]], list[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> list[Any]:
        return self._push(filters)


class RocketMQReader(DataSourceReader):
    """Reads from `startingOffsets` to `endingOffsets`, as they were when Spark planned the query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = read_shape(schema, options)
        self._wanted = Wanted()

    @property
    def pushFilters(self) -> Callable[[list[Any]], Iterable[Any]]:
        """What takes Spark's filters, unless option `pushFilters` is false."""
        return _OptionalPush(self._push) if self._options.push_filters else super().pushFilters

    def _push(self, filters: list[Any]) -> list[Any]:
        """Read only what may pass `filters`; all of them are given back, for Spark to apply (spark:B-09)."""
        self._wanted = wanted(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises `NoRouteError`, `SettingsError`, `DataLossError`, `TransportError`, …"""

        from sparrowmq.spark.read.driver import Driver

        async def spans(lookup: Lookup) -> list[Span]:
            starts = await lookup.retried(lambda: lookup.starts(EARLIEST))
            stops = await lookup.retried(lookup.stops)
            found = [
                Span(queue, start, stops[queue]) for queue, start in starts.items() if stops[queue] > start
            ]
            return await lookup.retried(lambda: lookup.cut(found, self._wanted))

        found = Driver(self._options)(spans, _PLAN_SECONDS)
        return [SpansPartition(task) for task in plan(found, settle(found, self._options))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one task; an empty plan comes as a partition without spans (spark:S-33)."""
        from sparrowmq.spark.read.fetch import read_batches

        spans = partition.spans if isinstance(partition, SpansPartition) else ()
        return read_batches(spans, self._options, self._shape.stored, self._shape.fit)
