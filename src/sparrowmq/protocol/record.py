"""Stored records: the layout of a message in the commit log and in every answer that carries messages.

    offset  size  field (hosts are IPv4 here; an IPv6 host takes 20 bytes and shifts what follows by 12)
         0     4  total size, this field included
         4     4  magic: V1 or V2, or the blank that fills the end of a file
         8     4  CRC-32 of the body as stored, without its top bit
        12     4  queue id
        16     4  flag of the application
        20     8  queue offset
        28     8  physical offset
        36     4  sysFlag
        40     8  born timestamp, epoch milliseconds
        48     8  born host: address and 4-byte port
        56     8  store timestamp, epoch milliseconds
        64     8  store host
        72     4  reconsume times
        76     8  prepared transaction offset
        84     4  body length, then the body
        88        topic length (V1 one byte, V2 two), topic, properties length (two bytes), properties

Sources: remoting:5.1, broker:2.1 and, for `check_record`, broker:2.10.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import msgspec

from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import offset_message_id, unpack_host
from sparrowmq.core.message import PROPERTIES_BYTES_MAX, MessageQueue, ReceivedMessage
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.compression import decompress as decompress_body
from sparrowmq.protocol.crc import CRC_MASK, crc32
from sparrowmq.protocol.sysflag import (
    BORN_HOST_V6,
    COMPRESSED,
    HOST_V6_MASK,
    STORE_HOST_V6,
    with_host_kinds,
    without_compressed_bit,
)

RECORD_MAGIC_V1: Final = 0xDAA320A7
RECORD_MAGIC_V2: Final = 0xDAA320AB
BLANK_MAGIC: Final = 0xCBD43194
BLANK_BYTES_MIN: Final = 8
"""The minimum size of the blank that ends a file: its size and its magic (broker:2.3)."""

TOPIC_BYTES_MAX_V1: Final = 127
RECORD_FIXED_BYTES: Final = 91
"""Size of a V1 record with IPv4 hosts and neither body, topic nor properties; V2 is one byte longer."""

HEAD: Final = struct.Struct(">iIIiiqqiq8sq8siqi")
_PREFIX: Final = struct.Struct(">iI")
_HEAD_TO_BORN: Final = struct.Struct(">iIIiiqqiq")
_HEAD_TAIL: Final = struct.Struct(">iqi")
_INT: Final = struct.Struct(">i")
_SYS_FLAG_AT: Final = 36
_SHORT: Final = struct.Struct(">h")
_LONG: Final = struct.Struct(">q")
_TOPIC_SIZE_V2: Final = struct.Struct(">h")
_TOPIC_BYTES_MAX_V2: Final = 32767
_BYTE = tuple(bytes([size]) for size in range(TOPIC_BYTES_MAX_V1 + 1))
_CONVERTIBLE = (struct.error, UnicodeDecodeError)

Buffer = bytes | bytearray | memoryview


class StoredRecord(msgspec.Struct, frozen=True, gc=False):
    """One stored record. Hosts are packed (8 or 20 bytes), body and properties are as stored."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes


def body_crc(body: Buffer) -> int:
    """The CRC of `body` in a record: CRC-32 without the top bit."""
    return crc32(body) & CRC_MASK


