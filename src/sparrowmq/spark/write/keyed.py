"""Rows of a task in a stable order, for writes whose rows may arrive in another order next time.

A partition may be larger than memory: rows beyond a bound are sorted part by part into files of Arrow's IPC
format, and merged when they are read (an external merge sort).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.arrays import flags
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.spark.write.identity import key_hashes

SORT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Arrow bytes of a partition that are sorted in memory, which takes as much again; more go to files.

The tasks of an executor share its memory overhead: 384 MiB, unless it is set.
"""
PIECE_BYTES: Final = 1024 * 1024
"""Bytes of rows that are read from a sorted file at once."""
FILES_MAX: Final = 64
"""Sorted files that are read side by side; of so many, one is made."""


@contextmanager
def sorted_rows(batches: Iterable[pa.RecordBatch], key: str) -> Iterator[SortedRows]:
    """All rows of a partition in the order of column `key`, until the context ends.

    Raises `InvalidMessageError` for a null and for a duplicate key. Files are in Spark's local directory, so
    Spark removes those of a task that was killed.
    """
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    with TemporaryDirectory(prefix="sparrowmq-rows-", dir=local or None, ignore_cleanup_errors=True) as place:
        yield SortedRows(batches, key, Path(place))


class SortedRows:
    """Rows in the order of a key, each time they are iterated."""

    def __init__(self, batches: Iterable[pa.RecordBatch], key: str, place: Path) -> None:
        self._key = key
        self._place = place
        self._files: list[Path] = []
        self._made = 0
        self._held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if size and size + batch.nbytes > SORT_BYTES_MAX:
                self._spill()
                size = 0
            self._held.append(batch)
            size += batch.nbytes
        if self._files:
            self._spill()
        else:
            self._held = sort(self._held, key)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows. Raises `InvalidMessageError` for a duplicate key of rows in two files."""
        return self._merged() if self._files else iter(self._held)

    def _spill(self) -> None:
        """Move the rows in memory to a file."""
        rows, self._held = sort(self._held, self._key), []
        if len(self._files) == FILES_MAX:
            merged = self._write(self._merged())
            for file in self._files:
                file.unlink()
            self._files = [merged]
        self._files.append(self._write(rows))

    def _merged(self) -> Iterator[pa.RecordBatch]:
        return merge([_read(file) for file in self._files], self._key)

    def _write(self, batches: Iterable[pa.RecordBatch]) -> Path:
        file = self._place / f"{self._made}.arrow"
        self._made += 1
        pieces = (piece for batch in batches for piece in _pieces(batch))
        first = next(pieces)
        with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, first.schema) as stream:
            for piece in chain((first,), pieces):
                stream.write_batch(piece)
        return file


def sort(batches: Sequence[pa.RecordBatch], key: str) -> list[pa.RecordBatch]:
    """The rows of `batches` in order. Raises `InvalidMessageError` for a null and for a duplicate key."""
    if not batches:
        return []
    table = pa.Table.from_batches(batches)
    if table[key].null_count:
        text = f"column {key!r} is null in a row; idempotenceKey must identify every row"
        raise InvalidMessageError(text, part=key)
    table = table.take(pc.sort_indices(table[key]))
    keys = table[key]
    same = pc.equal(keys.slice(1), keys.slice(0, max(0, len(keys) - 1)))
    if pc.any(same).as_py():
        value = keys[pc.index(same, True).as_py()].as_py()
        raise InvalidMessageError(
            f"two rows of a partition have {key}={value!r}; idempotenceKey must be unique within a batch",
            part=key,
            value=value,
        )
    rows: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    return rows


def merge(runs: Sequence[Iterator[pa.RecordBatch]], key: str) -> Iterator[pa.RecordBatch]:
    """The rows of sorted runs in order; of each run one batch is in memory. No batch is empty."""
    heads = {run: next(run) for run in runs}
    while heads:  # ends: in every round the run with the lowest last key uses up its batch
        bound = pc.min(pa.chunked_array([head[key].slice(head.num_rows - 1) for head in heads.values()]))
        taken: list[pa.RecordBatch] = []
        for run, head in list(heads.items()):
            count = pc.sum(pc.less_equal(head[key], bound)).as_py()
            taken.append(head.slice(0, count))
            rest = head.slice(count) if count < head.num_rows else next(run, None)
            if rest is None:
                del heads[run]
            else:
                heads[run] = rest
        yield from sort(taken, key)


def _read(file: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as stream:
        yield from stream


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts of about `PIECE_BYTES`."""
    rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


class KeyedRows:
    """The rows of a partition, sorted by key, without those that earlier runs of the batch stored.

    An eight-byte hash represents each key; only those of this partition are in memory, and no rows.
    """

    def __init__(self, rows: Iterable[pa.RecordBatch], key: str) -> None:
        self._rows = rows
        self._key = key
        hashes = [key_hashes(batch[key]) for batch in rows]
        self._hashes = np.sort(np.concatenate(hashes)) if hashes else np.empty(0, np.uint64)
        self._stored = np.zeros(len(self._hashes), np.bool_)

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def stored(self) -> int:
        """How many rows were found."""
        return int(self._stored.sum())

    def found(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Mark rows with these keys as stored; keys of other partitions are ignored."""
        if not len(self._hashes) or not len(hashes):
            return
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        self._stored[at[self._hashes[at] == hashes]] = True

    def missing(self) -> Iterator[pa.RecordBatch]:
        """The rows that remain to be sent, in order."""
        for batch in self._rows:
            stored = self._stored[np.searchsorted(self._hashes, key_hashes(batch[self._key]))]
            if not stored.any():
                yield batch
            elif not stored.all():
                yield batch.filter(flags(~stored))
