"""Arrow columns as the bodies of batch sends (remoting:5.5), put together by the column.

total size 4 | magic 4 (0) | CRC 4 (0) | flag 4 | body length 4 | body | properties length 2 | properties
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers, numbers_of
from sparrowmq.columnar.joining import Flags, RowPiece, first_with, join, missing, rows_of, sizes_of
from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.columnar.slices import offsets_of
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import (
    PROPERTIES_BYTES_MAX,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    SYSTEM_PROPERTIES,
)
from sparrowmq.protocol.producer_mark import mark_head

FIXED_BYTES: Final = 22
"""Bytes of a message in a batch besides its body and properties."""

_HEAD_BYTES: Final = 20
_SPAN_BYTES: Final = 2 * 1024 * 1024
_BATCHES_IN_SPAN: Final = 4
"""Bodies processed at once: this many bytes, or those of this many batches. More of them would be copied into
new pages of memory each time.
"""
_SPAN_BYTES_MAX: Final = 64 * 1024 * 1024
_SPAN_ROWS_MAX: Final = 16384
"""Maximum bodies or messages processed at once, so that Arrow's 32-bit offsets cannot overflow."""
_SEPARATORS: Final = b"\x01\x02"


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Messages to encode, as arrays of equal length; only `body` is required.

    `body` is binary, `tags`, `keys`, `sharding_keys` and `ids` (the `UNIQ_KEY`) are strings, `properties` is
    `map<string, string>`. Null or empty means that the message has none. Properties with a null or empty
    value are left out, because readers drop them. `marks` is the result of `mark_column`.
    """

    body: pa.Array
    ids: pa.Array | None = None
    tags: pa.Array | None = None
    keys: pa.Array | None = None
    sharding_keys: pa.Array | None = None
    properties: pa.Array | None = None
    marks: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.body)

    def slice(self, start: int, count: int) -> MessageColumns:
        """The columns of `count` messages from `start` on, without a copy."""
        return self._each(lambda column: column.slice(start, count))

    def take(self, rows: npt.NDArray[np.int64]) -> MessageColumns:
        """The columns of the messages `rows`, in that order."""
        return self._each(lambda column: column.take(numbers(rows)))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> MessageColumns:
        columns = (
            self.body,
            self.ids,
            self.tags,
            self.keys,
            self.sharding_keys,
            self.properties,
            self.marks,
        )
        return MessageColumns(*(None if column is None else change(column) for column in columns))


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch body with `count` messages; the first of them is row `start`."""

    body: bytes
    start: int
    count: int


def encode_batches(
    columns: MessageColumns, *, bytes_max: int, body_bytes_max: int | None = None
) -> Iterator[EncodedBatch]:
    """The messages as batch bodies in order, each of at most `bytes_max` bytes unless it has a single, longer
    message.

    Raises `InvalidMessageError` with the row for a body that is null, empty or over `body_bytes_max` (None:
    no limit), a reserved property name, 0x01 or 0x02 in names or values, and properties over 32,767 bytes.
    """
    ends = np.cumsum(_checked_sizes(columns.body, body_bytes_max), dtype=np.int64)
    at_once = min(_SPAN_BYTES_MAX, max(_SPAN_BYTES, _BATCHES_IN_SPAN * bytes_max))
    start, total = 0, len(columns)
    while start < total:  # each span yields at least one batch with at least one message
        stop = _stop(ends, start, at_once, _SPAN_ROWS_MAX)
        encoded = encode_messages(columns.slice(start, stop - start), first_row=start)
        bounds, data = offsets_of(encoded), encoded.buffers()[2]
        spans = list(_spans(bounds[1:], bytes_max))
        if stop < total and len(spans) > 1:
            spans.pop()  # more messages may fit in it: the next span begins with it
        for low, high in spans:
            begin, end = int(bounds[low]), int(bounds[high])
            yield EncodedBatch(data.slice(begin, end - begin).to_pybytes(), start + low, high - low)
        start += spans[-1][1]


def _spans(ends: npt.NDArray[Any], bytes_max: int) -> Iterator[tuple[int, int]]:
    """Consecutive spans of at least one row, each within the limit; `ends` are the end offsets of
    the rows.
    """
    start, total = 0, len(ends)
    while start < total:
        stop = _stop(ends, start, bytes_max, total)
        yield start, stop
        start = stop


def _stop(ends: npt.NDArray[Any], start: int, bytes_max: int, rows_max: int) -> int:
    """The end of a span that begins at row `start`."""
    before = int(ends[start - 1]) if start else 0
    stop = int(np.searchsorted(ends, before + bytes_max, side="right"))
    return min(max(stop, start + 1), start + rows_max, len(ends))


def _checked_sizes(body: pa.Array, body_bytes_max: int | None) -> npt.NDArray[np.int32]:
    if body.null_count:
        row = int(np.argmax(missing(body)))
        raise InvalidMessageError(
            f"row {row}: the body is null; a message needs a body", part="body", value=row
        )
    sizes = sizes_of(body)
    most = np.iinfo(np.int32).max if body_bytes_max is None else body_bytes_max
    if len(sizes) and (sizes.min() < 1 or sizes.max() > most):
        row = int(np.flatnonzero((sizes < 1) | (sizes > most))[0])
        allowed = "at least 1" if body_bytes_max is None else f"1 to {body_bytes_max}"
        raise InvalidMessageError(
            f"row {row}: the body has {sizes[row]} bytes; a message needs {allowed}", part="body", value=row
        )
    return sizes


