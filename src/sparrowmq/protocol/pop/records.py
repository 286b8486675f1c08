"""Check points and acknowledgements: bodies of messages and of requests (broker:13.4, 13.5)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET, UnsetType, field
from msgspec.structs import replace

from sparrowmq.core.errors import BodyError
from sparrowmq.core.message import POP_MAX
from sparrowmq.protocol.bodies.base import Body, Int32, convert, read_request
from sparrowmq.protocol.bodies.clients import PULL_MODE
from sparrowmq.protocol.java_json import loads
from sparrowmq.protocol.pop.receipts import real_topic

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
_LONG_NAMES: Final = {
    "ackOffset": "ao",
    "startOffset": "so",
    "consumerGroup": "c",
    "topic": "t",
    "queueId": "q",
    "popTime": "pt",
    "brokerName": "bn",
    "ackOffsetList": "aol",
    "retry": "r",
    "reviveQueueId": "rq",
    "invisibleTime": "it",
    "bitSet": "b",
}
BITS_MAX: Final = 4096
"""Bits read of a batch's bit set: its check point has at most `POP_MAX` messages, between others perhaps."""


# Bodies of the revive topic


class CheckPoint(msgspec.Struct, gc=False, kw_only=True):
    """One hand-out of messages of a queue to a group: those at `start_offset` plus each of `differences`.

    The members are in the order in which RocketMQ writes them. `revive_offset` is the check point's own place
    in its revive queue, for whoever reads it; `rewritten` counts how often reviving failed. `birth` is that
    of its topic, our own member, which RocketMQ ignores.
    """

    bits: int = field(default=0, name="bm")
    broker_name: str = field(default="", name="bn")
    group: str = field(name="c")
    differences: list[int] = field(default_factory=list, name="d")
    invisible_time: int = field(name="it")
    count: int = field(name="n")
    pop_time: int = field(name="pt")
    queue_id: int = field(name="q")
    revive_offset: int = field(default=0, name="ro")
    rewritten: str | UnsetType = field(default=UNSET, name="rp")
    start_offset: int = field(name="so")
    topic: str = field(name="t")
    birth: int | UnsetType = UNSET

    @property
    def revive_time(self) -> int:
        """When its messages become visible again, epoch ms."""
        return self.pop_time + self.invisible_time

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of its messages; old check points have no differences."""
        if self.differences:
            return [self.start_offset + one for one in self.differences]
        return list(range(self.start_offset, self.start_offset + min(self.count, POP_MAX)))

    def acknowledge(self, offsets: Iterable[int]) -> None:
        """Set the bits of these messages; others than its own are ignored."""
        own = self.offsets
        for offset in offsets:
            if offset in own:
                self.bits |= 1 << own.index(offset)

    @property
    def missing(self) -> list[int]:
        """The queue offsets of its messages that are not acknowledged."""
        own = self.offsets[: max(0, min(self.count, POP_MAX))]
        return [offset for i, offset in enumerate(own) if not self.bits >> i & 1]

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """What an acknowledgement names it by."""
        return (self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name)

    @property
    def unique_key(self) -> str:
        """The unique key of the message that stores it."""
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.pop_time}@"
            f"{self.broker_name}@{CHECK_POINT_TAG}"
        )

    def encode(self) -> bytes:
        """Encode it as the body of its message."""
        return _encode(self)


class Ack(msgspec.Struct, gc=False, kw_only=True):
    """The acknowledgement of one message, or with `ack_offsets` of several of one check point."""

    ack_offset: int = field(default=-1, name="ao")
    ack_offsets: list[int] | UnsetType = field(default=UNSET, name="aol")
    broker_name: str = field(default="", name="bn")
    group: str = field(name="c")
    pop_time: int = field(name="pt")
    queue_id: int = field(name="q")
    start_offset: int = field(name="so")
    topic: str = field(name="t")

    @property
    def is_batch(self) -> bool:
        """Whether it is for several messages."""
        return isinstance(self.ack_offsets, list)

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        return self.ack_offsets if isinstance(self.ack_offsets, list) else [self.ack_offset]

    @property
    def tag(self) -> str:
        """The tag of the message that stores it."""
        return BATCH_ACK_TAG if self.is_batch else ACK_TAG

    @property
    def key(self) -> tuple[str, str, int, int, int, str]:
        """The key of its check point."""
        return (self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name)

    @property
    def unique_key(self) -> str:
        """The unique key of the message that stores it; RocketMQ uses this form for batches, too."""
        return (
            f"{self.topic}@{self.queue_id}@{self.ack_offset}@{self.group}@{self.pop_time}@"
            f"{self.broker_name}@{ACK_TAG}"
        )

    def encode(self) -> bytes:
        """Encode it as the body of its message."""
        return _encode(self)


_encode = msgspec.json.Encoder().encode
_check_point = msgspec.json.Decoder(CheckPoint, strict=False).decode
_ack = msgspec.json.Decoder(Ack, strict=False).decode


def read_check_point(body: bytes, revive_offset: int) -> CheckPoint:
    """The check point in the body of the message at `revive_offset` of its queue, without acknowledgements.

    Raises `BodyError` or `JavaJsonError`.
    """
    try:
        point = _check_point(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        point = convert(loads(body), CheckPoint)
    return replace(point, revive_offset=revive_offset, bits=0)


def read_ack(body: bytes, broker_name: str) -> Ack:
    """The acknowledgement in a message's body, with short or long names; old ones name no broker, so it is
    this one's. Raises `BodyError` or `JavaJsonError`.
    """
    try:
        ack = _ack(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        ack = convert(_short(loads(body)), Ack)
    return ack if ack.broker_name else replace(ack, broker_name=broker_name)


def _short(value: Any) -> Any:
    if not isinstance(value, dict):
        raise BodyError(f"an object was expected, not {type(value).__name__}")
    return {_LONG_NAMES.get(name, name): one for name, one in value.items()}


# Bodies of requests


def bits_of(offsets: Iterable[int], start: int) -> str:
    """A batch's bit set as text: bit i is the message at `start` + i."""
    number = 0
    for offset in offsets:
        number |= 1 << offset - start
    return base64.b64encode(number.to_bytes((number.bit_length() + 7) // 8, "little")).decode()


class BatchAck(msgspec.Struct, gc=False, kw_only=True):
    """Acknowledgements of one check point in the body of BATCH_ACK_MESSAGE. `topic` is the normal topic, and
    `flag` says which one stored the messages."""

    bits: str = field(name="b")
    group: str = field(name="c")
    invisible_time: int = field(name="it")
    pop_time: int = field(name="pt")
    queue_id: int = field(name="q")
    flag: str = field(name="r")
    revive_queue: int = field(name="rq")
    start_offset: int = field(name="so")
    topic: str = field(name="t")

    @property
    def offsets(self) -> list[int]:
        """The offsets of the messages. Raises `BodyError` for a text that is not base64, or that has more
        messages than a check point.
        """
        try:
            data = base64.b64decode(self.bits, validate=True)
        except (binascii.Error, ValueError):
            raise BodyError(f"the bit set {self.bits[:40]!r} is not base64") from None
        number = int.from_bytes(data[: BITS_MAX // 8], "little")
        if number.bit_count() > POP_MAX:
            raise BodyError(
                f"the bit set has {number.bit_count()} messages, and a check point at most {POP_MAX}"
            )
        found = []
        while number:
            low = number & -number
            found.append(self.start_offset + low.bit_length() - 1)
            number ^= low
        return found

    @property
    def real_topic(self) -> str:
        """The topic that stored the messages. Raises `HeaderError` for an unknown flag."""
        return real_topic(self.topic, self.group, self.flag)


class BatchAckBody(msgspec.Struct, frozen=True):
    """The body of BATCH_ACK_MESSAGE (200151)."""

    acks: list[BatchAck]
    broker_name: str

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """The body in `data`, with short or long names. Raises `BodyError` or `JavaJsonError`."""
        value = read_request(data, dict[str, Any])
        acks = value.get("acks")
        listed = list(map(_short, acks)) if isinstance(acks, list) else []
        return cls(convert(listed, list[BatchAck]), str(value.get("brokerName") or ""))

    def encode(self) -> bytes:
        """As a request's body."""
        return _encode({"acks": self.acks, "brokerName": self.broker_name})


class RequestMode(Body, frozen=True, kw_only=True):
    """How the members of a group read a topic when brokers assign its queues (401, messageRequestMode.json).

    `pop_share_queue_num` is for POP: from how many further members' queues each member receives; 0 or less:
    all receive from all queues.
    """

    consumer_group: str
    mode: str = PULL_MODE
    pop_share_queue_num: Int32 = 0
    topic: str
