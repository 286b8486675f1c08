"""Rows of a task in a stable order, for writes whose rows may arrive in another order next time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.arrays import flags
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.spark.write.identity import key_hashes

ROWS_BYTES_MAX: Final = 512 * 1024 * 1024
"""Arrow bytes of one partition that are sorted in memory."""


def by_key(
    batches: Iterator[pa.RecordBatch], key: str, *, bytes_max: int = ROWS_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """All rows of a partition, sorted by column `key`.

    Raises `InvalidMessageError` for a null, for a duplicate key, and for a partition of more than `bytes_max`
    bytes.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > bytes_max:
            raise InvalidMessageError(
                f"a partition has more than {bytes_max} bytes to sort by idempotenceKey={key!r}; use more "
                "partitions (repartition by the key)"
            )
    if not held:
        return
    table = pa.Table.from_batches(held)
    if table[key].null_count:
        raise InvalidMessageError(f"column {key!r} is null in a row; idempotenceKey must identify every row")
    table = table.take(pc.sort_indices(table[key]))
    keys = table[key]
    same = pc.equal(keys.slice(1), keys.slice(0, max(0, len(keys) - 1)))
    if pc.any(same).as_py():
        value = keys[pc.index(same, True).as_py()].as_py()
        raise InvalidMessageError(
            f"two rows of a partition have {key}={value!r}; idempotenceKey must be unique within a batch"
        )
    yield from table.combine_chunks().to_batches()


class KeyedRows:
    """The rows of a partition, sorted by key, without those that earlier runs of the batch stored.

    An eight-byte hash represents each key; only those of this partition are in memory.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], key: str) -> None:
        self._batches = batches
        hashes = [key_hashes(batch[key]) for batch in batches]
        self._hashes = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        self._order = np.argsort(self._hashes)
        self._sorted = self._hashes[self._order]
        self._stored = np.zeros(len(self._hashes), np.bool_)

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def stored(self) -> int:
        """How many rows were found."""
        return int(self._stored.sum())

    def found(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Mark rows with these keys as stored; keys of other partitions are ignored."""
        if not len(self._sorted) or not len(hashes):
            return
        at = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        self._stored[self._order[at[self._sorted[at] == hashes]]] = True

    def missing(self) -> Iterator[pa.RecordBatch]:
        """The rows that remain to be sent, in order."""
        first = 0
        for batch in self._batches:
            stored = self._stored[first : first + batch.num_rows]
            first += batch.num_rows
            if not stored.any():
                yield batch
            elif not stored.all():
                yield batch.filter(flags(~stored))
