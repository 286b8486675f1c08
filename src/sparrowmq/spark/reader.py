"""Batch reads: a snapshot of the topic, settled when it is planned (spark:B-01)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq.spark.driver import Driver
from sparrowmq.spark.fetch import read_batches
from sparrowmq.spark.lookup import Lookup
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.option_types import EARLIEST
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.planning import cores, plan
from sparrowmq.spark.pushdown import Wanted, wanted
from sparrowmq.spark.schema import read_shape

_PLAN_SECONDS: Final = 300.0
_ASKS_FOR_FILTERS: Final = "data_source_pushdown_filters"
"""Spark's module that pushes filters; it runs where `spark.sql.python.filterPushdown.enabled` is on."""


@dataclass
class SpansPartition(InputPartition):
    """What one task reads."""

    spans: tuple[Span, ...]

    def __repr__(self) -> str:
        return f"SpansPartition({sum(map(len, self.spans))} messages of {len(self.spans)} spans)"


class RocketMQReader(DataSourceReader):
    """Reads from `startingOffsets` to `endingOffsets`, as they were when Spark planned the query."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._shape = read_shape(schema, options)
        self._wanted = Wanted()

    @property
    def pushFilters(self) -> Callable[[list[Any]], Iterable[Any]]:
        """What takes Spark's filters, where it may be seen.

        While the setting is off, Spark fails every query on a reader that has such a method of its own, and a
        reader cannot see the setting (spark:B-06): so there is only Spark's own, unless it asks for filters.
        """
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.rpartition(".")[2] == _ASKS_FOR_FILTERS and self._options.push_filters:
            return self.push
        inherited: Callable[[list[Any]], Iterable[Any]] = super().pushFilters
        return inherited

    def push(self, filters: list[Any]) -> list[Any]:
        """Read only what may pass `filters`; all of them are given back, for Spark to apply (spark:B-09)."""
        self._wanted = wanted(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises `NoRouteError`, `SettingsError`, `DataLossError`, `TransportError`, …"""

        async def spans(lookup: Lookup) -> list[Span]:
            starts = await lookup.patiently(lambda: lookup.starts(EARLIEST))
            stops = await lookup.patiently(lookup.stops)
            found = [
                Span(queue, start, stops[queue]) for queue, start in starts.items() if stops[queue] > start
            ]
            return await lookup.patiently(lambda: lookup.cut(found, self._wanted))

        found = Driver(self._options)(spans, _PLAN_SECONDS)
        return [SpansPartition(task) for task in plan(found, self._options, cores())]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one task; an empty plan comes as a partition without spans (spark:S-33)."""
        spans = partition.spans if isinstance(partition, SpansPartition) else ()
        return read_batches(spans, self._options, self._shape.stored, self._shape.fit)
