"""Stored records in a file, and a Spark source that reads them: what any Python source could reach at best.

The file holds the very bytes that pulls give; the source decodes them with `sparrowmq.columnar` into the
columns of `format("rocketmq")`, ahead of its reader in a thread. What it lacks is the broker.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparrowmq import aio
from sparrowmq.columnar.decode import decode

ROWS_PER_BATCH: Final = 8000
BATCHES_AHEAD: Final = 2
COLUMNS: Final = (
    "topic string, broker string, queue_id int, queue_offset bigint, msg_id string, tags string, "
    "keys string, born_timestamp timestamp, store_timestamp timestamp, reconsume_times int, "
    "properties map<string,string>, body binary"
)


def dump(namesrv: str, topic: str, path: Path) -> int:
    """Write all records of a topic to `path` and their pieces to `path.index`; the number of records."""
    return asyncio.run(_dump(namesrv, topic, path))


async def _dump(namesrv: str, topic: str, path: Path) -> int:
    pieces: list[tuple[int, int]] = []
    total = 0
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        with path.open("wb") as file:
            for one in await consumer.queues(topic):
                offset, end = await consumer.min_offset(one), await consumer.max_offset(one)
                while offset < end:
                    batch = await consumer.fetch_raw(one, offset, max_messages=ROWS_PER_BATCH)
                    pieces.append((file.tell(), file.write(batch.buffer)))
                    total += batch.count
                    offset = batch.next_offset
    path.with_suffix(".index").write_text(json.dumps(pieces))
    return total


@dataclass
class Pieces(InputPartition):
    """What one task reads: places in the file."""

    places: list[tuple[int, int]]


class _Reader(DataSourceReader):
    def __init__(self, path: Path) -> None:
        self._path = path

    def partitions(self) -> list[InputPartition]:
        places = [tuple(place) for place in json.loads(self._path.with_suffix(".index").read_text())]
        middle = len(places) // 2
        return [Pieces(places[:middle]), Pieces(places[middle:])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        ahead: queue.Queue[pa.RecordBatch | None] = queue.Queue(BATCHES_AHEAD)

        def work() -> None:
            with self._path.open("rb") as file:
                for position, length in partition.places:
                    file.seek(position)
                    ahead.put(decode(file.read(length), broker_name="broker-a"))
            ahead.put(None)

        threading.Thread(target=work, daemon=True).start()
        while (batch := ahead.get()) is not None:
            yield batch


class RecordsFile(DataSource):
    """`format("records_file").option("path", …)`."""

    @classmethod
    def name(cls) -> str:
        return "records_file"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(Path(self.options["path"]))
