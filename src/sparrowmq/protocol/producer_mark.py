"""What a message of an idempotent producer carries: who sent it, and its number in its queue.

Two properties, ours, which Apache's brokers store like any other:

    SPARROW_PRODUCER   producer id "." epoch "." binding        for example s3kQ.0.9af01c22
    SPARROW_SEQUENCE   the message's number, from 0 on in every epoch

The binding is the CRC-32 of `topic/queue id`, eight hex digits. Properties travel along when a message is
sent back, delayed or forwarded; the copy lies in another queue, where the binding is wrong and the mark means
nothing. A copy in the same queue is told from a repeated send by the request: only one with the header field
`idempotent` is judged.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import PROPERTY_PRODUCER, PROPERTY_SEQUENCE
from sparrowmq.protocol.properties import find

HEADER_FIELD: Final = "idempotent"
"""Header field of a send that is to be judged; an answer that has it was."""
PRODUCER_NAME: Final = PROPERTY_PRODUCER.encode()
SEQUENCE_NAME: Final = PROPERTY_SEQUENCE.encode()
MARK_START: Final = PRODUCER_NAME + b"\x01"
PRODUCER_ID_CHARS_MAX: Final = 64
NUMBER_MAX: Final = 2**63 - 1
"""The largest epoch and the largest sequence."""
MARK_BYTES_MAX: Final = 160
"""The most that the two properties take."""

_PRODUCER: Final = re.compile(rb"([A-Za-z0-9_-]{1,%d})\.(\d{1,19})\.([0-9a-f]{8})" % PRODUCER_ID_CHARS_MAX)
_KNOWN_FROM: Final = re.compile(r"places are known from (\d{1,19}) on")
_MIDDLE: Final = b"\x02" + SEQUENCE_NAME + b"\x01"


class Mark(NamedTuple):
    """A producer's id, its epoch, and the sequence of one message; `bound_to` as in the property."""

    producer: str
    epoch: int
    sequence: int
    bound_to: bytes


def binding(topic: str, queue_id: int) -> bytes:
    """What ties a mark to one queue."""
    return b"%08x" % zlib.crc32(f"{topic}/{queue_id}".encode())


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
    """The mark in a property string; None without one. Raises `RecordError` for one that is malformed."""
    if MARK_START not in properties:
        return None
    named = find(properties, PRODUCER_NAME)
    if named is None:
        return None
    parts, digits = _PRODUCER.fullmatch(named), find(properties, SEQUENCE_NAME)
    if parts is None or digits is None or not _is_number(digits) or not _is_number(parts[2]):
        raise RecordError(
            f"{PROPERTY_PRODUCER}={named[:100]!r} with {PROPERTY_SEQUENCE}={(digits or b'')[:30]!r} is no "
            "mark of a producer"
        )
    return Mark(parts[1].decode(), int(parts[2]), int(digits), parts[3])


def first_of_run(texts: Iterable[bytes]) -> tuple[Mark | None, int]:
    """The mark of the first of some property strings, and how many there are.

    They must be numbered one after the other: same producer and epoch, sequences without a gap. Without any
    mark the first is None. Raises `RecordError` when they are not, or only some have a mark.
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
            continue  # as our clients write it
        wanted = None if first is None else first._replace(sequence=first.sequence + count - 1)
        if find_mark(text) != wanted:
            raise RecordError(f"message {count} of a batch does not continue the numbers of the first")
    if first is not None and first.sequence + count - 1 > NUMBER_MAX:
        raise RecordError(f"sequence {first.sequence} of {count} messages is too large")
    return first, count


def too_old(sequence: int, known_from: int) -> str:
    """What is answered when a message was stored, but nobody knows where any more."""
    return (
        f"sequence {sequence} is stored, its place is no longer known; places are known from {known_from} on"
    )


def known_from(remark: str) -> int | None:
    """The sequence from which on places are known, in the remark of such an answer."""
    found = _KNOWN_FROM.search(remark)
    return None if found is None else int(found[1])


def _is_number(digits: bytes) -> bool:
    return len(digits) <= 19 and digits.isdigit() and int(digits) <= NUMBER_MAX
