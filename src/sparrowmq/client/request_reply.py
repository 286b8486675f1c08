"""Requests that wait for a reply message, and making replies (client:B.18).

A request is an ordinary message that says who waits; any consumer may answer. The broker pushes the reply to
the connection of the one who waits (326).
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
    ReplyTimeoutError,
    SparrowError,
    TooManyRequestsError,
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
"""RocketMQ's code for a reply that cannot be made."""
WAITING_MAX = 65_535
"""Requests of one client that wait for their replies."""


class PendingReplies:
    """The requests of one client that wait, by correlation id; at most `waiting_max`, each for its own time.

    A reply that nobody waits for (any more) is logged, seldom, and dropped.
    """

    def __init__(self, clock: Clock | None = None, *, waiting_max: int = WAITING_MAX) -> None:
        self._clock = clock or SystemClock()
        self._waiting_max = waiting_max
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        self._occasional = OccasionalLog(log)

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[ReceivedMessage]:
        """A future for the reply to `correlation_id`; `forget` it in any case.

        Raises `TooManyRequestsError` when too many wait already.
        """
        if len(self._waiting) >= self._waiting_max:
            raise TooManyRequestsError(
                f"{self._waiting_max} requests of this client wait for replies already; ask slower, or give "
                "them less time"
            )
        future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Nobody waits any more."""
        self._waiting.pop(correlation_id, None)

    def receive(self, address: str, request: Command) -> Command:
        """A broker pushes a reply (326): give it to who waits, and answer the broker (client:B-96)."""
        try:
            reply = self._decode(request)
        except SparrowError as error:
            return Command(ResponseCode.SYSTEM_ERROR, flag=FLAG_RESPONSE, remark=str(error))
        future = self._waiting.pop(reply.properties.get(PROPERTY_CORRELATION_ID, ""), None)
        if future is None or future.done():
            self._occasional.write(
                logging.WARNING,
                "late",
                f"a reply came that nobody waits for: {reply.properties.get(PROPERTY_CORRELATION_ID)!r} from "
                f"{address}; it is late, or its request was sent by another client",
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
    """The reply, until the loop's time is `deadline`; `sent` is the send under way (client:B-92).

    `timeout` is what was asked for, in seconds, for errors. Raises `ReplyTimeoutError` when the request was
    sent and no reply came, and `ClientError` with the cause when it could not be sent.
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
            f"the request to {topic!r} could not be sent within {timeout:.3g} s: {error or 'no answer yet'}"
        ) from error
    raise ReplyTimeoutError(
        f"the request to {topic!r} was sent, but no reply came within {timeout:.3g} s; is somebody answering?"
    )


def create_reply_message(request: ReceivedMessage, body: bytes) -> Message:
    """The reply to a request that was received, to be sent with any producer (client:B-95).

    Raises `ClientError` (code 10007) when `request` lacks what a reply needs: then it is not a request, or a
    broker without request-reply stored it.
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
        )
    system = {
        PROPERTY_MESSAGE_TYPE: MESSAGE_TYPE_REPLY,
        PROPERTY_CORRELATION_ID: found[PROPERTY_CORRELATION_ID],
        PROPERTY_REPLY_TO_CLIENT: found[PROPERTY_REPLY_TO_CLIENT],
    }
    if PROPERTY_TTL in found:
        system[PROPERTY_TTL] = found[PROPERTY_TTL]
    return Message(f"{found[PROPERTY_CLUSTER]}_REPLY_TOPIC", body, system=system)
