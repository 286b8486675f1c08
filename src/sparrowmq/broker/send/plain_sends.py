"""Is this send plain? Plain sends are stored at once; all others take the general path.

A send is plain when its header reads in one step, its topic and queue exist, body and properties are within
the limits, its properties end as they should with a unique key, and nothing in them asks for a feature
(delay, timer, a mark of POP). A half message is plain when, but for the transaction, the same holds for it; a
batch when it holds for each of its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.transactions.half_messages import is_plain_half
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import COPY_BYTES_MAX, PROPERTIES_BYTES_MAX
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import AlikeBatch, decode_alike, decode_batch
from sparrowmq.protocol.hot import SendFrame, decode_send
from sparrowmq.protocol.sysflag import INNER_BATCH, TRANSACTION_MASK

if TYPE_CHECKING:
    from sparrowmq.broker.send.batch_limits import BatchLimits
    from sparrowmq.broker.send.half_sends import HalfSends
    from sparrowmq.broker.tables.topics import Topic, TopicTable
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.writer import ChunkItem

NOT_PLAIN: Final = TRANSACTION_MASK | INNER_BATCH
"""Bits of `sysFlag` that need a closer look."""
SHAPES_KEPT: Final = 4096
SHAPE_BYTES_KEPT: Final = 256
"""Longer shapes are judged for each message."""
TAG_CODES_KEPT: Final = 10_000
TAG_BYTES_KEPT: Final = 256
_UNIQUE_KEY: Final = b"UNIQ_KEY\x01"
_TAGS: Final = b"TAGS\x01"

PlainSend = tuple[SendFrame, "Topic", "ConsumeQueue", bytes, int, bytes]
"""A plain send: its frame, topic and queue, the properties to store, its tag code and unique key."""
PlainShape = tuple[int, bool]
"""Facts about a plain send's properties: the tag code, and whether it is a half message."""


