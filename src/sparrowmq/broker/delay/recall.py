"""Recall of timed messages before they are due (broker:8.3).

The answer to a timed send contains a handle. A recall stores a deletion marker that is due in the same slot
of the timer wheel; when the slot fires, the marker removes the message.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.base.internal_store import NOT_FLUSHED, InnerMessage, InnerStore
from sparrowmq.broker.delay.rerouting import TIMER_DELETE, Rerouting
from sparrowmq.core.errors import InvalidMessageError, RecordError, StoreError
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import RecallMessageRequest, RecallMessageResponse, from_ext, to_ext
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.transport.connection import Connection

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"
_VERSION: Final = "v1"
_WORDS: Final = 5


class Handle(NamedTuple):
    """The content of a handle. `timestamp` is the message's slot plus one millisecond, epoch ms."""

    topic: str
    broker_name: str
    timestamp: int
    unique_key: str


def recall_handle(topic: str, broker_name: str, slot: int, unique_key: str) -> bytes:
    """The handle of a timed message in `slot` of the timer wheel."""
    words = (_VERSION, topic, broker_name, str(slot + 1), unique_key)
    return base64.urlsafe_b64encode(" ".join(words).encode())


def parse_handle(text: str) -> Handle | None:
    """The content of a handle, or None when the text is invalid."""
    try:
        words = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError):
        return None
    if len(words) != _WORDS or words[0] != _VERSION or not words[3].isdecimal() or len(words[3]) > 18:
        return None
    return Handle(words[1], words[2], int(words[3]), words[4])


class Recalls:
    """Answers RECALL_MESSAGE (370). Success means that the marker is stored; with `SYNC_FLUSH`, on disk."""

    def __init__(self, settings: BrokerSettings, inner: InnerStore, topics: TopicTable, clock: Clock) -> None:
        self._settings = settings
        self._inner = inner
        self._topics = topics
        self._clock = clock
        self._rerouting = Rerouting.of(settings)

    def handle(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """370: mark the timed message of a handle as recalled."""
        request = from_ext(RecallMessageRequest, command.ext)
        region = self._settings.region_id
        try:
            handle = self._checked(request)
            self._mark(handle, request.producer_group or "", connection.born_host)
        except Refused as refused:
            return refused.answer(command.opaque, {"MSG_REGION": region})
        ext = to_ext(RecallMessageResponse(msg_id=handle.unique_key, region_id=region))
        return self._inner.answer_flushed(
            Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, ext),
            Command(ResponseCode.FLUSH_DISK_TIMEOUT, command.opaque, FLAG_RESPONSE, ext, remark=NOT_FLUSHED),
        )

    def _checked(self, request: RecallMessageRequest) -> Handle:
        if not self._settings.recall_message_enable:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: recallMessageEnable is false; set it to true, for "
                "example with `sparrow up --set recallMessageEnable=true`",
            )
        if self._topics.get(request.topic) is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{request.topic}] not exist"
            )
        handle = parse_handle(request.recall_handle)
        if handle is None:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
        if handle.topic != request.topic:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._settings.broker_name:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, broker service not available")
        ahead = handle.timestamp - self._clock.now_ms()
        if not 0 < ahead < self._rerouting.timer_max_ms:
            raise Refused(ResponseCode.ILLEGAL_OPERATION, "recall failed, timestamp invalid")
        return handle

    def _mark(self, handle: Handle, producer_group: str, born_host: bytes) -> None:
        now = self._clock.now_ms()
        own = {
            "TAGS": RECALL_TAG,
            TIMER_DELETE: handle.unique_key,
            "UNIQ_KEY": handle.unique_key,
            "TIMER_DELIVER_MS": str(handle.timestamp),
            "BORN_TIMESTAMP": str(now),
            "PGROUP": producer_group,
        }
        try:
            place = self._rerouting.place(handle.topic, 0, property_string.encode(own), 0, now)
            self._inner.put(
                [
                    InnerMessage(
                        topic=place.topic,
                        queue_id=place.queue_id,
                        body=RECALL_BODY,
                        properties=place.properties,
                        flag=0,
                        sys_flag=0,
                        born_timestamp=now,
                        born_host=born_host,
                    )
                ]
            )
        except (InvalidMessageError, RecordError, StoreError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"recall failed, the marker could not be stored: {error}"
            ) from None
