"""The mark on a message of an idempotent producer: its producer, and its number in the queue.

Two SparrowMQ properties, which Apache's brokers store like any others:

    SPARROW_PRODUCER   producer id "." epoch "." binding        for example s3kQ.0.9af01c22
    SPARROW_SEQUENCE   the message's number, from 0 on in every epoch

The binding is the CRC-32 of `topic/queue id`, eight hex digits. Properties are kept when a message is sent
back, delayed or forwarded. The copy is in another queue, where the binding is wrong and the mark is ignored.
In the same queue, the request distinguishes a copy from a repeated send: only requests with the header field
`idempotent` are checked.

The end of a family of producers, and the deletion of their topic, are messages of the system topic
`PRODUCER_ENDS_TOPIC`, of which only the properties count:

    SPARROW_PRODUCER     family "." epoch "." binding of the system topic's queue
    SPARROW_ENDED_TOPIC  the topic in which the family's epochs before `epoch` have ended
    SPARROW_END_NOTE     the note of the owner, as JSON text

Epoch 0, with the family `-`, records that the topic was deleted: nobody's numbers count any more. So the log
alone tells which producers there are, on a slave and after a loss of `producer-state.json`, too. Readers of a
log find both kinds by `MARK_START`; an end has no sequence, so it is no mark.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import (
    PROPERTY_END_NOTE,
    PROPERTY_ENDED_TOPIC,
    PROPERTY_PRODUCER,
    PROPERTY_SEQUENCE,
)
from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.protocol.properties import encode, find

HEADER_FIELD: Final = "idempotent"
"""Header field of a send to be checked for repeats; a response with it was checked."""
PRODUCER_NAME: Final = PROPERTY_PRODUCER.encode()
SEQUENCE_NAME: Final = PROPERTY_SEQUENCE.encode()
MARK_START: Final = PRODUCER_NAME + b"\x01"
PRODUCER_ID_CHARS_MAX: Final = 64
NUMBER_MAX: Final = 2**63 - 1
"""The largest epoch and the largest sequence."""
MARK_BYTES_MAX: Final = 160
"""Maximum size of the two properties."""

_PRODUCER: Final = re.compile(rb"([A-Za-z0-9_-]{1,%d})\.(\d{1,19})\.([0-9a-f]{8})" % PRODUCER_ID_CHARS_MAX)
_KNOWN_FROM: Final = re.compile(r"places are known from (\d{1,19}) on")
_BEGINS_AT: Final = re.compile(r"its epoch begins at queue offset (\d{1,19})")
_QUEUE_IS_AT: Final = re.compile(r"the queue is at (\d{1,19})")
_NO_FAMILY: Final = "-"
_ENDED: Final = re.compile(rb"([A-Za-z0-9_-]{1,60})\.(\d{1,19})\.[0-9a-f]{8}")
_ENDED_TOPIC: Final = PROPERTY_ENDED_TOPIC.encode()
_END_NOTE: Final = PROPERTY_END_NOTE.encode()
_MIDDLE: Final = b"\x02" + SEQUENCE_NAME + b"\x01"


class Mark(NamedTuple):
    """A producer's id, its epoch, and the sequence of one message; `bound_to` as in the property."""

    producer: str
    epoch: int
    sequence: int
    bound_to: bytes


def binding(topic: str, queue_id: int) -> bytes:
    """The binding of a mark to one queue."""
    return b"%08x" % zlib.crc32(f"{topic}/{queue_id}".encode())


def family_of(producer: str) -> str:
    """The common prefix of one owner's producers: their ids up to the last `-`; empty without one."""
    return producer.rpartition("-")[0]


def mark_head(producer: str, epoch: int, topic: str, queue_id: int) -> bytes:
    """The property string of a mark up to the sequence's digits; 0x02 ends it.

    Raises ValueError for an id that is not 1 to 64 letters, digits, `_` and `-`.
    """
    named = b"%b.%d.%b" % (producer.encode(), epoch, binding(topic, queue_id))
    if _PRODUCER.fullmatch(named) is None or epoch > NUMBER_MAX:
        raise ValueError(
            f"producer id {producer!r}, epoch {epoch}: an id takes 1 to {PRODUCER_ID_CHARS_MAX} letters, "
            f"digits, '_' and '-', an epoch 0 to {NUMBER_MAX}"
        )
    return MARK_START + named + _MIDDLE


