"""Replies to requests: pushed to the client that asked, and kept in the reply topic (broker:6.7)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.internal_store import NOT_FLUSHED, InnerMessage
from sparrowmq.core.errors import InvalidNameError, SparrowError
from sparrowmq.core.ids import offset_message_id
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.core.names import check_topic, reply_topic
from sparrowmq.core.randomness import RANDOM
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.call_headers import ReplyMessageRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import (
    SendMessageRequest,
    SendMessageResponse,
    from_ext,
    send_from_v2,
    to_ext,
)
from sparrowmq.protocol.record import host_text
from sparrowmq.protocol.refusals import Refused
from sparrowmq.protocol.sysflag import HOST_V6_MASK, TRANSACTION_MASK
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")

PUSH_SECONDS_MAX: Final = 10.0
REPLY_TO: Final = "REPLY_TO_CLIENT"


class Replies:
    """Accepts replies (324, 325) and forwards them (326).

    Replies are stored only in the cluster's reply topic, to which clients send them.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        inner: InnerStore,
        tables: SharedTables,
        clock: Clock,
        *,
        store_host: bytes,
    ) -> None:
        self._settings = settings
        self._inner = inner
        self._topics = tables.topics
        self._clients = tables.clients
        self._clock = clock
        self._host = store_host
        self._occasional = OccasionalLog(log)
        self._topic = reply_topic(settings.broker_cluster_name)
        trace = "true" if settings.trace_on else "false"
        self._hook = {"MSG_REGION": settings.region_id, "TRACE_ON": trace}
        added = self._hook | {"CLUSTER": settings.broker_cluster_name, "PUSH_REPLY_TIME": str(clock.now_ms())}
        self._own_max = PROPERTIES_BYTES_MAX - len(property_string.encode(added))

    async def handle(self, connection: Connection, command: Command) -> Command:
        """324, 325: push a reply to the client that waits for it, store it, and answer with its position.

        A reply that no client waits for is stored too, and answered with code 1, as in the reference.
        """
        try:
            request = self._request(command)
            own = self._checked(command, request)
        except Refused as refused:
            return refused.answer(command.opaque, self._hook)
        problem = await self._push(connection, command, request, own)
        stored = None
        if self._settings.store_reply_message_enable:
            stored = self._stored(connection, command, request, own)
        header = stored or SendMessageResponse(msg_id="0", queue_id=request.queue_id, queue_offset=0)
        ext = to_ext(header) | self._hook
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        told = Command(code, command.opaque, FLAG_RESPONSE, ext, remark=problem)
        if stored is None:
            return told
        late = Command(
            ResponseCode.FLUSH_DISK_TIMEOUT, command.opaque, FLAG_RESPONSE, ext, remark=NOT_FLUSHED
        )
        answer = self._inner.answer_flushed(told, late)
        return answer if isinstance(answer, Command) else await answer

    def _request(self, command: Command) -> SendMessageRequest:
        if command.code == RequestCode.SEND_REPLY_MESSAGE:
            return from_ext(SendMessageRequest, command.ext)
        return send_from_v2(command.ext)

    def _checked(self, command: Command, request: SendMessageRequest) -> dict[str, str]:
        """The reply's properties, after the checks for all messages; chooses a queue if necessary."""
        try:
            check_topic(request.topic)
        except InvalidNameError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        topic = self._topics.get(request.topic)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{request.topic}] not exist")
        if request.topic != self._topic:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{request.topic}] does not accept replies; replies of this cluster go to "
                f"{self._topic}",
            )
        if request.queue_id >= topic.queue_count:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{request.queue_id}] is illegal, topic {request.topic} has "
                f"{topic.queue_count} queues",
            )
        if request.queue_id < 0:
            request.queue_id = RANDOM.randrange(max(1, topic.config.write_queue_nums))
        limit = self._settings.max_message_size
        text = (request.properties or "").encode()
        if not 0 < len(command.body) <= limit or len(text) > self._own_max:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the reply is illegal: its body has {len(command.body)} bytes (1 to {limit}), its "
                f"properties {len(text)} (at most {self._own_max})",
            )
        own = property_string.decode(text)
        own.pop("POP_CK", None)
        return own | self._hook

    async def _push(
        self, connection: Connection, command: Command, request: SendMessageRequest, own: dict[str, str]
    ) -> str | None:
        """Push the reply to the client that sent the request; returns why that failed, or None."""
        client_id = own.get(REPLY_TO)
        if not client_id:
            return f"{REPLY_TO} is null, can not reply message"
        client = self._clients.producer(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock.now_ms()
        header = ReplyMessageRequest(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.default_topic,
            default_topic_queue_nums=request.default_topic_queue_nums,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_timestamp,
            flag=request.flag,
            properties=property_string.encode(own | {"PUSH_REPLY_TIME": str(now)}).decode(),
            reconsume_times=request.reconsume_times,
            unit_mode=request.unit_mode,
            born_host=host_text(connection.born_host),
            store_host=host_text(self._host),
            store_timestamp=now,
        )
        push = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext=to_ext(header), body=command.body)
        try:
            told = await client.call(push, PUSH_SECONDS_MAX)
        except SparrowError as error:
            return f"push reply message to {client_id} fail: {error}"
        if told.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: it answered {told.code} {told.remark or ''}"
        return None

    def _stored(
        self, connection: Connection, command: Command, request: SendMessageRequest, own: dict[str, str]
    ) -> SendMessageResponse | None:
        """Store the reply; returns its position, or None when it could not be stored."""
        stored = own | {"CLUSTER": self._settings.broker_cluster_name}
        try:
            message = InnerMessage(
                request.topic,
                request.queue_id,
                command.body,
                property_string.encode(stored),
                request.flag,
                request.sys_flag & ~(TRANSACTION_MASK | HOST_V6_MASK),
                request.born_timestamp,
                connection.born_host,
                request.reconsume_times,
            )
            (placed,) = self._inner.put([message])
        except SparrowError as error:
            self._occasional.write(logging.ERROR, "reply", f"a reply was pushed but not stored: {error}")
            return None
        return SendMessageResponse(
            msg_id=offset_message_id(self._host, placed.physical_offset),
            queue_id=request.queue_id,
            queue_offset=placed.queue_offset,
        )
