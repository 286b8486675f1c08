"""The reference: stored records to columns one message at a time, by `protocol.record` and plain lists.

`decode` uses it for chunks too small for vectors to pay off; tests hold it against the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from sparrowmq.columnar.schema import TYPES
from sparrowmq.core.message import PROPERTY_KEYS, ReceivedMessage
from sparrowmq.protocol.record import decode_records, to_message

MICROS_MAX: Final = 2**63 // 1000 - 1
"""Largest millisecond time whose microseconds fit 64 bits; times beyond it are cut to it."""

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
}


def _micros(millis: int) -> int:
    return max(-MICROS_MAX, min(MICROS_MAX, millis)) * 1000


def decode_rows(
    buffer: bytes, schema: pa.Schema, *, broker_name: str = "", offsets: range | None = None
) -> pa.RecordBatch:
    """Does what `decode.decode` does, slowly."""
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
        pa.array([_VALUES[field.name](message) for message in messages], TYPES[field.name])
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
