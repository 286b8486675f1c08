"""Properties that send hooks add to already encoded messages (client:B-47). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparrowmq.client.send.encoding import Outgoing, escaped
from sparrowmq.client.send.message_checks import check_user_property
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX, Message
from sparrowmq.protocol.batch import BatchItem, decode_batch, encode_batch


def with_properties(outgoing: Outgoing, added: Mapping[str, str], bytes_max: int) -> Outgoing:
    """A copy of the send with additional properties in its message, or in every message of its batch.

    They replace the user's properties of the same name. A batch that would exceed `bytes_max` bytes is sent
    unchanged, and so is a member whose properties would be too long. Raises `InvalidMessageError` for invalid
    properties.
    """
    text = _text(added)
    if not outgoing.is_batch:
        return outgoing.changed(properties=_in_header(outgoing, added, text))
    body = encode_batch(_members(outgoing, added, text.encode()))
    return outgoing if len(body) > bytes_max else outgoing.changed(body=body)


def _text(added: Mapping[str, str]) -> str:
    parts = []
    for name, value in added.items():
        check_user_property(name, value)
        parts.append(f"{name}\x01{value}\x02")
    text = "".join(parts)
    if text.count("\x01") != len(parts) or text.count("\x02") != len(parts):
        raise InvalidMessageError(f"a hook added properties with the characters 0x01 or 0x02: {added!r}")
    return text


def _in_header(outgoing: Outgoing, added: Mapping[str, str], text: str) -> bytes:
    """The property string as JSON; the user's properties follow the id."""
    kept, topic = outgoing.properties, outgoing.topic
    own = outgoing.source.properties if isinstance(outgoing.source, Message) else {}
    for name in added.keys() & own.keys():
        entry = escaped(f"\x02{name}\x01{own[name]}\x02", topic)[1:-1]
        kept = kept.replace(entry, escaped("\x02", topic)[1:-1], 1)
    return kept[:-1] + escaped(text, topic)[1:]


def _members(outgoing: Outgoing, added: Mapping[str, str], text: bytes) -> list[BatchItem]:
    """The batch's members with the properties. Members that came encoded have no user properties
    to replace.
    """
    items = decode_batch(outgoing.body)
    sources: Sequence[Message | None] = outgoing.messages or [None] * len(items)
    found = []
    for (flag, body, properties), source in zip(items, sources, strict=True):
        kept = properties if properties.endswith(b"\x02") or not properties else properties + b"\x02"
        own = {} if source is None else source.properties
        for name in added.keys() & own.keys():
            kept = kept.replace(f"\x02{name}\x01{own[name]}\x02".encode(), b"\x02", 1)
        longer = kept + text
        found.append((flag, body, longer if len(longer) <= PROPERTIES_BYTES_MAX else properties))
    return found