class PlainSends:
    """Decides which sends are plain. `added` is what the broker appends to the properties of each message.

    A producer's messages mostly differ in their unique keys alone, so decisions about properties are made
    once for each *shape*: the property string without its unique key's name and value.
    """

    def __init__(
        self, topics: TopicTable, halves: HalfSends, limits: BatchLimits, added: bytes, body_max: int
    ) -> None:
        self._get_topic = topics.get
        self._halves = halves
        self._limits = limits
        self._added = added
        self._body_max = body_max
        self._text_max = PROPERTIES_BYTES_MAX - COPY_BYTES_MAX - len(added)
        self._known: dict[bytes, PlainShape | None] = {}
        self._tag_codes: dict[bytes, int] = {}

    def find(self, header: bytes, body: bytes) -> PlainSend | None:
        """The plain send with this header and body; None if it must take the general path."""
        frame = decode_send(header)
        if frame is None:
            return None
        fields = frame.fields
        topic, queue_id = self._get_topic(fields.topic), fields.e
        if (
            topic is None
            or topic.special
            or not 0 <= queue_id < topic.queue_count
            or fields.idempotent
            or not 0 < len(body) <= self._body_max
        ):
            return None
        text = fields.i.encode()
        at = text.rfind(_UNIQUE_KEY)
        end = text.find(b"\x02", at)
        if at < 0 or end < 0 or (at and text[at - 1] != 2):
            return None
        key = text[at + 9 : end]
        if not key.isalnum():
            return None
        shape = text[:at] + text[end:]
        try:
            known = self._known[shape]
        except KeyError:
            known = self._learn(shape)
        if known is None:
            return None
        tags_code, is_half = known
        if is_half:
            place = None if fields.m else self._halves.place(fields, text, key)
            return None if place is None else (frame, topic, *place, tags_code, key)
        if fields.f & NOT_PLAIN or len(text) > self._text_max:
            return None
        return frame, topic, topic.queues[queue_id], text + self._added, tags_code, key

    def _learn(self, shape: bytes) -> PlainShape | None:
        """Judge a shape and cache the result; at most the last `SHAPES_KEPT` are kept."""
        judged = self.judge(shape)
        if len(shape) <= SHAPE_BYTES_KEPT:
            if len(self._known) >= SHAPES_KEPT:
                self._known.clear()
            self._known[shape] = judged
        return judged

    def judge(self, shape: bytes) -> PlainShape | None:
        """Facts about a property string without its unique key; None when it is not plain."""
        if shape[-1] != 2 or may_be_special(shape):
            return None
        is_half = b"TRAN_MSG" in shape
        if is_half and not is_plain_half(shape):
            return None
        return self.tags_code(shape), is_half

    # Batches

    def alike_batch(self, topic: str, body: bytes) -> tuple[AlikeBatch, Sequence[int]] | None:
        """The messages of a plain batch with equal flags and lengths, and their tag codes; None for
        others."""
        batch = None if self._limits.is_over(topic, body) else decode_alike(body)
        if batch is None or not batch.bodies[0] or not batch.properties[0]:
            return None
        owns, count = batch.properties, len(batch.bodies)
        text = b"".join(owns)
        if (
            len(owns[0]) > self._text_max
            or may_be_special(text)
            or text[len(owns[0]) - 1 :: len(owns[0])] != properties.VALUE_END * count
        ):
            return None
        return batch, self._alike_codes(owns, text) if _TAGS in text else [0] * count

    def _alike_codes(self, owns: Sequence[bytes], text: bytes) -> list[int]:
        """The tag codes of property strings, joined in `text`: usually one tag, at the same position."""
        first = owns[0]
        at = first.find(_TAGS)
        low, high = max(at - 1, 0), first.find(properties.VALUE_END, at) + 1
        if at >= 0 and text.count(_TAGS) == len(owns) and len({own[low:high] for own in owns}) == 1:
            return [self.tags_code(first)] * len(owns)
        return [self.tags_code(own) for own in owns]

    def batch(self, topic: str, body: bytes) -> list[ChunkItem]:
        """The messages of a plain batch; empty for any other. Raises `RecordError`."""
        if self._limits.is_over(topic, body) or may_be_special(body):
            return []
        tags_code = self.codes_of(body)
        members = decode_batch(body)
        items = [
            (flag, one, own, tags_code(own))
            for flag, one, own in members
            if one and own[-1:] == properties.VALUE_END and len(own) <= self._text_max
        ]
        return items if len(items) == len(members) else []

    # Tag codes

    def tags_code(self, text: bytes) -> int:
        """The tag code of a property string; codes of known tags are cached."""
        at = text.rfind(_TAGS)
        if at < 0:
            return 0
        if at and text[at - 1] != 2:
            tags = properties.find(text, b"TAGS")
            return 0 if tags is None else java_hash(tags.decode("utf-8", "replace"))
        end = text.find(b"\x02", at)
        tags = text[at + 5 : end if end >= 0 else None]
        code = self._tag_codes.get(tags)
        if code is None:
            code = java_hash(tags.decode("utf-8", "replace")) if tags else 0
            if len(tags) <= TAG_BYTES_KEPT:
                if len(self._tag_codes) >= TAG_CODES_KEPT:
                    self._tag_codes.clear()
                self._tag_codes[tags] = code
        return code

    def codes_of(self, body: bytes) -> Callable[[bytes], int]:
        """A function that returns the tag codes of a batch's messages."""
        return self.tags_code if _TAGS in body else _no_tags


def may_be_special(data: bytes) -> bool:
    """Whether the data contains a delay, a time or a mark of POP, even in a body: such a batch is checked
    message by message.
    """
    return b"DELAY\x01" in data or b"TIMER_D" in data or b"POP_CK" in data


def _no_tags(text: bytes) -> int:
    """The tag code of messages in a batch without tags."""
    return 0
