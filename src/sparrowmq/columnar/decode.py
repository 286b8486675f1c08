"""Vectorised decoding of a chunk of stored records to an Arrow record batch.

One chunk should hold 2,000 to 10,000 messages: the fixed cost of a call is about a third of a millisecond
(spark:5). Small chunks are decoded by `rows`. Both return the same columns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers, repeated, texts
from sparrowmq.columnar.equal_properties import EqualProperties
from sparrowmq.columnar.layout import Layout, any_compressed, layout, record_count
from sparrowmq.columnar.properties import Properties, read_properties
from sparrowmq.columnar.rows import MILLIS_MAX, MILLIS_MIN, decode_rows
from sparrowmq.columnar.schema import TIMESTAMP, arrow_schema
from sparrowmq.columnar.slices import BufferSlices, is_utf8
from sparrowmq.core.errors import CompressedBodyError, RecordError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.message import PROPERTY_KEYS, PROPERTY_SHARDING_KEY, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from sparrowmq.protocol.record import host_text
from sparrowmq.protocol.sysflag import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6

if TYPE_CHECKING:  # a process without compressed bodies does not need it
    from sparrowmq.columnar.opening import ShutBody

ROWS_LOOP_MAX: Final = 64
"""Up to this number of records the loop is as fast as the vectors."""

DEFAULT_SCHEMA: Final = arrow_schema()
_BODY: Final = "body"


def decode(
    buffer: bytes, schema: pa.Schema = DEFAULT_SCHEMA, *, broker_name: str = "", offsets: range | None = None
) -> pa.RecordBatch:
    """The records of `buffer` as columns, in order; `schema` is `columnar.schema.arrow_schema(names)`.

    `buffer` holds whole records back to back, as in pull responses. Records do not contain their broker's
    name, so `broker_name` fills that column. With `offsets`, only records in that range are kept whose queue
    offset is above that of all earlier records: overlapping responses of one queue can simply be joined.

    Raises `RecordError` with the position on bytes that are not a record and on bodies that cannot be
    decompressed.
    """
    if _is_small(buffer):
        return decode_rows(buffer, schema, broker_name=broker_name, offsets=offsets)
    return decode_vectors(buffer, schema, broker_name=broker_name, offsets=offsets)


def _is_small(buffer: bytes) -> bool:
    """Whether the loop is fast enough; it would decompress bodies that nobody wants."""
    return record_count(buffer, ROWS_LOOP_MAX) < ROWS_LOOP_MAX and not any_compressed(buffer, ROWS_LOOP_MAX)


def decode_vectors(
    buffer: bytes, schema: pa.Schema = DEFAULT_SCHEMA, *, broker_name: str = "", offsets: range | None = None
) -> pa.RecordBatch:
    """Like `decode`, for all but small chunks."""
    places = layout(buffer)
    if offsets is not None:
        places = _in_range(places, offsets)
    [(batch, shut)] = layout_batches(buffer, places, schema, bytes_max=sys.maxsize, broker_name=broker_name)
    if shut:
        raise CompressedBodyError(str(shut[min(shut)]))
    return batch


class DecodedBatch(NamedTuple):
    """Records as columns."""

    batch: pa.RecordBatch
    shut: Mapping[int, ShutBody]
    """The rows whose body cannot be decompressed; the batch has it as stored."""


def decode_batches(
    buffer: bytes,
    schema: pa.Schema = DEFAULT_SCHEMA,
    *,
    bytes_max: int,
    broker_name: str = "",
    offsets: range | None = None,
) -> Iterator[DecodedBatch]:
    """Like `decode`, in batches of at most `bytes_max` decompressed bytes; a larger record has its own batch.

    Besides the one that is yielded, it holds one decompressed body. Without the column `body`, bodies are
    neither decompressed nor counted. Raises `RecordError` with the position on bytes that are not a record.
    """
    if len(buffer) <= bytes_max and _is_small(buffer):
        yield DecodedBatch(decode_rows(buffer, schema, broker_name=broker_name, offsets=offsets), {})
        return
    places = layout(buffer)
    if offsets is not None:
        places = _in_range(places, offsets)
    yield from layout_batches(buffer, places, schema, bytes_max=bytes_max, broker_name=broker_name)


def layout_batches(
    buffer: bytes, places: Layout, schema: pa.Schema, *, bytes_max: int, broker_name: str = ""
) -> Iterator[DecodedBatch]:
    """The records of `buffer` at `places`, otherwise like `decode_batches`."""
    bodies = _BODY in schema.names
    packed = bodies and (places.heads["sys_flag"] & COMPRESSED).any()
    if not packed and places.heads["store_size"].sum(dtype=np.int64) <= bytes_max:
        yield DecodedBatch(_batch(_Chunk(buffer, places, broker_name, {}), schema), {})
        return
    from sparrowmq.columnar.opening import opened_spans

    for span in opened_spans(buffer, places, bytes_max, bodies=bodies):
        part = places.keep(slice(span.start, span.stop))
        batch = _batch(_Chunk(buffer, part, broker_name, span.bodies), schema)
        span.bodies.clear()  # the batch has copies
        yield DecodedBatch(batch, span.shut)


def _batch(chunk: _Chunk, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_COLUMNS[field.name](chunk) for field in schema], schema=schema)


def _in_range(places: Layout, offsets: range) -> Layout:
    found = places.heads["queue_offset"]
    count = len(found)
    if count == len(offsets) and count and found[0] == offsets.start and (np.diff(found) == 1).all():
        return places
    wanted: npt.NDArray[np.bool_] = (found >= offsets.start) & (found < offsets.stop)
    wanted[1:] &= found[1:] > np.maximum.accumulate(found)[:-1]
    return places.keep(wanted)


class _Chunk:
    """The records of one chunk; properties are parsed once, when a column needs them."""

    def __init__(self, buffer: bytes, places: Layout, broker_name: str, opened: Mapping[int, bytes]) -> None:
        self.buffer = buffer
        self.places = places
        self.broker_name = broker_name
        self.opened = opened
        """The decompressed bodies, by row."""
        self._properties: Properties | EqualProperties | None = None

    @property
    def properties(self) -> Properties | EqualProperties:
        if self._properties is None:
            places = self.places
            strings = BufferSlices(self.buffer, places.properties, places.properties_end, pa.binary()).all()
            self._properties = read_properties(strings)
        return self._properties


def _topic(chunk: _Chunk) -> pa.Array:
    topics = BufferSlices(chunk.buffer, chunk.places.topic, chunk.places.topic_end, pa.string()).all()
    if not is_utf8(topics):
        raise RecordError("a record's topic is not valid UTF-8")
    return topics


def _broker(chunk: _Chunk) -> pa.Array:
    return repeated(chunk.broker_name, len(chunk.places))


def _message_id(chunk: _Chunk) -> pa.Array:
    ids = chunk.properties.column(PROPERTY_UNIQ_KEY)
    if not ids.null_count:
        return ids
    found = ids.to_pylist()
    hosts = _host_bytes(chunk, "store_host", STORE_HOST_V6)
    physical = chunk.places.heads["physical_offset"]
    for row in [row for row, text in enumerate(found) if text is None]:
        # Messages without a unique key are identified by their offset message id.
        found[row] = offset_message_id(hosts[row], int(physical[row]))
    return texts(found, pa.string())


def _map(chunk: _Chunk) -> pa.Array:
    return chunk.properties.map()


def _property(name: str) -> Callable[[_Chunk], pa.Array]:
    return lambda chunk: chunk.properties.column(name)


def _number(name: str, kind: type[np.signedinteger[Any]]) -> Callable[[_Chunk], pa.Array]:
    return lambda chunk: numbers(chunk.places.heads[name].astype(kind))


def _time(name: str) -> Callable[[_Chunk], pa.Array]:
    def column(chunk: _Chunk) -> pa.Array:
        millis = chunk.places.heads[name].astype(np.int64)
        missing = (millis < MILLIS_MIN) | (millis > MILLIS_MAX)
        return numbers(np.where(missing, 0, millis) * 1000, missing).view(TIMESTAMP)

    return column


def _sys_flag(chunk: _Chunk) -> pa.Array:
    return numbers(chunk.places.heads["sys_flag"].astype(np.int32) & ~np.int32(COMPRESSED))


def _body(chunk: _Chunk) -> pa.Array:
    places = chunk.places
    bodies = BufferSlices(chunk.buffer, places.body, places.body_end, pa.binary()).all()
    if not chunk.opened:
        return bodies
    values = bodies.to_pylist()
    for row, body in chunk.opened.items():
        values[row] = body
    return texts(values, pa.binary())


def _host_bytes(chunk: _Chunk, name: str, wide_bit: int) -> list[bytes]:
    column = chunk.places.heads[name]
    wide = chunk.places.heads["sys_flag"] & wide_bit
    if not wide.any():
        return [host[:8] for host in column.tolist()]
    return [host if v6 else host[:8] for host, v6 in zip(column.tolist(), wide.tolist(), strict=True)]


def _host(name: str, wide_bit: int) -> Callable[[_Chunk], pa.Array]:
    return lambda chunk: texts([host_text(host) for host in _host_bytes(chunk, name, wide_bit)], pa.string())


_COLUMNS: Final[dict[str, Callable[[_Chunk], pa.Array]]] = {
    "topic": _topic,
    "broker": _broker,
    "queue_id": _number("queue_id", np.int32),
    "queue_offset": _number("queue_offset", np.int64),
    "msg_id": _message_id,
    "tags": _property(PROPERTY_TAGS),
    "keys": _property(PROPERTY_KEYS),
    "born_timestamp": _time("born_timestamp"),
    "store_timestamp": _time("store_timestamp"),
    "reconsume_times": _number("reconsume_times", np.int32),
    "properties": _map,
    _BODY: _body,
    "flag": _number("flag", np.int32),
    "sys_flag": _sys_flag,
    "physical_offset": _number("physical_offset", np.int64),
    "store_size": _number("store_size", np.int32),
    "born_host": _host("born_host", BORN_HOST_V6),
    "store_host": _host("store_host", STORE_HOST_V6),
    "sharding_key": _property(PROPERTY_SHARDING_KEY),
}