def find_mark(properties: bytes) -> Mark | None:
    """The mark in a property string; None without one. Raises `RecordError` for a malformed one."""
    if MARK_START not in properties:
        return None
    named = find(properties, PRODUCER_NAME)
    if named is None:
        return None
    parts, digits = _PRODUCER.fullmatch(named), find(properties, SEQUENCE_NAME)
    if parts is None or digits is None or not _is_number(digits) or not _is_number(parts[2]):
        raise RecordError(
            f"{PROPERTY_PRODUCER}={named[:100]!r} with {PROPERTY_SEQUENCE}={(digits or b'')[:30]!r} is not "
            f"a producer's mark",
            what="mark",
            value=named,
        )
    return Mark(parts[1].decode(), int(parts[2]), int(digits), parts[3])


def first_of_run(texts: Iterable[bytes]) -> tuple[Mark | None, int]:
    """The mark of the first of some property strings, and how many there are.

    They must be numbered consecutively: same producer and epoch, sequences without gaps. Without any mark the
    first is None. Raises `RecordError` when they are not consecutive, or only some have a mark.
    """
    first: Mark | None = None
    head, count = b"", 0
    for count, text in enumerate(texts, 1):
        if count == 1:
            first = find_mark(text)
            if first is not None:
                head = MARK_START + b"%b.%d.%b" % (first.producer.encode(), first.epoch, first.bound_to)
                head += _MIDDLE
            continue
        if first is not None and text.startswith(b"%b%d\x02" % (head, first.sequence + count - 1)):
            continue  # as SparrowMQ's clients write it
        wanted = None if first is None else first._replace(sequence=first.sequence + count - 1)
        if find_mark(text) != wanted:
            told = f"message {count} of a batch does not continue the numbers of the first"
            raise RecordError(told, what="message", value=count)
    if first is not None and first.sequence + count - 1 > NUMBER_MAX:
        told = f"sequence {first.sequence} of {count} messages is too large"
        raise RecordError(told, what="sequence", value=first.sequence, limit=NUMBER_MAX)
    return first, count


def too_old(sequence: int, known_from: int, begins_at: int | None) -> str:
    """The response when a message was stored, but its offset is no longer known.

    `begins_at` is the queue offset of the epoch's first message, None when that is unknown, too.
    """
    begin = "" if begins_at is None else f"its epoch begins at queue offset {begins_at}, "
    return (
        f"sequence {sequence} is stored, its place is no longer known; {begin}places are known from "
        f"{known_from} on"
    )


def known_from(remark: str) -> int | None:
    """The first sequence whose offset is known, from the remark of such a response."""
    return _number_in(_KNOWN_FROM, remark)


def begins_at(remark: str) -> int | None:
    """The queue offset at which the epoch begins, from the remark of such a response."""
    return _number_in(_BEGINS_AT, remark)


def fenced(epoch: int, current: int) -> str:
    """The response to a mark of an epoch before the queue's current one."""
    return f"epoch {epoch} is over, the queue is at {current}"


def fenced_at(remark: str) -> int | None:
    """The queue's epoch, from the remark of such a response."""
    return _number_in(_QUEUE_IS_AT, remark)


def _number_in(pattern: re.Pattern[str], remark: str) -> int | None:
    found = pattern.search(remark)
    return None if found is None else int(found[1])


def _is_number(digits: bytes) -> bool:
    return len(digits) <= 19 and digits.isdigit() and int(digits) <= NUMBER_MAX


class ProducerEnd(NamedTuple):
    """The epochs of `family` before `epoch` have ended in `topic`; with epoch 0 the topic was deleted."""

    topic: str
    family: str = _NO_FAMILY
    epoch: int = 0
    note: str = ""


def end_properties(end: ProducerEnd) -> bytes:
    """The properties of the record."""
    bound = binding(PRODUCER_ENDS_TOPIC, 0).decode()
    return encode(
        {
            PROPERTY_PRODUCER: f"{end.family}.{end.epoch}.{bound}",
            PROPERTY_ENDED_TOPIC: end.topic,
            PROPERTY_END_NOTE: json.dumps(end.note),
        }
    )


def find_end(properties: bytes) -> ProducerEnd:
    """The inverse. Raises `RecordError` for the properties of another message."""
    named, topic = find(properties, PRODUCER_NAME), find(properties, _ENDED_TOPIC)
    parts = None if named is None else _ENDED.fullmatch(named)
    try:
        note = json.loads(find(properties, _END_NOTE) or b"")
    except ValueError:
        note = None
    if parts is None or not topic or not isinstance(note, str) or int(parts[2]) > NUMBER_MAX:
        text = f"{properties[:120]!r} is not the end of idempotent producers"
        raise RecordError(text, what="end")
    return ProducerEnd(topic.decode("utf-8", "replace"), parts[1].decode(), int(parts[2]), note)
