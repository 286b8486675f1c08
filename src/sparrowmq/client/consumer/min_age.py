"""Messages that are handed out only when they are old enough: the dynamic setting `delay`.

Younger messages are waited for, or treated as if they were not stored yet; none is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.core.clock import Clock, Sleep
from sparrowmq.core.message import ReceivedMessage
from sparrowmq.protocol import record
from sparrowmq.protocol.sysflag import HOST_V6_MASK

M = TypeVar("M", bound=ReceivedMessage)

STEP_SECONDS: Final = 1.0
"""Steps in which a queue whose messages are too young looks how late it is; clocks may jump."""
_QUEUE_OFFSET, _SYS_FLAG, _STORE_TIMESTAMP = 5, 7, 10  # in a record's head


async def hand_out_old(
    process_queue: ProcessQueue,
    messages: list[M],
    delay: float,
    clock: Clock,
    sleep: Sleep,
    hand_out: Callable[[list[M]], None],
) -> list[M]:
    """Hand out what was pulled as it becomes `delay` seconds old; gives the last of it, which is old then.

    Other queues are not affected. New dynamic settings cancel it, and the remaining messages are pulled
    again.
    """
    while not process_queue.leaving:
        old_ms = clock.now_ms() - delay * 1000
        count = next((at for at, one in enumerate(messages) if one.store_timestamp > old_ms), len(messages))
        if count == len(messages):
            return messages
        if count:
            process_queue.pulled_to(messages[count].queue_offset)
            hand_out(messages[:count])
            messages = messages[count:]
        process_queue.looked_after(clock.monotonic())
        await sleep(min((messages[0].store_timestamp - old_ms) / 1000, STEP_SECONDS))
    return []


class Young(NamedTuple):
    """The first record that is too young: its place in the buffer, its queue offset, when it was stored."""

    at: int
    queue_offset: int
    stored_ms: int


def first_young(buffer: bytes, old_ms: float) -> Young | None:
    """The first of these records that was stored after `old_ms`, epoch milliseconds; None when all are old.

    Raises `RecordError` for bytes that are not whole records.
    """
    position, end = 0, len(buffer)
    while position < end:
        if end - position <= record.HEAD.size:
            record.decode_record(buffer, position)  # raises, and says why
        head = record.HEAD.unpack_from(buffer, position)
        size, stored = head[0], head[_STORE_TIMESTAMP]
        if head[_SYS_FLAG] & HOST_V6_MASK or not record.HEAD.size < size <= end - position:
            stored = record.decode_record(buffer, position).store_timestamp
        if stored > old_ms:
            return Young(position, head[_QUEUE_OFFSET], stored)
        position += size
    return None
