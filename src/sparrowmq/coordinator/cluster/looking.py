"""Messages for users: from an offset of one queue, or between two times in all queues."""

from __future__ import annotations

import heapq
from typing import Final

from sparrowmq.aio import Admin, PullConsumer
from sparrowmq.coordinator.cluster.bodies.unpacking import cost_of
from sparrowmq.coordinator.cluster.reading import READ_MESSAGES, read
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import MessageQueue, ReceivedMessage

COUNT_MAX: Final = 200
"""Messages of one answer; bodies may have 4 MiB each, so the size of an answer is bounded separately."""
BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of the messages of one look with their properties, as they are stored; the same of the bodies that an
answer has, decompressed."""
PULLS_MAX: Final = 50
"""Pulls for one answer from one queue: what they skip is not looked for without end."""
QUEUES_MAX: Final = 256
"""Number of queues that one search between two times reads."""


async def from_offset(
    reader: PullConsumer, queue: MessageQueue, offset: int, count: int, *, end_ms: int | None = None
) -> list[ReceivedMessage]:
    """Up to `count` messages from an offset on, from the oldest stored one if that was deleted; up to those
    stored after `end_ms`. Fewer when they have `BYTES_MAX` together; bodies are as they are stored.
    """
    found: list[ReceivedMessage] = []
    size = 0
    for _ in range(PULLS_MAX):
        result = await read(reader, queue, offset, count=min(READ_MESSAGES, count - len(found)))
        for message in result.messages:
            size += cost_of(message)
            is_late = end_ms is not None and message.store_timestamp > end_ms
            if is_late or (found and size > BYTES_MAX):
                return found
            found.append(message)
        if len(found) >= count or result.next_offset <= offset:
            return found[:count]
        if not result.messages and result.next_offset >= result.max_offset:
            return found
        offset = result.next_offset
    return found


def place_in(topic: str, text: str) -> tuple[MessageQueue, int]:
    """The place of a message in a topic, written BROKER/QUEUE/OFFSET. Raises `RefusedError` (422)."""
    broker, queue, offset = text.rsplit("/", 2) if text.count("/") >= 2 else ("", "", "")
    if not (broker and all(one.isascii() and one.isdecimal() and len(one) <= 18 for one in (queue, offset))):
        raise RefusedError(f"a place is BROKER/QUEUE/OFFSET, not {text[:60]!r}", status=422)
    return MessageQueue(topic, broker, int(queue)), int(offset)


async def one_at(reader: PullConsumer, queue: MessageQueue, offset: int) -> ReceivedMessage:
    """The message at an offset. Raises `RefusedError` (404) if it is not there."""
    found = await from_offset(reader, queue, offset, 1)
    if not found or found[0].queue_offset != offset:
        raise RefusedError(f"there is no message at {queue}/{offset}", status=404)
    return found[0]


async def by_time(
    admin: Admin, reader: PullConsumer, topic: str, span_ms: tuple[int, int], count: int
) -> list[ReceivedMessage]:
    """The first `count` messages of a topic that were stored from one time to another, the oldest first, with
    bodies as they are stored.
    """
    begin, end = span_ms
    found: list[list[ReceivedMessage]] = []
    left = BYTES_MAX
    for status in (await admin.topics.status(topic))[:QUEUES_MAX]:
        if status.last_update_ms < begin or not status.messages or left <= 0:
            continue
        offset = await admin.topics.search_offset(status.queue, begin)
        here = await from_offset(reader, status.queue, offset, count, end_ms=end)
        here = [one for one in here if one.store_timestamp >= begin]
        left -= sum(map(cost_of, here))
        found.append(here)
    merged = heapq.merge(*found, key=lambda one: (one.store_timestamp, one.queue, one.queue_offset))
    return list(merged)[:count]
