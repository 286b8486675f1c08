"""One bounded read of a queue for people: few messages and bytes, with bodies as they are stored.

`unpacking` decompresses bodies within bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.aio import PullConsumer
from sparrowmq.coordinator.cluster.bodies.unpacking import Stopped, on_thread, unpacked
from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.subscription import SUBSCRIBE_ALL, Expression
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.filter import parse_expression
from sparrowmq.protocol.properties import decode as decode_properties
from sparrowmq.protocol.record import StoredRecord, decode_records, to_message
from sparrowmq.protocol.sysflag import COMPRESSED, INNER_BATCH

READ_BYTES: Final = 1024 * 1024
"""Bytes of one read, as they are stored; one message may have more."""
READ_MESSAGES: Final = 32


@dataclass(frozen=True, slots=True)
class Batch:
    """What one read gave: messages as they are stored, the next offset, and the ends of the queue."""

    messages: Sequence[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


async def read(
    reader: PullConsumer,
    queue: MessageQueue,
    offset: int,
    *,
    count: int = READ_MESSAGES,
    expression: Expression = SUBSCRIBE_ALL,
) -> Batch:
    """Up to `count` messages from an offset on that match. Raises the errors of pulls, and `RecordError` for
    an incomplete record.
    """
    raw = await reader.fetch_raw(
        queue, offset, max_messages=count, max_bytes=READ_BYTES, expression=expression
    )
    wanted = parse_expression(queue.topic, expression, 0)

    def work(_: Stopped) -> tuple[list[ReceivedMessage], int]:
        found, onward = _messages(decode_records(raw.buffer), queue.broker_name, offset, count)
        return [one for one in found if wanted.matches(one.tags)], onward or raw.next_offset

    kept, onward = await on_thread(work)
    return Batch(kept, onward, raw.min_offset, raw.max_offset)


def _messages(
    records: Sequence[StoredRecord], broker: str, offset: int, count: int
) -> tuple[list[ReceivedMessage], int]:
    """Messages as they are stored, and the next offset if there are more than `count`, else 0: one record may
    have several. Pure.
    """
    found: list[ReceivedMessage] = []
    for record in records:
        one = to_message(record, broker, decompress=False)
        found += _inner(one, offset, count + 1) if record.sys_flag & INNER_BATCH else [one]
        if len(found) > count:
            return found[:count], found[count].queue_offset
    return found, 0


def _inner(outer: ReceivedMessage, offset: int, count: int) -> list[ReceivedMessage]:
    """The first messages of an inner batch from an offset on (remoting:5.1); the record itself when it cannot
    be read. Pure.
    """
    batch = unpacked(outer)
    if batch.sys_flag & COMPRESSED:
        return [outer]
    try:
        parts = decode_batch(batch.body)
    except RecordError:
        return [outer]
    begin = max(0, offset - batch.queue_offset)
    return [
        replace(
            batch,
            queue_offset=batch.queue_offset + number,
            flag=flag,
            body=body,
            properties=decode_properties(properties),
        )
        for number, (flag, body, properties) in enumerate(parts[begin : begin + count], begin)
    ]
