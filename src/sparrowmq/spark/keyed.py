"""Rows of a task in an order of their own, for writes whose rows do not come in the same order again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.core.errors import InvalidMessageError

ROWS_BYTES_MAX: Final = 512 * 1024 * 1024
"""Arrow bytes of one partition that are sorted in memory."""


def by_key(
    batches: Iterator[pa.RecordBatch], key: str, *, bytes_max: int = ROWS_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """All rows of a partition, sorted by column `key`.

    Raises `InvalidMessageError` for a null, for a key that two rows have, and for a partition of more than
    `bytes_max` bytes.
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
        raise InvalidMessageError(f"column {key!r} is null in a row; idempotenceKey must name every row")
    table = table.take(pc.sort_indices(table[key]))
    keys = table[key]
    same = pc.equal(keys.slice(1), keys.slice(0, max(0, len(keys) - 1)))
    if pc.any(same).as_py():
        value = keys[pc.index(same, True).as_py()].as_py()
        raise InvalidMessageError(
            f"two rows of a partition have {key}={value!r}; idempotenceKey must name one row within a batch"
        )
    yield from table.combine_chunks().to_batches()
