"""Rows that are delivered later: columns `delay_level` and `deliver_at`.

RocketMQ accepts such messages only one by one, not in batches, and stores them elsewhere first, so they have
no sequence numbers. Each is sent separately, at least once, with the fixed id of its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.encode import MessageColumns
from sparrowmq.columnar.schema import TIMESTAMP
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import PROPERTY_SHARDING_KEY, PROPERTY_UNIQ_KEY, Message
from sparrowmq.spark.write.routing import Rows

_MICROS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class DelayedRows:
    """Which rows of a batch are delayed, and until when; times are epoch microseconds."""

    mask: npt.NDArray[np.bool_]
    levels: list[int | None]
    moments: list[int | None]

    def split(self, rows: Rows) -> tuple[Rows, Rows]:
        """The immediate and the delayed rows."""
        later = self.mask[rows]
        return rows[~later], rows[later]

    def messages(self, topic: str, columns: MessageColumns, rows: Rows) -> Iterator[Message]:
        """The messages of delayed rows; `columns` are those of the whole batch."""
        taken = columns.take(rows)
        properties = _values(taken.properties, len(rows))
        keys, tags = _values(taken.keys, len(rows)), _values(taken.tags, len(rows))
        ids, sharding = _values(taken.ids, len(rows)), _values(taken.sharding_keys, len(rows))
        for number, row in enumerate(rows.tolist()):
            system = {PROPERTY_UNIQ_KEY: ids[number], PROPERTY_SHARDING_KEY: sharding[number]}
            moment = self.moments[row]
            yield Message(
                topic,
                taken.body[number].as_py(),
                tags=tags[number],
                keys=keys[number] or (),
                properties={name: value for name, value in properties[number] or () if value},
                delay_level=self.levels[row],
                deliver_at=None if moment is None else moment / _MICROS,
                system={name: value for name, value in system.items() if value},
            )


def delayed_rows(levels: pa.Array | None, moments: pa.Array | None, first_row: int) -> DelayedRows | None:
    """The content of the two columns; None when no row is delayed (both null, or level 0).

    Raises `InvalidMessageError` with the row for a level below 0 and for a row with both.
    """
    if levels is None and moments is None:
        return None
    given = levels if levels is not None else moments
    assert given is not None
    count = len(given)
    numbers = pa.nulls(count, pa.int32()) if levels is None else levels
    if (pc.min(numbers).as_py() or 0) < 0:
        row = pc.index(pc.less(numbers, 0), True).as_py()
        raise InvalidMessageError(
            f"row {first_row + row}: delay_level={numbers[row]} must not be negative; 1 is the first level",
            part="delay_level",
            value=first_row + row,
        )
    numbers = pc.if_else(pc.equal(numbers, 0), pa.scalar(None, numbers.type), numbers)
    times = pa.nulls(count, pa.int64()) if moments is None else moments.cast(TIMESTAMP).cast(pa.int64())
    both = pc.and_(numbers.is_valid(), times.is_valid())
    if pc.any(both).as_py():
        row = pc.index(both, True).as_py()
        raise InvalidMessageError(
            f"row {first_row + row}: delay_level and deliver_at are both set; one of them must be null",
            part="deliver_at",
            value=first_row + row,
        )
    mask = pc.or_(numbers.is_valid(), times.is_valid()).to_numpy(zero_copy_only=False)
    return DelayedRows(mask, numbers.to_pylist(), times.to_pylist()) if mask.any() else None


def _values(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None else column.to_pylist()
