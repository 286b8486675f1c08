"""The body of a broker's registration, plain or compressed (remoting:4.5)."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final

import msgspec
from msgspec import field

from sparrowmq.core.errors import BodyError, RecordError
from sparrowmq.protocol.bodies.base import LENIENT_BYTES_MAX, Body, convert, read_request
from sparrowmq.protocol.bodies.tables import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.java_json import dumps, loads, quote_bare_keys
from sparrowmq.protocol.sysflag import COMPRESSED

_MAPPING_TAIL_VERSION: Final = 413
"""Senders of this version and later end a compressed registration with queue mappings (remoting:1.5)."""

MEMBERS_MAX: Final = 1_000_000
"""Maximum commas in a registration; one of 100,000 topics has fewer. Reading more would block the
interpreter.
"""
PIECE_BYTES: Final = 32 * 1024
"""Keys are quoted in pieces of this many bytes; an object longer than twice that is not a topic."""
DIALECT_MAX: Final = 256 * 1024
"""The longest registration in bytes that may use more of Java's dialect than bare keys."""
_NULL: Final = b"null"

_INT = struct.Struct(">i")


class RegisterBrokerBody(Body, frozen=True):
    """A broker's registration at the name server (103, remoting:4.5)."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)

    def encode(self) -> bytes:
        """Compact JSON, in one C call: see `TopicConfigTable.encode`."""
        return dumps(self)


class _RawTable(msgspec.Struct, rename="camel"):
    data_version: msgspec.Raw = msgspec.Raw(b"null")
    topic_config_table: dict[str, msgspec.Raw] | None = None


class _RawBody(msgspec.Struct, rename="camel"):
    filter_server_list: list[str | None] | None = None
    topic_config_serialize_wrapper: _RawTable | None = None


_read_whole: Final = msgspec.json.Decoder(_RawBody, strict=False).decode
_read_topic: Final = msgspec.json.Decoder(TopicConfig, strict=False).decode


class PackedRegistration:
    """A registration whose topics are not decoded yet, because a broker may have 100,000."""

    __slots__ = ("_inflated", "_raw")

    def __init__(self, raw: _RawBody, inflated: bytes | None = None) -> None:
        self._raw = raw
        self._inflated = inflated

    def __repr__(self) -> str:
        return f"<PackedRegistration {'plain' if self._inflated is None else 'inflated'}>"

    @classmethod
    def opened(cls, body: bytes, *, compressed: bool) -> PackedRegistration:
        """Inspect the body; use a thread for a large or compressed one.

        Raises `JavaJsonError` or `BodyError`.
        """
        if not body or not compressed:
            return cls(_whole(body) if body else _RawBody())
        try:
            return cls(_RawBody(), decompress(body, COMPRESSED))
        except RecordError as error:
            raise BodyError(f"a compressed registration cannot be read: {error}") from None

    def reading(self, sender_version: int) -> Generator[None, None, RegisterBrokerBody]:
        """The registration, one topic per step. Raises `JavaJsonError` or `BodyError`."""
        if self._inflated is not None:
            return (yield from _inflated_steps(_LengthPrefixed(self._inflated), sender_version))
        raw = self._raw
        table = raw.topic_config_serialize_wrapper or _RawTable()
        topics = {}
        for name, data in (table.topic_config_table or {}).items():
            yield
            try:
                topics[name] = _read_topic(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                if bytes(data) != _NULL:
                    topics[name] = read_request(bytes(data), TopicConfig, bytes_max=LENIENT_BYTES_MAX)
        version = bytes(table.data_version)
        return RegisterBrokerBody(
            [name for name in raw.filter_server_list or () if name is not None],
            TopicConfigTable(
                DataVersion() if version == _NULL else DataVersion.decode_request(version), topics
            ),
        )


def _whole(body: bytes) -> _RawBody:
    """A plain body with undecoded topics.

    Brokers of 5.x with static topics write bare integer keys. Other parts of the dialect are read up to a
    limited size.
    """
    if body.count(b",") > MEMBERS_MAX:
        raise BodyError(f"a registration has more than {MEMBERS_MAX} members; register fewer topics")
    try:
        return _read_whole(body)
    except msgspec.ValidationError as error:
        raise BodyError(f"a body cannot be read as {RegisterBrokerBody.__name__}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        small = len(body) <= DIALECT_MAX
        return _read_whole(dumps(loads(body)) if small else b"".join(_quoted(body)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError(f"a body cannot be read as {RegisterBrokerBody.__name__}: {error}") from None


def _quoted(body: bytes) -> Generator[bytes, None, None]:
    """The pieces of a body with bare keys quoted; a single step would block the interpreter for a second.

    A piece ends after an object that another member follows. Raises `BodyError` if there is none within the
    limit.
    """
    at = 0
    while len(body) - at > 2 * PIECE_BYTES:
        end = body.find(b'},"', at + PIECE_BYTES, at + 2 * PIECE_BYTES) + 1
        if not end:
            raise BodyError(
                f"a registration of {len(body)} bytes is not plain JSON, and has an object longer than "
                f"{PIECE_BYTES} bytes at byte {at}; send plain JSON, with quoted keys"
            )
        yield quote_bare_keys(body[at:end])
        at = end
    yield quote_bare_keys(body[at:])


def decode_register_body(body: bytes, compressed: bool, sender_version: int) -> RegisterBrokerBody:
    """The registration in `body`; an empty one has no topics and data version zero.

    `compressed` and `sender_version` come from the request. Raises `JavaJsonError` or `BodyError`.
    """
    steps = PackedRegistration.opened(body, compressed=compressed).reading(sender_version)
    try:
        while True:  # ends with the topics
            next(steps)
    except StopIteration as end:
        found: RegisterBrokerBody = end.value
        return found


def _inflated_steps(
    reader: _LengthPrefixed, sender_version: int
) -> Generator[None, None, RegisterBrokerBody]:
    version = DataVersion.decode_request(reader.text())
    topics = {}
    for _ in range(reader.number()):
        config = _topic_line(reader.text())
        topics[config.topic_name] = config
        yield
    filters = read_request(reader.text(), list[str])
    if sender_version >= _MAPPING_TAIL_VERSION:
        for _ in range(reader.number()):
            reader.text()  # a queue mapping, which is not used here
            yield
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
    attributes = {}
    if len(parts) > 5 and parts[5]:
        attributes = read_request(parts[5].encode(), dict[str, str], bytes_max=LENIENT_BYTES_MAX)
    values = {
        "topicName": parts[0],
        "readQueueNums": parts[1],
        "writeQueueNums": parts[2],
        "perm": parts[3],
        "topicFilterType": parts[4],
        "attributes": attributes,
    }
    return convert(values, TopicConfig)
