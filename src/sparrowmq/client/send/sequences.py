"""The sequence numbers of an idempotent producer: adding them to sends, reading the responses. Pure.

`IdempotentSender` decides which epoch and numbers a send gets, and calls `number`. `Attempts` sends it
and reads the response with `judged_result`. docs/protocol.md describes both properties ("idempotent").
"""

from __future__ import annotations

from typing import Final

import msgspec

from sparrowmq.client.send.encoding import Outgoing, SendTarget, send_result
from sparrowmq.core.errors import InvalidMessageError, ProducerFencedError, SequenceTooOldError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import SendResult
from sparrowmq.protocol.batch import decode_batch, encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.producer_mark import HEADER_FIELD, begins_at, fenced_at, known_from, mark_head

_encode_json = msgspec.json.Encoder().encode

STALE: Final = frozenset(
    {ResponseCode.SEQUENCE_GAP, ResponseCode.PRODUCER_UNKNOWN, ResponseCode.PRODUCER_FENCED}
)
"""Response codes of a broker that does not know, or no longer knows, these numbers. Send again in a new epoch
from 0.
"""
SPOILT: Final = STALE | {ResponseCode.SEQUENCE_TOO_OLD, ResponseCode.SEQUENCE_REUSED}
"""Response codes after which this epoch cannot continue: the next send starts a new epoch."""


class NumberedOutgoing(Outgoing):
    """A send whose messages have sequence numbers; its header asks the broker to check them."""

    __slots__ = ()
    is_numbered = True

    @property
    def needs_command(self) -> bool:
        """Always True: `SendTarget.request` does not write the header field `idempotent`."""
        return True


def as_numbered(
    outgoing: Outgoing, *, body: bytes | None = None, properties: bytes | None = None
) -> Outgoing:
    """The same send with sequence numbers; `body` and `properties` replace its own if given."""
    return outgoing.changed(body=body, properties=properties, kind=NumberedOutgoing)


def count_of(outgoing: Outgoing) -> int:
    """The number of messages in a send."""
    return len(decode_batch(outgoing.body)) if outgoing.is_batch else 1


def number(
    outgoing: Outgoing, producer: str, queue: MessageQueue, epoch: int, first: int, bytes_max: int
) -> Outgoing:
    """The send to `queue` with the numbers `first`, `first` + 1, … in the properties of its messages.

    The mark is the first property, where brokers and readers expect it. Raises `InvalidMessageError` when a
    batch becomes larger than `bytes_max`.
    """
    head = mark_head(producer, epoch, queue.topic, queue.queue_id)
    if not outgoing.is_batch:
        text = (head + b"%d\x02" % first).decode()
        # `Outgoing.properties` is a JSON string with its quotes: the mark follows the first quote.
        return as_numbered(outgoing, properties=b'"' + _encode_json(text)[1:-1] + outgoing.properties[1:])
    body = encode_batch(
        (flag, item, b"%b%d\x02%b" % (head, sequence, own))
        for sequence, (flag, item, own) in enumerate(decode_batch(outgoing.body), first)
    )
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"a batch to {outgoing.topic!r} takes {len(body)} bytes with the numbers of an idempotent "
            f"producer, the limit is {bytes_max}; send smaller batches (`split_batch`)",
            part="batch",
            limit=bytes_max,
        )
    return as_numbered(outgoing, body=body)


def judged_result(answer: Command, outgoing: Outgoing, target: SendTarget) -> SendResult:
    """Like `send_result`, for a send with numbers; the result's `idempotent` says whether the broker checked
    them.

    Also raises `SequenceTooOldError` and `ProducerFencedError`. A broker that does not know numbers stores
    the send like any other and responds without the field.
    """
    if answer.code == ResponseCode.SEQUENCE_TOO_OLD:
        remark = answer.remark or ""
        raise SequenceTooOldError(
            answer.code,
            remark,
            address=target.address,
            request=f"send to {target.queue}",
            known_from=known_from(remark) or 0,
            begins_at=begins_at(remark),
        )
    if answer.code == ResponseCode.PRODUCER_FENCED:
        remark = answer.remark or ""
        raise ProducerFencedError(
            answer.code,
            remark,
            address=target.address,
            request=f"send to {target.queue}",
            current=fenced_at(remark),
        )
    result = send_result(answer, outgoing, target)
    if answer.ext.get(HEADER_FIELD) != "true":
        return result
    return msgspec.structs.replace(result, idempotent=True)
