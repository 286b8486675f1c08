"""The messages of a send, one or those of a batch, checked before any of them is stored (broker:6.3)."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from sparrowmq.broker.delay.rerouting import TIMER_PROPERTIES, delay_level
from sparrowmq.broker.send.plain_sends import may_be_special
from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import COPY_BYTES_MAX, PROPERTIES_BYTES_MAX
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.send.batch_limits import BatchLimits
    from sparrowmq.broker.send.plain_sends import PlainSends
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.headers import SendMessageRequest
    from sparrowmq.store.writer import ChunkItem


class SendItems:
    """Extracts messages from sends of every form. `added_bytes` is the size of what the broker adds to each
    one's properties. What is sent to a retry or dead letter topic is itself a later copy, and needs no room
    for others.
    """

    def __init__(self, plain: PlainSends, limits: BatchLimits, added_bytes: int, body_max: int) -> None:
        self._plain = plain
        self._limits = limits
        self._added_bytes = added_bytes
        self._body_max = body_max

    def of_request(self, command: Command, request: SendMessageRequest, text: bytes) -> list[ChunkItem]:
        """The messages of a request; all are checked against every limit before any is stored."""
        if not request.batch:
            room = 0 if request.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else COPY_BYTES_MAX
            own = self._checked(command.body, text, room)
            return [(request.flag, command.body, own, self._plain.tags_code(own))]
        body_max, own_max = self._body_max, PROPERTIES_BYTES_MAX - COPY_BYTES_MAX - self._added_bytes
        if self._limits.is_over(request.topic, command.body):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: its batch takes more bytes than may be stored at once, "
                f"the limit is {self._limits.most}; send fewer messages at once",
            )
        self._refuse_delay(text)
        alike = self._plain.alike_batch(request.topic, command.body)
        if alike is not None:
            batch, codes = alike
            if len(batch.bodies[0]) <= body_max and len(batch.properties[0]) <= own_max:
                return list(zip(repeat(batch.flag), batch.bodies, batch.properties, codes, strict=False))
        special, tags_code = may_be_special(command.body), self._plain.codes_of(command.body)
        items: list[ChunkItem] = []
        try:
            for flag, body, own in decode_batch(command.body):
                if special or not (0 < len(body) <= body_max and 0 < len(own) <= own_max and own[-1] == 2):
                    own = self._checked(body, own, COPY_BYTES_MAX)
                if special:
                    self._refuse_delay(own)
                items.append((flag, body, own, tags_code(own)))
        except RecordError as error:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {error}") from None
        total = self._limits.size(request.topic, command.body, len(items))
        if total > self._limits.most:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: a batch of {total} bytes, the limit is {self._limits.most}; send "
                "fewer messages at once",
            )
        return items

    def _refuse_delay(self, text: bytes) -> None:
        """Refuse delays: a batch goes into one queue, so its messages cannot wait in others (broker:2.3)."""
        own = properties.decode(text)
        if delay_level(own) > 0 or any(name in own for name in TIMER_PROPERTIES):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the message is illegal: a batch may not hold delayed or timed messages; send them "
                "one by one",
            )

    def _checked(self, body: bytes, text: bytes, room: int) -> bytes:
        """The message's own properties as stored, without POP_CK; checks that the broker's additions fit, and
        `room` bytes more.
        """
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
        length = len(text) + self._added_bytes + room
        if length > PROPERTIES_BYTES_MAX:
            copies = f", {room} of them for retries and other copies" if room else ""
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message is illegal: its properties take {length} bytes{copies}, "
                f"the limit is {PROPERTIES_BYTES_MAX}",
            )
        return text


def ended(text: bytes) -> bytes:
    """A property string that can be extended: older writers omit the last separator."""
    return text + properties.VALUE_END if text and text[-1] != 2 else text
