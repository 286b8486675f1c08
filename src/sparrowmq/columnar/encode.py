"""Arrow columns as the bodies of batch sends (remoting:5.5), by Arrow's string kernels.

total size 4 | magic 4 (0) | CRC 4 (0) | flag 4 | body length 4 | body | properties length 2 | properties
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.schema import PROPERTIES
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import (
    BODY_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    SYSTEM_PROPERTIES,
)
from sparrowmq.protocol.producer_mark import mark_head

PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
FIXED_BYTES: Final = 22
"""What a message of a batch takes besides body and properties."""

_HEAD_BYTES: Final = 20
_SPAN_BYTES_MAX: Final = 64 * 1024 * 1024
_SPAN_ROWS_MAX: Final = 16384
"""Bodies and messages worked on at once, so that Arrow's 32-bit offsets cannot overflow."""
_SEPARATORS: Final = "[\x01\x02]"


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Messages to encode, as arrays of equal length; only `body` is needed.

    `body` is binary, `tags`, `keys`, `sharding_keys` and `ids` (the `UNIQ_KEY`) are strings, `properties` is
    `map<string, string>`. Null or empty means: the message has none; properties with a null or empty value
    are left out, as readers drop them. `marks` is what `mark_column` makes.
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
        """The columns of `count` messages from `start` on; no copy."""
        return self._each(lambda column: column.slice(start, count))

    def take(self, rows: npt.NDArray[np.int64]) -> MessageColumns:
        """The columns of the messages `rows`, in that order."""
        return self._each(lambda column: column.take(pa.array(rows)))

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
    """A batch body that holds `count` messages, the first of them row `start`."""

    body: bytes
    start: int
    count: int


def encode_batches(
    columns: MessageColumns, *, bytes_max: int, body_bytes_max: int = BODY_BYTES_MAX
) -> Iterator[EncodedBatch]:
    """The messages as batch bodies in order, each of at most `bytes_max` bytes unless one message is longer.

    Raises `InvalidMessageError` with the row: a body that is null, empty or over `body_bytes_max`, a reserved
    property name, 0x01 or 0x02 in names or values, properties over 32,767 bytes.
    """
    sizes = _checked_sizes(columns.body, body_bytes_max)
    for start, stop in _spans(sizes, _SPAN_BYTES_MAX, _SPAN_ROWS_MAX):
        encoded = encode_messages(columns.slice(start, stop - start), first_row=start)
        bounds = np.frombuffer(encoded.buffers()[1], np.int32)[: stop - start + 1]
        data = encoded.buffers()[2]
        for low, high in _spans(np.diff(bounds), bytes_max, stop - start):
            begin, end = int(bounds[low]), int(bounds[high])
            yield EncodedBatch(data.slice(begin, end - begin).to_pybytes(), start + low, high - low)


def _spans(sizes: npt.NDArray[np.int32], bytes_max: int, rows_max: int) -> Iterator[tuple[int, int]]:
    """Consecutive spans of at least one row, each within both limits."""
    ends = np.cumsum(sizes, dtype=np.int64)
    start, total, done = 0, len(sizes), 0
    while start < total:
        stop = int(np.searchsorted(ends, done + bytes_max, side="right"))
        stop = min(max(stop, start + 1), start + rows_max)
        yield start, stop
        done = int(ends[stop - 1])
        start = stop


def _checked_sizes(body: pa.Array, body_bytes_max: int) -> npt.NDArray[np.int32]:
    if body.null_count:
        row = pc.index(body.is_null(), True).as_py()
        raise InvalidMessageError(f"row {row}: the body is null; a message needs a body")
    sizes: npt.NDArray[np.int32] = pc.binary_length(body).to_numpy()
    if len(sizes) and (sizes.min() < 1 or sizes.max() > body_bytes_max):
        row = int(np.flatnonzero((sizes < 1) | (sizes > body_bytes_max))[0])
        raise InvalidMessageError(
            f"row {row}: the body has {sizes[row]} bytes, a message takes 1 to {body_bytes_max}"
        )
    return sizes


