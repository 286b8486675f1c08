"""The identity of a message, by row and job: the same in every attempt of the same row.

A task names its rows by scope (query id or job id), batch, partition and position in the partition. The
producer id of the task, the epochs of its batch, and the messages' ids derive from that. Pure, except
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
from sparrowmq.core.message import MessageQueue

STEPS_MAX: Final = 16
"""How often one task may start new numbers in a queue within a batch."""
_STEP_BITS: Final = 4
_RUN_BITS: Final = 18
RUNS_MAX: Final = 2**_RUN_BITS


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """One task's place in a job: `scope` is the query's or job's id.

    `run` counts the runs of a batch whose rows are named by keys. Such a run sends only what earlier ones did
    not store, so it has separate numbers. Other rows have the same numbers in every run.
    """

    scope: str
    batch: int
    partition: int
    run: int = 0

    def family(self, topic: str) -> str:
        """The common part of the producer ids of all tasks."""
        return family(self.scope, topic)

    def producer_id(self, topic: str) -> str:
        """The producer id of this task, the same in every batch."""
        return f"{self.family(topic)}-{self.partition}"

    def stand_in_id(self, queue: MessageQueue) -> str:
        """The producer id for rows of a queue whose broker is lost."""
        return f"{self.producer_id(queue.topic)}_{_digest(queue.broker_name, queue.queue_id).hex()}"

    def epoch(self, step: int) -> int:
        """The epoch of this batch and run; later ones have larger epochs. `step` counts restarts of the
        numbers.
        """
        return first_epoch(self.batch, self.run) + step

    def ids(self, bodies: pa.Array, first_row: int) -> pa.Array:
        """Message ids of the task's rows from `first_row` on: 32 hex digits.

        They include the body's checksum, so a row that differs in another attempt has another id. The row
        number replaces the time in RocketMQ's ids; that time is so early that searches by id find it.
        """
        parts = np.empty((len(bodies), 16), np.uint8)
        parts[:, :8] = np.frombuffer(_digest(self.scope, self.batch, self.partition), np.uint8)
        sums = _bytes_of(body_checksums(bodies))
        parts[:, 8:10], parts[:, 14:] = sums[:, :2], sums[:, 2:]
        parts[:, 10:14] = _bytes_of(np.arange(first_row, first_row + len(bodies)))
        return hex_column(parts)

    def key_ids(self, keys: pa.Array) -> pa.Array:
        """Message ids by a key that names a row within the batch, wherever it is."""
        parts = np.empty((len(keys), 16), np.uint8)
        parts[:, :8] = np.frombuffer(_digest(self.scope, self.batch), np.uint8)
        parts[:, 8:] = key_hashes(keys).astype(">u8").view(np.uint8).reshape(-1, 8)
        return hex_column(parts)

    @property
    def key_ids_head(self) -> str:
        """The prefix of the ids of all rows of the batch that are named by keys."""
        return _digest(self.scope, self.batch).hex().upper()


def family(scope: str, topic: str) -> str:
    """The prefix of the ids of all producers of a query or job in a topic, up to the last `-`."""
    return "spark-" + _digest(scope, topic).hex()


def first_epoch(batch: int, run: int = 0) -> int:
    """The first epoch of a batch, or of a repeated run of it; those of all earlier ones are smaller."""
    return (batch << _RUN_BITS | run) << _STEP_BITS


def key_hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """A number for each key, which may be string, binary, int or bigint."""
    if not pa.types.is_binary(keys.type):
        keys = keys.cast(pa.string()).cast(pa.binary())
    texts = b"".join(blake2b(key, digest_size=8).digest() for key in keys.to_pylist())
    return np.frombuffer(texts, ">u8").astype(np.uint64)


def _digest(*parts: object) -> bytes:
    return blake2b("\0".join(str(part) for part in parts).encode(), digest_size=8).digest()


def _bytes_of(values: npt.NDArray[np.int64] | npt.NDArray[np.uint32]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(values, ">u4").view(np.uint8).reshape(-1, 4)


def task_place() -> tuple[str | None, int, int]:
    """Of the running task: the query's id (None without a stream), the batch, the partition (spark:W-03)."""
    context = TaskContext.get()
    if context is None:
        return None, 0, 0
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    return query, int(batch or 0), context.partitionId()
