"""Spark sources without a broker: what any Python source could reach at best.

`records_file` decodes stored records from a file with `sparrowmq.columnar`, ahead of its reader in a thread:
it does what `rocketmq` does, without the network. `one_batch` gives the first batch of that file again and
again: what is left is Spark. Both take a schema as `rocketmq` does, and read in batches or as a stream.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from sparrowmq import aio
from sparrowmq.columnar.decode import decode
from sparrowmq.spark.bodies.schema import source_ddl, source_schema
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.prefetch import prefetch

ROWS_PER_PIECE: Final = ReadOptions().batch_rows
BATCHES_AHEAD: Final = ReadOptions().prefetch_batches
TASKS: Final = 2

Json = dict[str, int]


def dump(namesrv: str, topic: str, path: Path) -> int:
    """Write all records of a topic to `path` and their pieces to `path.index`; the number of records."""
    return asyncio.run(_dump(namesrv, topic, path))


async def _dump(namesrv: str, topic: str, path: Path) -> int:
    pieces: list[tuple[int, int, int]] = []
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        with path.open("wb") as file:
            for one in await consumer.queues(topic):
                offset, end = await consumer.min_offset(one), await consumer.max_offset(one)
                while offset < end:
                    batch = await consumer.fetch_raw(one, offset, max_messages=ROWS_PER_PIECE)
                    pieces.append((file.tell(), file.write(batch.buffer), batch.count))
                    offset = batch.next_offset
    path.with_suffix(".index").write_text(json.dumps(pieces))
    return sum(count for _, _, count in pieces)


def read_index(path: Path) -> list[tuple[int, int, int]]:
    """Position, bytes and records of each piece."""
    return [tuple(piece) for piece in json.loads(path.with_suffix(".index").read_text())]


@dataclass
class Pieces(InputPartition):
    """What one task reads: pieces `start` to before `end`."""

    start: int
    end: int


class _Reader:
    """What batch and stream share."""

    def __init__(self, path: Path, schema: StructType, decodes: bool) -> None:
        self._path = path
        self._schema = source_schema(schema)
        self._decodes = decodes

    def plan(self, start: int, end: int) -> list[InputPartition]:
        """Two tasks."""
        bounds = [start + (end - start) * part // TASKS for part in range(TASKS + 1)]
        return [Pieces(low, high) for low, high in pairwise(bounds) if low < high]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return prefetch(lambda: self._batches(partition), BATCHES_AHEAD) if partition else iter(())

    def _batches(self, partition: Pieces) -> Iterator[pa.RecordBatch]:
        index = read_index(self._path)
        with self._path.open("rb") as file:

            def batch(position: int, size: int) -> pa.RecordBatch:
                file.seek(position)
                return decode(file.read(size), self._schema, broker_name="broker-a")

            known: dict[int, pa.RecordBatch] = {}
            for position, size, count in index[partition.start : partition.end]:
                if self._decodes:
                    yield batch(position, size)
                else:
                    if count not in known:
                        known[count] = batch(position, size)
                    yield known[count]


class _BatchReader(_Reader, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return self.plan(0, len(read_index(self._path)))


class _StreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are pieces; a limit of rows is met to the piece."""

    def __init__(self, path: Path, schema: StructType, decodes: bool, limit: int) -> None:
        super().__init__(path, schema, decodes)
        self._limit = limit

    def initialOffset(self) -> Json:
        return {"piece": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        index = read_index(self._path)
        end, rows = start["piece"], 0
        while end < len(index) and rows < self._limit:
            rows += index[end][2]
            end += 1
        return start if end == start["piece"] else {"piece": end}

    def reportLatestOffset(self) -> Json | None:
        return None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return self.plan(start["piece"], end["piece"])


class RecordsFile(DataSource):
    """`format("records_file").option("path", …)`, streams with `maxOffsetsPerTrigger`."""

    decodes = True

    @classmethod
    def name(cls) -> str:
        return "records_file"

    def schema(self) -> str:
        return source_ddl(ReadOptions())

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(Path(self.options["path"]), schema, self.decodes)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        limit = int(self.options["maxOffsetsPerTrigger"])
        return _StreamReader(Path(self.options["path"]), schema, self.decodes, limit)


class OneBatch(RecordsFile):
    """`format("one_batch")`, as many rows as the file has."""

    decodes = False

    @classmethod
    def name(cls) -> str:
        return "one_batch"
