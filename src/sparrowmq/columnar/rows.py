"""The reference implementation: decodes stored records to columns one message at a time, with
`protocol.record` and plain lists.

`decode` uses it for chunks that are too small for vectors to pay off; tests compare it with the vectorised
path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers, texts
from sparrowmq.columnar.schema import PROPERTIES, TIMESTAMP, TYPES
from sparrowmq.core.message import PROPERTY_KEYS, PROPERTY_SHARDING_KEY, ReceivedMessage
from sparrowmq.protocol.record import decode_records, to_message

_DAY: Final = 86_400_000
MILLIS_MIN: Final = -62_135_596_800_000 + _DAY
MILLIS_MAX: Final = 253_402_300_800_000 - _DAY - 1
"""Times that Python and Spark hold: years 1 to 9999, in every time zone. Others become null: a single one,
of a producer whose clock is wrong, would fail the reader of all rows.
"""

_VALUES: Final[dict[str, Callable[[ReceivedMessage], Any]]] = {
    "topic": lambda message: message.topic,
    "broker": lambda message: message.queue.broker_name,
    "queue_id": lambda message: message.queue.queue_id,
    "queue_offset": lambda message: message.queue_offset,
    "msg_id": lambda message: message.message_id,
    "tags": lambda message: message.tags,
    "keys": lambda message: message.properties.get(PROPERTY_KEYS),
    "born_timestamp": lambda message: _micros(message.born_timestamp),
    "store_timestamp": lambda message: _micros(message.store_timestamp),
    "reconsume_times": lambda message: message.reconsume_times,
    "properties": lambda message: list(message.properties.items()),
    "body": lambda message: message.body,
    "flag": lambda message: message.flag,
    "sys_flag": lambda message: message.sys_flag,
    "physical_offset": lambda message: message.physical_offset,
    "store_size": lambda message: message.store_size,
    "born_host": lambda message: message.born_host,
    "store_host": lambda message: message.store_host,
    "sharding_key": lambda message: message.properties.get(PROPERTY_SHARDING_KEY),
}


def _micros(millis: int) -> int | None:
    return millis * 1000 if MILLIS_MIN <= millis <= MILLIS_MAX else None


def decode_rows(
    buffer: bytes, schema: pa.Schema, *, broker_name: str = "", offsets: range | None = None
) -> pa.RecordBatch:
    """Same result as `decode.decode`, but slower."""
    records = decode_records(buffer)
    if offsets is not None:
        last, kept = offsets.start - 1, []
        for record in records:
            if record.queue_offset > last:
                last = record.queue_offset
                if last < offsets.stop:
                    kept.append(record)
        records = kept
    messages = [to_message(record, broker_name) for record in records]
    columns = [
        _column([_VALUES[field.name](message) for message in messages], TYPES[field.name]) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind in (pa.string(), pa.binary()):
        return texts(values, kind)
    if kind != PROPERTIES:
        missing = np.array([value is None for value in values], np.bool_)
        whole = np.array([value or 0 for value in values], np.int32 if kind == pa.int32() else np.int64)
        return numbers(whole, missing).view(TIMESTAMP) if kind == TIMESTAMP else numbers(whole)
    bounds = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(pairs) for pairs in values], out=bounds[1:])
    names = texts([name for pairs in values for name, _ in pairs], pa.string())
    return pa.MapArray.from_arrays(
        numbers(bounds), names, texts([text for pairs in values for _, text in pairs], pa.string())
    )
