"""The messages of a send, one or those of a batch, checked before any of them is stored (broker:6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.rerouting import TIMER_PROPERTIES, RerouteRefused, delay_level
from sparrowmq.core.errors import RecordError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import BATCH_FIXED_BYTES, AlikeBatch, decode_alike, decode_batch
from sparrowmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.headers import SendMessageRequest
    from sparrowmq.store.writer import ChunkItem

FIXED_BYTES_V1: Final = 91
RECORD_EXTRA_BYTES: Final = 65_536
"""A record, or a batch of them, may be this much larger than the largest body (broker:2.4)."""

SPECIAL: Final = (b"DELAY\x01", b"TIMER_D", b"POP_CK")
"""A batch that holds one of these somewhere, and be it in a body, is looked at message by message."""
_TAGS: Final = b"TAGS\x01"

TAG_CODES_KEPT: Final = 10_000


class Refused(Exception):
    """A send is answered with an error: code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class SendItems:
    """Takes messages out of sends. `added` is what the broker puts behind the properties of each."""

    def __init__(self, body_max: int, added: bytes) -> None:
        self._body_max = body_max
        self._batch_max = body_max + RECORD_EXTRA_BYTES
        self._added_bytes = len(added)
        self._tag_codes: dict[bytes, int] = {}

    def tags_code(self, text: bytes) -> int:
        """The tag code of a property string; codes of tags already seen are kept."""
        at = text.rfind(b"TAGS\x01")
        if at < 0:
            return 0
        if at and text[at - 1] != 2:
            tags = properties.find(text, b"TAGS")
            return 0 if tags is None else java_hash(tags.decode("utf-8", "replace"))
        end = text.find(b"\x02", at)
        tags = text[at + 5 : end if end >= 0 else None]
        code = self._tag_codes.get(tags)
        if code is None:
            if len(self._tag_codes) >= TAG_CODES_KEPT:
                self._tag_codes.clear()
            code = self._tag_codes[tags] = java_hash(tags.decode("utf-8", "replace")) if tags else 0
        return code

    def of_alike_batch(self, topic: str, body: bytes) -> tuple[AlikeBatch, Sequence[int]] | None:
        """The messages of a clean batch of alike ones, and their tag codes; None for any other."""
        batch = decode_alike(body)
        if batch is None or not batch.bodies[0] or not batch.properties[0]:
            return None
        owns, count = batch.properties, len(batch.bodies)
        text = b"".join(owns)
        if (
            any(name in text for name in SPECIAL)
            or text[len(owns[0]) - 1 :: len(owns[0])] != properties.VALUE_END * count
            or self._batch_bytes(topic, body, count) > self._batch_max
        ):
            return None
        return batch, self._alike_codes(owns, text) if _TAGS in text else [0] * count

    def _alike_codes(self, owns: Sequence[bytes], text: bytes) -> list[int]:
        """The tag codes of property strings, joined in `text`: most often one tag, at the same place."""
        first = owns[0]
        at = first.find(_TAGS)
        low, high = max(at - 1, 0), first.find(properties.VALUE_END, at) + 1
        if at >= 0 and text.count(_TAGS) == len(owns) and len({own[low:high] for own in owns}) == 1:
            return [self.tags_code(first)] * len(owns)
        return [self.tags_code(own) for own in owns]

    def of_clean_batch(self, topic: str, body: bytes) -> list[ChunkItem]:
        """The messages of a batch; none when it needs a closer look. Raises `RecordError`."""
        if any(name in body for name in SPECIAL):
            return []
        tags_code = self.tags_code if b"TAGS\x01" in body else _no_tags
        members = decode_batch(body)
        items = [
            (flag, one, own, tags_code(own))
            for flag, one, own in members
            if one and own[-1:] == properties.VALUE_END
        ]
        if len(items) != len(members) or self._batch_bytes(topic, body, len(items)) > self._batch_max:
            return []
        return items

    def of_request(self, command: Command, request: SendMessageRequest, text: bytes) -> list[ChunkItem]:
        """The messages of a request, checked against every limit before any is stored."""
        if not request.batch:
            own = self._checked(command.body, text)
            return [(request.flag, command.body, own, self.tags_code(own))]
        body_max, own_max = self._body_max, PROPERTIES_BYTES_MAX - self._added_bytes
        self._refuse_delay(text)
        alike = self.of_alike_batch(request.topic, command.body)
        if alike is not None:
            batch, codes = alike
            if len(batch.bodies[0]) <= body_max and len(batch.properties[0]) <= own_max:
                return list(zip(repeat(batch.flag), batch.bodies, batch.properties, codes, strict=False))
        special = any(name in command.body for name in SPECIAL)
        tags_code = self.tags_code if b"TAGS\x01" in command.body else _no_tags
        items: list[ChunkItem] = []
        try:
            for flag, body, own in decode_batch(command.body):
                if special or not (0 < len(body) <= body_max and 0 < len(own) <= own_max and own[-1] == 2):
                    own = self._checked(body, own)
                if special:
                    self._refuse_delay(own)
                items.append((flag, body, own, tags_code(own)))
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from None
        total = self._batch_bytes(request.topic, command.body, len(items))
        if total > self._batch_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: a batch of {total} bytes, the limit is {self._batch_max}; send "
                "fewer messages at once",
            )
        return items

    def _batch_bytes(self, topic: str, body: bytes, count: int) -> int:
        """How long the records of a batch are, all together."""
        added = FIXED_BYTES_V1 + len(topic) + self._added_bytes - BATCH_FIXED_BYTES
        return len(body) + count * added

    def _refuse_delay(self, text: bytes) -> None:
        """A batch goes into one queue, so none of its messages may wait in another (broker:2.3)."""
        own = properties.decode(text)
        try:
            waits = delay_level(own) > 0
        except RerouteRefused as refused:
            raise Refused(refused.code, refused.remark) from None
        if waits or any(name in own for name in TIMER_PROPERTIES):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: a batch may not hold delayed or timed messages; send them singly",
            )

    def _checked(self, body: bytes, text: bytes) -> bytes:
        """The message's own properties as they are stored, without POP_CK; what the broker adds will fit."""
        if not body:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: its body is empty")
        if len(body) > self._body_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its body has {len(body)} bytes, maxMessageSize is {self._body_max}",
            )
        own = properties.decode(text)
        if "POP_CK" in own:
            del own["POP_CK"]
            text = properties.encode(own)
        text = ended(text)
        length = len(text) + self._added_bytes
        if length > PROPERTIES_BYTES_MAX:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its properties take {length} bytes, "
                f"the limit is {PROPERTIES_BYTES_MAX}",
            )
        return text


def ended(text: bytes) -> bytes:
    """A property string that more can be appended to: older writers leave out the last separator."""
    return text + properties.VALUE_END if text and text[-1] != 2 else text


def _no_tags(text: bytes) -> int:
    """The tag code of messages in a batch without any tag."""
    return 0
