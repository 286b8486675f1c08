"""The texts that clients carry for the proxy: receipt handles and transaction ids. They contain everything
that it needs.

A receipt handle is a receipt of the broker (`protocol.pop`) followed by the message's physical offset, in the
format of Apache's proxy: each proxy accepts the handles of the other. The format of transaction ids is our
own. Apache's proxy keeps the position of a half message in memory, so only that proxy can end the
transaction, and only for a while.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.errors import HeaderError, ProxyRefusal
from sparrowmq.protocol.pop.receipts import Receipt, real_topic
from sparrowmq.proxy.definition.messages import Code

_PARTS: Final = 8
_VERSION: Final = "t1"
HANDLE_CHARS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class ReceiptHandle:
    """A receipt handle: the broker's receipt, and the message's position in the log, -1 if unknown."""

    receipt: Receipt
    physical_offset: int

    @property
    def visible_ms(self) -> int:
        """When the message becomes visible again, epoch ms."""
        return self.receipt.pop_time + self.receipt.invisible_time

    def encode(self) -> str:
        """The text that clients carry."""
        return f"{self.receipt.encode()} {self.physical_offset}"

    def topic(self, topic: str, group: str) -> str:
        """The topic that stored the message: `topic` or the group's retry topic."""
        return real_topic(topic, group, self.receipt.flag)


def parse_handle(text: str, now_ms: int | None = None) -> ReceiptHandle:
    """The handle in `text`. Refuses texts that are not handles and, with `now_ms`, expired handles."""
    parts = text[: HANDLE_CHARS_MAX + 1].split(" ")
    try:
        if len(text) > HANDLE_CHARS_MAX or not _PARTS <= len(parts) <= _PARTS + 1:
            raise HeaderError("")
        physical = int(parts[_PARTS]) if len(parts) > _PARTS else -1
        found = ReceiptHandle(Receipt.parse(" ".join(parts[:_PARTS])), physical)
        found.topic("t", "g")
    except (HeaderError, ValueError):
        raise ProxyRefusal(
            Code.INVALID_RECEIPT_HANDLE, f"{text[:80]!r} is not a receipt handle; send it unchanged"
        ) from None
    if now_ms is not None and found.visible_ms <= now_ms:
        raise ProxyRefusal(
            Code.INVALID_RECEIPT_HANDLE,
            f"the receipt handle expired {now_ms - found.visible_ms} ms ago; the message is delivered again",
        )
    return found


@dataclass(frozen=True, slots=True)
class HalfPlace:
    """The position of a half message and its unique key, which are needed to end its transaction."""

    broker_name: str
    queue_offset: int
    physical_offset: int
    unique_key: str

    def encode(self) -> str:
        """The transaction id."""
        text = f"{_VERSION} {self.broker_name} {self.queue_offset} {self.physical_offset} {self.unique_key}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def parse_transaction_id(text: str) -> HalfPlace:
    """The half message that a transaction id names. Refuses other texts."""
    try:
        if len(text) > HANDLE_CHARS_MAX:
            raise ValueError
        words = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        version, broker_name, queue_offset, physical_offset, unique_key = words
        if version != _VERSION:
            raise ValueError
        return HalfPlace(broker_name, int(queue_offset), int(physical_offset), unique_key)
    except (ValueError, binascii.Error):
        raise ProxyRefusal(
            Code.INVALID_TRANSACTION_ID,
            f"{text[:80]!r} is not a transaction id of this proxy; use the one that the send returned",
        ) from None
