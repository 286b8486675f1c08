"""Finds the messages of one idempotent producer among stored records and in batch bodies.

When the Spark sink writes rows again, it compares the messages that it would send (`sent_messages`) with
those in a queue (`stored_messages`, `family_ids`).

A *mark* is the two properties with producer id, epoch and sequence number (`protocol.producer_mark`); a
*family* is the part of a producer id before its last `-`. Only marks at the start of the properties are
found, because `columnar.encode` and all our producers put them there. So records need not be decoded: only a
prefix is compared.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sparrowmq.columnar.layout import layout
from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import PROPERTY_UNIQ_KEY
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.producer_mark import MARK_START, family_of, find_mark, mark_head
from sparrowmq.protocol.properties import find

_UNIQUE_ID: Final = PROPERTY_UNIQ_KEY.encode()


class Numbered(NamedTuple):
    """One message of a producer: its sequence number, its body, and its encoded properties."""

    sequence: int
    body: bytes
    properties: bytes

    def is_same(self, sent: Numbered) -> bool:
        """Whether this stored message is the `sent` one; brokers may append properties."""
        return self.body == sent.body and self.properties.startswith(sent.properties)


def stored_messages(buffer: bytes, producer: str, epoch: int, topic: str, queue_id: int) -> list[Numbered]:
    """The messages of one epoch of a producer among the records of `buffer`, in order.

    Raises `RecordError` on bytes that are not records, ValueError for an invalid producer id.
    """
    head = mark_head(producer, epoch, topic, queue_id)
    found: list[Numbered] = []
    places = layout(buffer)
    for body, body_end, at, end in zip(
        places.body.tolist(),
        places.body_end.tolist(),
        places.properties.tolist(),
        places.properties_end.tolist(),
        strict=True,
    ):
        if buffer.startswith(head, at, end):
            properties = buffer[at:end]
            found.append(Numbered(_sequence(properties, len(head)), buffer[body:body_end], properties))
    return found


def family_ids(buffer: bytes, family: str, epochs: range) -> list[bytes]:
    """The unique ids of a family's messages in `epochs` among the records of `buffer`, in order.

    An id is empty if the message has none. Raises `RecordError` on bytes that are not records.
    """
    head, found = MARK_START + family.encode() + b"-", []
    places = layout(buffer)
    for at, end in zip(places.properties.tolist(), places.properties_end.tolist(), strict=True):
        if buffer.startswith(head, at, end):
            properties = buffer[at:end]
            mark = find_mark(properties)
            if mark is not None and mark.epoch in epochs and family_of(mark.producer) == family:
                found.append(find(properties, _UNIQUE_ID) or b"")
    return found


def sent_messages(body: bytes, producer: str, epoch: int, topic: str, queue_id: int) -> list[Numbered]:
    """The messages of a batch body. Raises `RecordError` when one of them has another mark."""
    head = mark_head(producer, epoch, topic, queue_id)
    found: list[Numbered] = []
    for _, text, properties in decode_batch(body):
        if not properties.startswith(head):
            raise RecordError(f"a message of the batch has no mark of producer {producer}, epoch {epoch}")
        found.append(Numbered(_sequence(properties, len(head)), text, properties))
    return found


def _sequence(properties: bytes, at: int) -> int:
    """The sequence number that starts at `at`, after the head of the mark."""
    end = properties.find(b"\x02", at)
    try:
        return int(properties[at : end if end >= 0 else None])
    except ValueError:
        raise RecordError(f"{properties[:120]!r} is not a producer's mark") from None
