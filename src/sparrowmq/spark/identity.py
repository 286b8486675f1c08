"""Which row of which job a message is: the same for every try of the same row.

A task names its rows by scope (query id or job id), batch, partition and place in the partition. From that
come the producer that the task stands for, the epochs of its batch, and the messages' ids. Pure, but for
`task_place`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from sparrowmq.columnar.ids import body_checksums, hex_column

STEPS_MAX: Final = 16
"""How often one task may begin anew in a queue within a batch."""
_STEP_BITS: Final = 10


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """One task's place in a job: `scope` is the query's or job's id."""

    scope: str
    batch: int
    partition: int

    def producer_id(self, topic: str) -> str:
        """The producer this task stands for; the same in every batch."""
        return "spark-" + _digest(self.scope, topic, self.partition).hex()

    def epoch(self, step: int) -> int:
        """The epoch of this batch; later batches have larger ones. `step` counts beginnings anew."""
        return self.batch << _STEP_BITS | step

    def ids(self, bodies: pa.Array, first_row: int) -> pa.Array:
        """Message ids of the task's rows from `first_row` on: 32 hex digits.

        The body's checksum is in them, so that a row which is another one in a further try has another id.
        The row stands where RocketMQ's ids have a time, which is so early that searches by id find it.
        """
        parts = np.empty((len(bodies), 16), np.uint8)
        parts[:, :8] = np.frombuffer(_digest(self.scope, self.batch, self.partition), np.uint8)
        sums = _bytes_of(body_checksums(bodies))
        parts[:, 8:10], parts[:, 14:] = sums[:, :2], sums[:, 2:]
        parts[:, 10:14] = _bytes_of(np.arange(first_row, first_row + len(bodies)))
        return hex_column(parts)

    def key_ids(self, keys: pa.Array) -> pa.Array:
        """Message ids by a key that names a row within the batch, wherever it stands."""
        head = _digest(self.scope, self.batch)
        if not pa.types.is_binary(keys.type):
            keys = keys.cast(pa.string()).cast(pa.binary())
        texts = [head + blake2b(key, digest_size=8).digest() for key in keys.to_pylist()]
        return hex_column(np.frombuffer(b"".join(texts), np.uint8).reshape(-1, 16))


def _digest(*parts: object) -> bytes:
    return blake2b("\0".join(str(part) for part in parts).encode(), digest_size=8).digest()


def _bytes_of(values: npt.NDArray[np.int64] | npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(values, ">u4").view(np.uint8).reshape(-1, 4)


def task_place() -> tuple[str | None, int, int]:
    """Of the running task: the query's id, None without a stream; the batch; the partition (spark:W-03)."""
    context = TaskContext.get()
    if context is None:
        return None, 0, 0
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return query, int(batch or 0), context.partitionId()