def encode_messages(columns: MessageColumns, *, first_row: int = 0) -> pa.Array:
    """One binary value per message, in the layout of a batch body. Bodies must not be null.

    Raises `InvalidMessageError` as `encode_batches` does, counting rows from `first_row`.
    """
    count = len(columns)
    properties = [
        *_whole(columns.marks),
        *_property(PROPERTY_UNIQ_KEY, columns.ids, first_row),
        *_property(PROPERTY_KEYS, columns.keys, first_row),
        *_property(PROPERTY_TAGS, columns.tags, first_row),
        *_property(PROPERTY_SHARDING_KEY, columns.sharding_keys, first_row),
        *_whole(_user_properties(columns.properties, first_row)),
    ]
    property_sizes = _sizes(count, properties)
    if count and property_sizes.max() > PROPERTIES_BYTES_MAX:
        row = int(np.argmax(property_sizes > PROPERTIES_BYTES_MAX))
        raise InvalidMessageError(
            f"row {first_row + row}: the properties take {property_sizes[row]} bytes, the limit is "
            f"{PROPERTIES_BYTES_MAX}; send fewer",
            limit=PROPERTIES_BYTES_MAX,
            part="properties",
        )
    body_sizes = sizes_of(columns.body)
    head = np.zeros((count, 5), ">i4")
    head[:, 0] = FIXED_BYTES + body_sizes + property_sizes
    head[:, 4] = body_sizes
    tail = rows_of(property_sizes.astype(">i2"), 2)
    return join(
        count, [RowPiece(rows_of(head, _HEAD_BYTES)), RowPiece(columns.body), RowPiece(tail), *properties]
    )


def mark_column(
    producer: str, epoch: int, topic: str, queue_id: int, sequences: npt.NDArray[np.int64]
) -> pa.Array:
    """The properties of an idempotent producer for messages to one queue (`protocol.producer_mark`).

    Raises ValueError for an invalid id.
    """
    head = mark_head(producer, epoch, topic, queue_id)
    digits = numbers(sequences.astype(np.int64)).cast(pa.string())
    return join(len(sequences), [RowPiece(head), RowPiece(digits), RowPiece(b"\x02")]).view(pa.string())


def _sizes(count: int, pieces: list[RowPiece]) -> npt.NDArray[np.int32]:
    """The total bytes of each row's pieces."""
    total = np.zeros(count, np.int32)
    for value, present in pieces:
        sizes = len(value) if isinstance(value, bytes) else sizes_of(value)
        total += np.where(present, sizes, 0).astype(np.int32) if present is not None else np.int32(sizes)
    return total


def _present(values: pa.Array) -> Flags | None:
    """The rows whose value is neither null nor empty; None: all."""
    found: Flags = sizes_of(values) > 0
    return None if found.all() else found


def _whole(values: pa.Array | None) -> list[RowPiece]:
    """Values that include their separators."""
    return [] if values is None else [RowPiece(values, _present(values))]


def _property(name: str, values: pa.Array | None, first_row: int) -> list[RowPiece]:
    """`name 0x01 value 0x02` for each row with a value."""
    if values is None or values.null_count == len(values):
        return []
    row = first_with(values, _SEPARATORS)
    if row is not None:
        raise InvalidMessageError(
            f"row {first_row + row}: property {name} contains the character 0x01 or 0x02",
            part=name,
            value=first_row + row,
        )
    present = _present(values)
    return [
        RowPiece(f"{name}\x01".encode(), present),
        RowPiece(values, present),
        RowPiece(b"\x02", present),
    ]


def _user_properties(values: pa.Array | None, first_row: int) -> pa.Array | None:
    """The property string of each row's map, empty if the map is null; None if no row has a map."""
    if values is None or values.null_count == len(values):
        return None
    values = values.cast(PROPERTIES)
    bounds = numbers_of(values.offsets)
    low, high = int(bounds[0]), int(bounds[-1])
    names, texts = values.keys.slice(low, high - low), values.items.slice(low, high - low)
    starts = bounds - low
    counts = np.diff(starts)
    wanted = np.repeat(~missing(values), counts)
    known = names.dictionary_encode()
    for code, name in enumerate(known.dictionary.to_pylist()):
        if name not in SYSTEM_PROPERTIES:
            continue
        entries = np.flatnonzero((numbers_of(known.indices) == code) & wanted)
        if len(entries):
            row = first_row + _row_of(starts, int(entries[0]))
            raise InvalidMessageError(
                f"row {row}: the property name {name!r} is reserved by RocketMQ; tags, keys and sharding key "
                "have their own columns",
                part=name,
                value=row,
            )
    for column, what in ((names, "a property name"), (texts, "a property value")):
        entry = first_with(column, _SEPARATORS)
        if entry is not None:
            row = first_row + _row_of(starts, entry)
            text = f"row {row}: {what} contains the character 0x01 or 0x02"
            raise InvalidMessageError(text, part="properties", value=row)
    present = wanted & (sizes_of(names) > 0) & (sizes_of(texts) > 0)
    pieces = [
        RowPiece(names, present),
        RowPiece(b"\x01", present),
        RowPiece(texts, present),
        RowPiece(b"\x02", present),
    ]
    return join(len(names), pieces, per_row=counts.tolist())


def _row_of(starts: npt.NDArray[np.int32], entry: int) -> int:
    return int(np.searchsorted(starts, entry, side="right")) - 1
