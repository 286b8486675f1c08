"""Requests that wait for a reply message, and the creation of replies (client:B.18).

A request is an ordinary message with the id of the waiting client; any consumer may reply. The broker pushes
the reply over that client's connection (326).
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import (
    ClientError,
    InvalidMessageError,
    NoRoomError,
    ReplyTimeoutError,
    SparrowError,
)
from sparrowmq.core.message import (
    MESSAGE_TYPE_REPLY,
    PROPERTY_ARRIVE_TIME,
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MESSAGE_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    Message,
    MessageQueue,
    ReceivedMessage,
)
from sparrowmq.core.names import reply_topic
from sparrowmq.core.results import SendResult
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.call_headers import ReplyMessageRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.compression import decompress
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.sysflag import without_compressed_bit
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

REPLY_CODE = 10007
"""RocketMQ's code for a reply that cannot be created."""
WAITING_MAX = 65_535
"""Maximum number of waiting requests of one client."""


class PendingReplies:
    """The waiting requests of one client, by correlation id; at most `waiting_max`.

    A reply without a waiting request is dropped and logged at a limited rate.
    """

    def __init__(self, clock: Clock | None = None, *, waiting_max: int = WAITING_MAX) -> None:
        self._clock = clock or SystemClock()
        self._waiting_max = waiting_max
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._occasional = OccasionalLog(log)

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """A future for the reply to `correlation_id`; call `forget` in any case.

        Raises `NoRoomError` when too many requests are waiting.
        """
        if len(self._waiting) >= self._waiting_max:
            raise NoRoomError(
                f"{self._waiting_max} requests of this client are already waiting for replies; send fewer "
                f"at once, or shorten their timeout",
                limit=self._waiting_max,
            )
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Remove a request."""
        self._waiting.pop(correlation_id, None)

    def receive(self, address: str, request: Command) -> Command:
        """Handle a reply that a broker pushes (326): complete the waiting request, and respond to the broker
        (client:B-96).
        """
        try:
            reply = self._decode(request)
        except SparrowError as error:
            return Command(ResponseCode.SYSTEM_ERROR, flag=FLAG_RESPONSE, remark=str(error))
        future = self._waiting.pop(reply.properties.get(PROPERTY_CORRELATION_ID, ""), None)
        if future is None or future.done():
            self._occasional.write(
                logging.WARNING,
                "late",
                f"unexpected reply {reply.properties.get(PROPERTY_CORRELATION_ID)!r} from {address}; it is "
                f"late, or another client sent its request",
            )
        else:
            future.set_result(reply)
        return Command(ResponseCode.SUCCESS, flag=FLAG_RESPONSE)

    def _decode(self, request: Command) -> ReceivedMessage:
        header = headers.from_ext(ReplyMessageRequest, request.ext)
        found = properties.decode((header.properties or "").encode("utf-8", "surrogatepass"))
        found[PROPERTY_ARRIVE_TIME] = str(self._clock.now_ms())
        return ReceivedMessage(
            queue=MessageQueue(header.topic, "", header.queue_id),
            queue_offset=0,
            physical_offset=0,
            topic=header.topic,
            body=decompress(request.body, header.sys_flag),
            properties=found,
            flag=header.flag,
            sys_flag=without_compressed_bit(header.sys_flag),
            born_timestamp=header.born_timestamp,
            born_host=header.born_host,
            store_timestamp=header.store_timestamp,
            store_host=header.store_host,
            reconsume_times=header.reconsume_times or 0,
            store_size=len(request.body),
            prepared_transaction_offset=0,
            offset_message_id="",
        )


def request_message(message: Message, client_id: str, timeout: float) -> tuple[Message, str]:
    """`message` as a request of `client_id`, and its correlation id (client:B-89)."""
    correlation_id = str(uuid.uuid4())
    system: Mapping[str, str] = {
        **(message.system or {}),
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_REPLY_TO_CLIENT: client_id,
        PROPERTY_TTL: str(round(timeout * 1000)),
    }
    return replace(message, system=system), correlation_id


async def wait_for_reply(
    reply: asyncio.Future[ReceivedMessage],
    sent: asyncio.Task[SendResult],
    deadline: float,
    topic: str,
    timeout: float,
) -> ReceivedMessage:
    """Wait for the reply until the loop's time is `deadline`; `sent` is the send in progress (client:B-92).

    `timeout` is the requested time in seconds, for error texts. Raises `ReplyTimeoutError` when the request
    was sent and no reply came, and `ClientError` with the cause when it could not be sent.
    """
    loop = asyncio.get_running_loop()
    either: set[asyncio.Future[Any]] = {reply, sent}
    left = max(0.0, deadline - loop.time())
    await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    if not reply.done() and sent.done() and sent.exception() is None:
        await asyncio.wait({reply}, timeout=max(0.0, deadline - loop.time()))
    if reply.done():
        return reply.result()
    error = sent.exception() if sent.done() else None
    if isinstance(error, InvalidMessageError):
        raise error
    if error is not None or not sent.done():
        raise ClientError(
            f"the request to {topic!r} could not be sent within {timeout:.3g} s: {error or 'no answer yet'}",
            what="request",
            value=topic,
            limit=timeout,
        ) from error
    raise ReplyTimeoutError(
        f"the request to {topic!r} was sent, but no reply came within {timeout:.3g} s; check that a "
        f"consumer answers requests to this topic"
    )


def create_reply_message(request: ReceivedMessage, body: bytes) -> Message:
    """The reply to a received request, which any producer can send (client:B-95).

    Raises `ClientError` (code 10007) when `request` lacks the properties for a reply: it is not a request, or
    a broker without request-reply stored it.
    """
    found = request.properties
    missing = [
        name
        for name in (PROPERTY_CLUSTER, PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT)
        if not found.get(name)
    ]
    if missing:
        raise ClientError(
            f"the message {request.message_id} cannot be replied to: it has no {' and no '.join(missing)}; "
            "was it sent with `request`?",
            code=REPLY_CODE,
            what="properties",
            value=missing,
        )
    system = {
        PROPERTY_MESSAGE_TYPE: MESSAGE_TYPE_REPLY,
        PROPERTY_CORRELATION_ID: found[PROPERTY_CORRELATION_ID],
        PROPERTY_REPLY_TO_CLIENT: found[PROPERTY_REPLY_TO_CLIENT],
    }
    if PROPERTY_TTL in found:
        system[PROPERTY_TTL] = found[PROPERTY_TTL]
    return Message(reply_topic(found[PROPERTY_CLUSTER]), body, system=system)
