"""The answer to a POP request as messages with receipts (client side of broker:13). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparrowmq.core.errors import HeaderError
from sparrowmq.core.message import PROPERTY_POP_CK, ReceivedMessage
from sparrowmq.protocol import headers
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.pop.headers import PopMessageResponse
from sparrowmq.protocol.pop.receipts import (
    FIRST_POP_TIME,
    Receipt,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    retry_flag,
)
from sparrowmq.protocol.record import decode_records, to_message
from sparrowmq.proxy.base.handles import ReceiptHandle


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was handed out, and its receipt handle."""

    message: ReceivedMessage
    handle: ReceiptHandle


def decode_pop(answer: Command, broker_name: str, *, ordered: bool) -> list[Received]:
    """The messages of a successful answer, with the bodies as stored. Raises `HeaderError` or `RecordError`.

    The broker says for each queue where the check point begins and which offsets it handed out; a message of
    a retry topic that it renamed contains its own receipt.
    """
    header = headers.from_ext(PopMessageResponse, answer.ext)
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_message_offsets(header.msg_offset_info)
    counts = parse_order_counts(header.order_count_info) if ordered else {}
    found: list[Received] = []
    at: dict[tuple[str, int], int] = {}
    for record in decode_records(answer.body):
        message = to_message(record, broker_name, decompress=False)
        text = message.properties.get(PROPERTY_POP_CK)
        if text:
            receipt = Receipt.parse(text)
        else:
            key = (retry_flag(message.topic), message.queue.queue_id)
            receipt = _receipt(header, broker_name, key, message, starts, offsets, at)
            tries = counts.get(
                (key[0], f"qo{key[1]}%{message.queue_offset}"), counts.get((key[0], str(key[1])), 0)
            )
            if tries > 0:
                message = replace(message, reconsume_times=tries)
        handle = ReceiptHandle(receipt, message.physical_offset)
        message.properties[PROPERTY_POP_CK] = handle.encode()
        message.properties.setdefault(FIRST_POP_TIME, str(header.pop_time))
        found.append(Received(message, handle))
    return found


def _receipt(
    header: PopMessageResponse,
    broker_name: str,
    key: tuple[str, int],
    message: ReceivedMessage,
    starts: dict[tuple[str, int], int],
    offsets: dict[tuple[str, int], list[int]],
    at: dict[tuple[str, int], int],
) -> Receipt:
    """The receipt of the next message of a queue; brokers before 5.1 leave out both texts."""
    if not starts:
        start, offset = at.setdefault(key, message.queue_offset), message.queue_offset
    else:
        position = at.get(key, 0)
        at[key] = position + 1
        listed = offsets.get(key, [])
        if key not in starts or position >= len(listed):
            raise HeaderError(
                f"the broker {broker_name} handed out a message of queue {key[1]} (kind {key[0]}) without "
                "a receipt"
            )
        start, offset = starts[key], listed[position]
    return Receipt(
        start, header.pop_time, header.invisible_time, header.revive_qid, key[0], broker_name, key[1], offset
    )