def encode_messages(columns: MessageColumns, *, first_row: int = 0) -> pa.Array:
    """One binary value per message, in the layout of a batch body. Bodies must not be null.

    Raises `InvalidMessageError` as `encode_batches` does, counting rows from `first_row`.
    """
    count = len(columns)
    parts = [
        columns.marks,
        _property(PROPERTY_UNIQ_KEY, columns.ids, first_row),
        _property(PROPERTY_KEYS, columns.keys, first_row),
        _property(PROPERTY_TAGS, columns.tags, first_row),
        _property(PROPERTY_SHARDING_KEY, columns.sharding_keys, first_row),
        _user_properties(columns.properties, first_row),
    ]
    texts = [part for part in parts if part is not None] or [pa.repeat("", count)]
    properties = pc.binary_join_element_wise(*texts, "", null_handling="replace", null_replacement="")
    property_sizes = pc.binary_length(properties).to_numpy()
    if count and property_sizes.max() > PROPERTIES_BYTES_MAX:
        row = int(np.argmax(property_sizes > PROPERTIES_BYTES_MAX))
        raise InvalidMessageError(
            f"row {first_row + row}: the properties take {property_sizes[row]} bytes, the limit is "
            f"{PROPERTIES_BYTES_MAX}; send less of them"
        )
    body_sizes = pc.binary_length(columns.body).to_numpy()
    head = np.zeros((count, 5), ">i4")
    head[:, 0] = FIXED_BYTES + body_sizes + property_sizes
    head[:, 4] = body_sizes
    return pc.binary_join_element_wise(
        _fixed(head, _HEAD_BYTES),
        columns.body.cast(pa.binary()),
        _fixed(property_sizes.astype(">i2"), 2),
        properties.cast(pa.binary()),
        b"",
    )


def mark_column(
    producer: str, epoch: int, topic: str, queue_id: int, sequences: npt.NDArray[np.int64]
) -> pa.Array:
    """The properties of an idempotent producer for messages to one queue (`protocol.producer_mark`).

    Raises ValueError for an id that is none.
    """
    head = mark_head(producer, epoch, topic, queue_id).decode()
    return pc.binary_join_element_wise(head, pa.array(sequences).cast(pa.string()), "\x02", "")


def _fixed(values: npt.NDArray[Any], width: int) -> pa.Array:
    """Rows of `width` bytes as a binary array."""
    bounds = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(bounds), data])


def _property(name: str, values: pa.Array | None, first_row: int) -> pa.Array | None:
    """`name 0x01 value 0x02` per row; null where there is no value."""
    if values is None or values.null_count == len(values):
        return None
    _refuse_separators(values, f"property {name}", first_row)
    filled = pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)
    return pc.binary_join_element_wise(f"{name}\x01", filled, "\x02", "")


def _refuse_separators(values: pa.Array, what: str, first_row: int) -> None:
    found = pc.match_substring_regex(values, _SEPARATORS)
    if pc.any(found).as_py():
        row = first_row + pc.index(found, True).as_py()
        raise InvalidMessageError(f"row {row}: {what} holds the character 0x01 or 0x02")


def _user_properties(values: pa.Array | None, first_row: int) -> pa.Array | None:
    """The property string of each row's map; null where the map is."""
    if values is None or values.null_count == len(values):
        return None
    values = values.cast(PROPERTIES)
    bounds = values.offsets
    low, high = bounds[0].as_py(), bounds[len(values)].as_py()
    names, texts = values.keys.slice(low, high - low), values.items.slice(low, high - low)
    starts = pc.subtract(bounds, low)
    for name in pc.unique(names).to_pylist():
        if name in SYSTEM_PROPERTIES:
            row = first_row + _row_of(starts, pc.index(names, name).as_py())
            raise InvalidMessageError(
                f"row {row}: the property name {name!r} belongs to RocketMQ; tags, keys and sharding "
                "key have columns of their own"
            )
    for column, what in ((names, "a property name"), (texts, "a property value")):
        found = pc.match_substring_regex(column, _SEPARATORS)
        if pc.any(found).as_py():
            row = first_row + _row_of(starts, pc.index(found, True).as_py())
            raise InvalidMessageError(f"row {row}: {what} holds the character 0x01 or 0x02")
    pieces = pc.binary_join_element_wise(names, "\x01", texts, "\x02", "")
    left_out = pc.or_(pc.equal(names, ""), pc.fill_null(pc.equal(texts, ""), True))
    pieces = pc.if_else(left_out, "", pieces)
    return pc.binary_join(pa.ListArray.from_arrays(starts, pieces, mask=values.is_null()), "")


def _row_of(starts: pa.Array, entry: int) -> int:
    return int(np.searchsorted(starts.to_numpy(), entry, side="right")) - 1