def encode_record(
    *,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    flag: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> bytes:
    """A complete record: V1, or V2 when the topic is longer than 127 bytes.

    The IPv6 bits of `sys_flag` are set from the lengths of the packed hosts. Raises `RecordError` when a
    value does not fit its field.
    """
    topic_size, body_size, properties_size = len(topic), len(body), len(properties)
    size = RECORD_FIXED_BYTES + topic_size + body_size + properties_size
    try:
        if topic_size <= TOPIC_BYTES_MAX_V1 and len(born_host) == 8 == len(store_host):
            head = HEAD.pack(
                size, RECORD_MAGIC_V1, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, physical_offset,
                sys_flag & ~HOST_V6_MASK, born_timestamp, born_host, store_timestamp, store_host,
                reconsume_times, prepared_offset, body_size,
            )  # fmt: skip
            tail = _SHORT.pack(properties_size)
            return b"".join((head, body, _BYTE[topic_size], topic, tail, properties))
        _check_hosts(born_host, store_host)
        size += len(born_host) + len(store_host) - 16
        magic, topic_prefix = RECORD_MAGIC_V1, topic_size.to_bytes(2, "big")[1:]
        if topic_size > TOPIC_BYTES_MAX_V1:
            size += 1
            magic, topic_prefix = RECORD_MAGIC_V2, _TOPIC_SIZE_V2.pack(topic_size)
        bits = with_host_kinds(sys_flag, born_host, store_host)
        crc = crc32(body) & CRC_MASK
        return (
            _HEAD_TO_BORN.pack(
                size, magic, crc, queue_id, flag, queue_offset, physical_offset, bits, born_timestamp
            )
            + born_host
            + _LONG.pack(store_timestamp)
            + store_host
            + _HEAD_TAIL.pack(reconsume_times, prepared_offset, body_size)
            + body
            + topic_prefix
            + topic
            + _SHORT.pack(properties_size)
            + properties
        )
    except (struct.error, OverflowError) as error:
        raise _unfit(error, topic_size, properties_size) from None


def _check_hosts(born_host: bytes, store_host: bytes) -> None:
    for host in (born_host, store_host):
        if len(host) not in (8, 20):
            raise RecordError(
                f"a packed host takes 8 or 20 bytes, not {len(host)}", what="host", value=len(host)
            )


def _unfit(error: Exception, topic_bytes: int, properties_bytes: int) -> RecordError:
    if topic_bytes > _TOPIC_BYTES_MAX_V2:
        return RecordError(f"a topic of {topic_bytes} bytes does not fit a record")
    if properties_bytes > PROPERTIES_BYTES_MAX:
        return RecordError(
            f"properties of {properties_bytes} bytes do not fit a record, the limit is {PROPERTIES_BYTES_MAX}"
        )
    return RecordError(f"a value does not fit its field of a record: {error}")


def _parts(
    buffer: Buffer, position: int, limit: int, size: int, magic: int, body_at: int, body_size: int
) -> tuple[int, int, int]:
    """The positions of topic, topic end and properties in a record; all lengths are checked against the total
    size.
    """
    end = position + size
    if size < RECORD_FIXED_BYTES or end > limit:
        raise RecordError(
            f"record at byte {position}: size {size}, but {limit - position} bytes are there",
            what="size",
            value=position,
        )
    length_at = body_at + body_size
    if body_size < 0 or length_at > end - 3:
        raise RecordError(
            f"record at byte {position}: body of {body_size} bytes in a record of {size}",
            what="body",
            value=position,
        )
    if magic == RECORD_MAGIC_V1:
        topic_at = length_at + 1
        topic_size = buffer[length_at]
        if topic_size > TOPIC_BYTES_MAX_V1:
            raise RecordError(
                f"record at byte {position}: negative topic length {topic_size - 256}",
                what="topic",
                value=position,
            )
    else:
        topic_at = length_at + 2
        topic_size = _TOPIC_SIZE_V2.unpack_from(buffer, length_at)[0]
    topic_end = topic_at + topic_size
    if topic_size < 0 or topic_end > end - 2:
        raise RecordError(
            f"record at byte {position}: topic of {topic_size} bytes in a record of {size}",
            what="topic",
            value=position,
        )
    properties_size = _SHORT.unpack_from(buffer, topic_end)[0]
    if properties_size < 0 or topic_end + 2 + properties_size != end:
        raise RecordError(
            f"record at byte {position}: size {size} is not the sum of its parts, "
            f"properties have {properties_size} bytes",
            what="properties",
            value=position,
        )
    return topic_at, topic_end, topic_end + 2


def _check_prefix(buffer: Buffer, position: int, limit: int) -> None:
    """Raise the error for a record whose head does not fit or whose magic is unknown."""
    rest = limit - position
    if rest < _PREFIX.size:
        raise RecordError(
            f"record at byte {position}: {rest} bytes are too few for a record", what="size", value=position
        )
    size, magic = _PREFIX.unpack_from(buffer, position)
    if magic == BLANK_MAGIC:
        raise RecordError(
            f"record at byte {position}: blank of {size} bytes, the end of a file",
            what="blank",
            value=position,
        )
    if magic not in (RECORD_MAGIC_V1, RECORD_MAGIC_V2):
        raise RecordError(
            f"record at byte {position}: unknown magic {magic:#010x}", what="magic", value=position
        )
    raise RecordError(
        f"record at byte {position}: size {size}, but {rest} bytes are there", what="size", value=position
    )


def decode_record(buffer: Buffer, position: int = 0, *, check_crc: bool = False) -> StoredRecord:
    """The record that starts at `position`; more bytes may follow it.

    Raises `RecordError` on a blank, an unknown magic, a truncated record, inconsistent lengths and, with
    `check_crc`, a changed body.
    """
    limit = len(buffer)
    assert position >= 0, position
    if limit - position < HEAD.size:
        _check_prefix(buffer, position, limit)
    (
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host,
        store_timestamp, store_host, reconsume_times, prepared_offset, body_size,
    ) = HEAD.unpack_from(buffer, position)  # fmt: skip
    if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:
        _check_prefix(buffer, position, limit)
    body_at = position + 88
    try:
        if sys_flag & HOST_V6_MASK:
            (born_host, store_timestamp, store_host, reconsume_times, prepared_offset, body_size, body_at) = (
                _wide_hosts(buffer, position, sys_flag)
            )
        topic_at, topic_end, properties_at = _parts(buffer, position, limit, size, magic, body_at, body_size)
        body = bytes(buffer[body_at : body_at + body_size])
        topic = str(buffer[topic_at:topic_end], "utf-8")
    except _CONVERTIBLE as error:
        raise RecordError(f"record at byte {position}: {error}", value=position) from None
    if check_crc and crc32(body) & CRC_MASK != crc:
        raise RecordError(
            f"record at byte {position}: the body's CRC is not the stored one", what="CRC", value=position
        )
    return StoredRecord(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_offset,
        body,
        topic,
        bytes(buffer[properties_at : position + size]),
    )


def _wide_hosts(buffer: Buffer, position: int, sys_flag: int) -> tuple[bytes, int, bytes, int, int, int, int]:
    """The fields from born host to body length, and where the body starts, of a record with IPv6 hosts."""
    store_time_at = position + _HEAD_TO_BORN.size + (20 if sys_flag & BORN_HOST_V6 else 8)
    tail_at = store_time_at + 8 + (20 if sys_flag & STORE_HOST_V6 else 8)
    reconsume_times, prepared_offset, body_size = _HEAD_TAIL.unpack_from(buffer, tail_at)
    return (
        bytes(buffer[position + _HEAD_TO_BORN.size : store_time_at]),
        _LONG.unpack_from(buffer, store_time_at)[0],
        bytes(buffer[store_time_at + 8 : tail_at]),
        reconsume_times,
        prepared_offset,
        body_size,
        tail_at + _HEAD_TAIL.size,
    )


def decode_records(buffer: Buffer) -> list[StoredRecord]:
    """All records of a buffer with complete records only, such as a pull response."""
    records = []
    position, end = 0, len(buffer)
    while position < end:
        record = decode_record(buffer, position)
        records.append(record)
        position += record.size
    return records


def find_properties(buffer: Buffer, position: int) -> bytes:
    """The property string of the record that starts at `position`, without decoding the rest.

    Raises `RecordError` when the record's lengths are inconsistent.
    """
    try:
        body_at, body_size = position + 88, _INT.unpack_from(buffer, position + 84)[0]
        if buffer[position + _SYS_FLAG_AT + 3] & HOST_V6_MASK:
            sys_flag = _INT.unpack_from(buffer, position + _SYS_FLAG_AT)[0]
            *_, body_size, body_at = _wide_hosts(buffer, position, sys_flag)
        size, magic = _PREFIX.unpack_from(buffer, position)
        topic_at = body_at + body_size
        if magic == RECORD_MAGIC_V1:
            topic_size, properties_at = buffer[topic_at], topic_at + 3 + buffer[topic_at]
        else:
            topic_size = _TOPIC_SIZE_V2.unpack_from(buffer, topic_at)[0]
            properties_at = topic_at + 4 + topic_size
        if body_size < 0 or topic_size < 0:
            raise RecordError(
                f"record at byte {position}: a length is negative", what="topic", value=position
            )
        end = properties_at + _SHORT.unpack_from(buffer, properties_at - 2)[0]
    except (struct.error, IndexError) as error:
        raise RecordError(f"record at byte {position}: {error}", value=position) from None
    if end != position + size:
        raise RecordError(
            f"record at byte {position}: size {size} is not the sum of its parts",
            what="properties",
            value=position,
        )
    return bytes(buffer[properties_at:end])


def check_record(view: Buffer, position: int, limit: int) -> int:
    """Size in bytes of the valid record at `position`, or 0 at the blank that ends a file (broker:2.10).

    `limit` is the end of the file's bytes in `view`. Raises `RecordError` for anything else: unknown magic
    (zeros too), a size beyond `limit`, inconsistent parts, a body whose CRC differs.
    """
    if limit - position >= BLANK_BYTES_MIN and _PREFIX.unpack_from(view, position)[1] == BLANK_MAGIC:
        return 0
    if limit - position < HEAD.size:
        _check_prefix(view, position, limit)
    head = HEAD.unpack_from(view, position)
    size, magic, crc, sys_flag, body_size = head[0], head[1], head[2], head[7], head[14]
    if magic != RECORD_MAGIC_V1 and magic != RECORD_MAGIC_V2:
        _check_prefix(view, position, limit)
    body_at = position + 88
    try:
        if sys_flag & HOST_V6_MASK:
            *_, body_size, body_at = _wide_hosts(view, position, sys_flag)
        topic_at, topic_end, _ = _parts(view, position, limit, size, magic, body_at, body_size)
        str(view[topic_at:topic_end], "utf-8")
    except _CONVERTIBLE as error:
        raise RecordError(f"record at byte {position}: {error}", value=position) from None
    if body_size and crc32(view[body_at : body_at + body_size]) & CRC_MASK != crc:
        raise RecordError(
            f"record at byte {position}: the body's CRC is not the stored one", what="CRC", value=position
        )
    return int(size)


@lru_cache(maxsize=4096)
def host_text(packed: bytes) -> str:
    """A packed host as `address:port`, an IPv6 address in brackets."""
    host, port = unpack_host(packed)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def to_message(record: StoredRecord, broker_name: str, *, decompress: bool = True) -> ReceivedMessage:
    """The record as consumers get it; a compressed body is decompressed unless `decompress` is false.

    Raises `RecordError` when the body cannot be decompressed.
    """
    body, sys_flag = record.body, record.sys_flag
    if decompress and sys_flag & COMPRESSED:
        body = decompress_body(body, sys_flag)
        sys_flag = without_compressed_bit(sys_flag)
    return ReceivedMessage(
        queue=MessageQueue(record.topic, broker_name, record.queue_id),
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        topic=record.topic,
        body=body,
        properties=property_string.decode(record.properties),
        flag=record.flag,
        sys_flag=sys_flag,
        born_timestamp=record.born_timestamp,
        born_host=host_text(record.born_host),
        store_timestamp=record.store_timestamp,
        store_host=host_text(record.store_host),
        reconsume_times=record.reconsume_times,
        store_size=record.size,
        prepared_transaction_offset=record.prepared_offset,
        offset_message_id=offset_message_id(record.store_host, record.physical_offset),
    )
