"""Decoding of the records in a pull response: the loop that runs for every consumed message.

It decodes version 1 records with IPv4 hosts itself and passes all others to `protocol.record`. It caches
repeated values (topics, hosts).
"""

from __future__ import annotations

import dataclasses
import logging
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar

from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import (
    PROPERTY_CONSUME_START_TIME,
    PROPERTY_MAX_OFFSET,
    PROPERTY_MIN_OFFSET,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TAGS,
    MessageQueue,
    ReceivedMessage,
)
from sparrowmq.core.names import RETRY_PREFIX
from sparrowmq.protocol import record
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.properties import decode as decode_properties
from sparrowmq.protocol.properties import find as find_property
from sparrowmq.protocol.sysflag import (
    COMPRESSED,
    HOST_V6_MASK,
    INNER_BATCH,
    without_compressed_bit,
)

log = logging.getLogger("sparrowmq.client")

Received = TypeVar("Received", bound=ReceivedMessage)

_UNUSUAL: Final = HOST_V6_MASK | INNER_BATCH
_HEAD_BYTES: Final = record.HEAD.size
_SIZE: Final = struct.Struct(">i")
_QUEUE_OFFSET_AT: Final = 20
_TAGS: Final = PROPERTY_TAGS.encode()
_FIELDS: Final = tuple(field.name for field in dataclasses.fields(ReceivedMessage))


@lru_cache(maxsize=4096)
def _id_prefix(packed: bytes) -> str:
    return packed.hex().upper()


@lru_cache(maxsize=4096)
def _topic_text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def decode_messages(
    buffer: bytes,
    queue: MessageQueue,
    message_type: type[Received],
    tags: frozenset[str] = frozenset(),
    min_offset: int = 0,
    max_offset: int = 0,
) -> list[Received]:
    """The messages in `buffer`, pulled from `queue`, as `message_type`.

    With `tags`, only messages with one of them are kept: brokers compare only hashes. Bodies are
    decompressed; `MIN_OFFSET` and `MAX_OFFSET` of the queue become properties (client:D.7). Messages of retry
    topics show their first topic. Damaged ones are skipped and logged. Raises `RecordError` if truncated.
    """
    messages: list[Received] = []  # one loop, because a call per message would be too slow
    append, unpack, new = messages.append, record.HEAD.unpack_from, message_type.__new__
    host_text, v1 = record.host_text, record.RECORD_MAGIC_V1
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    is_lazy = issubclass(message_type, LazyMessage) and not is_retry
    wanted = frozenset(tag.encode() for tag in tags)
    bounds = {PROPERTY_MIN_OFFSET: str(min_offset), PROPERTY_MAX_OFFSET: str(max_offset)}
    position, end = 0, len(buffer)
    while position < end:
        if end - position <= _HEAD_BYTES:
            record.decode_record(buffer, position)  # raises an error with the reason
        head = unpack(buffer, position)
        size, magic, crc, _, flag, queue_offset, physical_offset, sys_flag = head[:8]
        born_timestamp, born_host, store_timestamp, store_host, times, prepared, body_bytes = head[8:]
        body_at, stop = position + _HEAD_BYTES, position + size
        topic_at = body_at + body_bytes + 1
        usual = magic == v1 and not sys_flag & _UNUSUAL and body_at < topic_at < stop <= end
        if usual:
            topic_end = topic_at + buffer[topic_at - 1]
            body, raw_at = buffer[body_at : topic_at - 1], topic_end + 2
            usual = raw_at + int.from_bytes(buffer[topic_end:raw_at], "big") == stop
            usual = usual and crc32(body) & CRC_MASK == crc
        if not usual:
            unusual, position = _decode_unusual(buffer, position, queue, message_type)
            messages += [m for m in _finish(unusual, bounds, is_retry) if not tags or m.tags in tags]
            continue
        raw, position = buffer[raw_at:stop], stop
        if wanted and find_property(raw, _TAGS) not in wanted:
            continue
        if sys_flag & COMPRESSED:
            body, sys_flag = _decompressed(body, sys_flag, queue, queue_offset)
        made: Any = new(message_type)
        made.queue, made.queue_offset, made.physical_offset = queue, queue_offset, physical_offset
        made.topic, made.body = _topic_text(buffer[topic_at:topic_end]), body
        made.flag, made.sys_flag = flag, sys_flag
        made.born_timestamp, made.born_host = born_timestamp, host_text(born_host)
        made.store_timestamp, made.store_host = store_timestamp, host_text(store_host)
        made.reconsume_times, made.store_size, made.prepared_transaction_offset = times, size, prepared
        if is_lazy:
            made._properties = made._offset_id = None
            made._raw, made._bounds, made._store_host = raw, bounds, store_host
            made.started_ms = 0
        else:
            _fill(made, raw, bounds, store_host, is_retry)
        append(made)
    return messages


