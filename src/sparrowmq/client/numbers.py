"""The numbers on the messages of an idempotent producer, and what a broker's answer says of them. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from sparrowmq.client.sending import Outgoing, SendTarget, send_result
from sparrowmq.core.errors import InvalidMessageError, SequenceTooOldError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.batch import decode_batch, encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.producer_mark import HEADER_FIELD, known_from, mark_head

_encode_json = msgspec.json.Encoder().encode

STALE: Final = frozenset(
    {ResponseCode.SEQUENCE_GAP, ResponseCode.PRODUCER_UNKNOWN, ResponseCode.PRODUCER_FENCED}
)
"""Answers that mean: the broker does not know these numbers (any more); a new epoch begins at 0."""
SPOILT: Final = STALE | {ResponseCode.SEQUENCE_TOO_OLD, ResponseCode.SEQUENCE_REUSED}
"""Answers after which the numbers of this epoch cannot go on."""


class NumberedOutgoing(Outgoing):
    """A send whose messages have a producer's numbers; it asks the broker to judge them."""

    __slots__ = ()
    is_numbered = True

    @property
    def needs_command(self) -> bool:
        """The header has a field that the fast way does not write."""
        return True


def as_numbered(
    outgoing: Outgoing, *, body: bytes | None = None, properties: bytes | None = None
) -> Outgoing:
    """The same send, to be judged, with another body or property string."""
    return outgoing.changed(body=body, properties=properties, kind=NumberedOutgoing)


def count_of(outgoing: Outgoing) -> int:
    """How many messages a send has."""
    return len(decode_batch(outgoing.body)) if outgoing.is_batch else 1


def number(
    outgoing: Outgoing, producer: str, queue: MessageQueue, epoch: int, first: int, bytes_max: int
) -> Outgoing:
    """The send to `queue` with the numbers `first`, `first` + 1, …

    Raises `InvalidMessageError` when a batch becomes larger than `bytes_max`.
    """
    head = mark_head(producer, epoch, queue.topic, queue.queue_id)
    if not outgoing.is_batch:
        text = (head + b"%d\x02" % first).decode()
        return as_numbered(outgoing, properties=b'"' + _encode_json(text)[1:-1] + outgoing.properties[1:])
    body = encode_batch(
        (flag, item, b"%b%d\x02%b" % (head, sequence, own))
        for sequence, (flag, item, own) in enumerate(decode_batch(outgoing.body), first)
    )
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"a batch to {outgoing.topic!r} takes {len(body)} bytes with the numbers of an idempotent "
            f"producer, the limit is {bytes_max}; send smaller batches (`split_batch`)"
        )
    return as_numbered(outgoing, body=body)


def judged_result(answer: Command, outgoing: Outgoing, target: SendTarget) -> SendResult:
    """As `send_result`, with what the answer says of judgement. Raises `SequenceTooOldError` as well."""
    if answer.code == ResponseCode.SEQUENCE_TOO_OLD:
        remark = answer.remark or ""
        raise SequenceTooOldError(
            answer.code,
            remark,
            address=target.address,
            request=f"send to {target.queue}",
            known_from=known_from(remark) or 0,
        )
    result = send_result(answer, outgoing, target)
    if answer.ext.get(HEADER_FIELD) != "true":
        return result
    return msgspec.structs.replace(result, idempotent=True)
