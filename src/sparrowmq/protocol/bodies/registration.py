"""The body of a broker's registration, plain or compressed (remoting:4.5)."""

from __future__ import annotations

import struct
from typing import Final

from msgspec import field

from sparrowmq.core.errors import BodyError, RecordError
from sparrowmq.protocol.bodies.base import Body, convert
from sparrowmq.protocol.bodies.tables import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.java_json import loads
from sparrowmq.protocol.sysflag import COMPRESSED

_MAPPING_TAIL_VERSION: Final = 413
"""Senders of this version and later end a compressed registration with queue mappings (remoting:1.5)."""

_INT = struct.Struct(">i")


class RegisterBrokerBody(Body, frozen=True):
    """What a broker tells the name server (103, remoting:4.5)."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)


def decode_register_body(body: bytes, compressed: bool, sender_version: int) -> RegisterBrokerBody:
    """The registration in `body`; an empty one has no topics and data version zero.

    `compressed` and `sender_version` come from the request. Raises `JavaJsonError` or `BodyError`.
    """
    if not body:
        return RegisterBrokerBody()
    if not compressed:
        return RegisterBrokerBody.decode(body)
    try:
        reader = _LengthPrefixed(decompress(body, COMPRESSED))
    except RecordError as error:
        raise BodyError(f"a compressed registration cannot be read: {error}") from None
    version = DataVersion.decode(reader.text())
    topics = {}
    for _ in range(reader.number()):
        config = _topic_line(reader.text())
        topics[config.topic_name] = config
    filters = convert(loads(reader.text()), list[str])
    if sender_version >= _MAPPING_TAIL_VERSION:
        for _ in range(reader.number()):
            loads(reader.text())
    return RegisterBrokerBody(filters, TopicConfigTable(version, topics))


class _LengthPrefixed:
    """Integers and texts with a length before them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self) -> int:
        if self._position + 4 > len(self._data):
            raise BodyError(f"a compressed registration ends at byte {self._position}, in a number")
        value: int = _INT.unpack_from(self._data, self._position)[0]
        self._position += 4
        if value < 0:
            raise BodyError(f"a compressed registration has a negative number before byte {self._position}")
        return value

    def text(self) -> bytes:
        size = self.number()
        start = self._position
        if start + size > len(self._data):
            raise BodyError(f"a compressed registration names {size} bytes of text at byte {start}")
        self._position = start + size
        return self._data[start : start + size]


def _topic_line(line: bytes) -> TopicConfig:
    """`name readQueues writeQueues perm filterType attributes`; 4.9 stops before the attributes."""
    parts = line.decode("utf-8", "replace").split(" ", 5)
    if len(parts) < 5:
        raise BodyError(f"a registered topic {parts!r} has {len(parts)} of at least 5 parts")
    attributes = loads(parts[5].encode()) if len(parts) > 5 and parts[5] else {}
    values = {
        "topicName": parts[0],
        "readQueueNums": parts[1],
        "writeQueueNums": parts[2],
        "perm": parts[3],
        "topicFilterType": parts[4],
        "attributes": attributes,
    }
    return convert(values, TopicConfig)
