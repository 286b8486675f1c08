"""Batch reads: a snapshot of the topic, settled when it is planned (spark:B-01)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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
from sparrowmq.spark.schema import source_schema

_PLAN_SECONDS: Final = 300.0


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
        self._schema: pa.Schema = source_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """The tasks. Raises `NoRouteError`, `SettingsError`, `DataLossError`, `TransportError`, …"""

        async def spans(lookup: Lookup) -> list[Span]:
            starts = await lookup.patiently(lambda: lookup.starts(EARLIEST))
            stops = await lookup.patiently(lookup.stops)
            return [
                Span(queue, start, stops[queue]) for queue, start in starts.items() if stops[queue] > start
            ]

        found = Driver(self._options)(spans, _PLAN_SECONDS)
        return [SpansPartition(task) for task in plan(found, self._options, cores())]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one task; an empty plan comes as a partition without spans (spark:S-33)."""
        spans = partition.spans if isinstance(partition, SpansPartition) else ()
        return read_batches(spans, self._options, self._schema)