def _fill(
    message: ReceivedMessage, raw: bytes, bounds: dict[str, str], store_host: bytes, is_retry: bool
) -> None:
    """Initial values of the fields that are not computed later."""
    if isinstance(message, LazyMessage):
        message.started_ms = 0
    properties = decode_properties(raw)
    if is_retry:
        message.topic = properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        properties.pop(PROPERTY_CONSUME_START_TIME, None)  # of an earlier delivery
    properties |= bounds
    message.properties = properties
    message.offset_message_id = f"{_id_prefix(store_host)}{message.physical_offset:016X}"


def _decompressed(body: bytes, sys_flag: int, queue: MessageQueue, queue_offset: int) -> tuple[bytes, int]:
    """Body and flag after decompression. A damaged body stays as it is, so that it does not block
    the queue.
    """
    try:
        return decompress(body, sys_flag), without_compressed_bit(sys_flag)
    except RecordError as error:
        log.warning(
            "message %s at offset %d is delivered with its compressed body: %s", queue, queue_offset, error
        )
        return body, sys_flag


def _decode_unusual(
    buffer: bytes, position: int, queue: MessageQueue, message_type: type[Received]
) -> tuple[list[Received], int]:
    """The messages of one record of any form (version 2, IPv6 hosts, inner batches), and the record's end.

    A damaged record has no messages.
    """
    try:
        stored = record.decode_record(buffer, position, check_crc=True)
    except RecordError as error:
        return [], _leave_out(buffer, position, queue, error)
    plain = record.to_message(stored, queue.broker_name, decompress=False)
    plain.queue = queue
    plain.body, plain.sys_flag = _decompressed(plain.body, plain.sys_flag, queue, plain.queue_offset)
    message = message_type(*(getattr(plain, name) for name in _FIELDS))
    if stored.sys_flag & INNER_BATCH:
        try:
            return list(_inner_messages(message)), position + stored.size
        except RecordError as error:  # pass it on as it is, so that it does not block the queue
            text = "message %s at offset %d is not split, because its batch cannot be read: %s"
            log.warning(text, queue, stored.queue_offset, error)
    return [message], position + stored.size


def _leave_out(buffer: bytes, position: int, queue: MessageQueue, error: RecordError) -> int:
    """Log that a record is damaged and return its end. Raises `error` when the end is unknown."""
    size: int = _SIZE.unpack_from(buffer, position)[0]
    if not _HEAD_BYTES < size <= len(buffer) - position:
        raise error
    at = position + _QUEUE_OFFSET_AT
    queue_offset = int.from_bytes(buffer[at : at + 8], "big")
    log.error("a damaged message of %s at offset %d is skipped: %s", queue, queue_offset, error)
    return position + size


def _inner_messages(outer: Received) -> Iterator[Received]:
    """The messages of an inner batch. They share everything except offset, flag, body and properties
    (remoting:5.1).
    """
    for index, (flag, body, properties) in enumerate(decode_batch(outer.body)):
        message = type(outer)(*(getattr(outer, name) for name in _FIELDS))
        message.queue_offset = outer.queue_offset + index
        message.flag = flag
        message.body = body
        message.properties = decode_properties(properties)
        yield message


def _finish(messages: list[Received], bounds: dict[str, str], is_retry: bool) -> Iterator[Received]:
    for message in messages:
        message.properties |= bounds
        if is_retry:
            message.topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)
            message.properties.pop(PROPERTY_CONSUME_START_TIME, None)
        yield message
