"""SendMessage and RecallMessage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sparrowmq.client.producer.recall import parse_handle as parse_recall_handle
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import ClientError, ProxyRefusal
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import DLQ_PREFIX, RETRY_PREFIX
from sparrowmq.protocol import headers
from sparrowmq.protocol.sysflag import TRANSACTION_PREPARED
from sparrowmq.proxy.base.caller import Answer, GrpcCaller
from sparrowmq.proxy.base.checks import topic_name
from sparrowmq.proxy.base.converting import StoredForm, check_type, to_stored
from sparrowmq.proxy.base.handles import HalfPlace
from sparrowmq.proxy.base.limits import MESSAGES_OF_SEND_MAX
from sparrowmq.proxy.base.refusals import ok, status, status_of_all
from sparrowmq.proxy.base.routing import queue_of_group
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.cluster.send_batches import SendBatches, SentPlace, places_of, send_request
from sparrowmq.proxy.definition.messages import Code, MessageType, v2

_UNTYPED_PREFIXES: Final = (RETRY_PREFIX, DLQ_PREFIX)
"""Topics that take messages of every type."""


class MessageSends:
    """Sends messages to brokers."""

    def __init__(self, brokers: Brokers, batches: SendBatches, clock: Clock) -> None:
        self._brokers = brokers
        self._batches = batches
        self._clock = clock
        self._told = v2.SendMessageResponse(status=ok())
        """The response to a stored message, which is written anew for each: to make one takes longer."""
        self._told_entry = self._told.entries.add(status=ok())

    def send_now(self, caller: GrpcCaller, request: Any, answer: Answer) -> bool:
        """Send a normal message without a task of its own. False, with nothing done, for other requests and
        when something must be asked for first: `send_message` then takes the request. Refuses as it does.
        """
        if len(request.messages) != 1:
            return False
        message = request.messages[0]
        if message.system_properties.message_type != MessageType.NORMAL:
            return False
        topic = topic_name(message.topic)
        allowed, queues = self._brokers.known_type(topic), self._brokers.known_queues(topic)
        if allowed is None or queues is None or topic.startswith(_UNTYPED_PREFIXES):
            return False
        form = to_stored(message, topic, caller.host, self._clock.now_ms())
        if form.message_type != "NORMAL":
            return False
        check_type(topic, allowed, form.message_type)
        return self._batches.add(queues, form, partial(self._answer, answer))

    def _answer(self, answer: Answer, form: StoredForm, found: SentPlace | Exception) -> None:
        if isinstance(found, Exception):
            answer.refuse(found)
        elif found.code == Code.OK:
            entry = self._told_entry
            entry.message_id, entry.offset = form.message_id, found.queue_offset
            answer.respond(self._told)
        else:
            answer.respond(_response([found], [form]))

    async def send_message(self, caller: GrpcCaller, request: Any) -> Any:
        """Store messages of one topic: one message, or several as a batch."""
        messages = request.messages
        if not messages:
            raise ProxyRefusal(Code.MESSAGE_CORRUPTED, "there is no message to send")
        if len(messages) > MESSAGES_OF_SEND_MAX:
            raise ProxyRefusal(
                Code.MESSAGE_CORRUPTED, f"{len(messages)} messages, the limit is {MESSAGES_OF_SEND_MAX}"
            )
        topic = topic_name(messages[0].topic)
        if any(each.topic != messages[0].topic for each in messages):
            raise ProxyRefusal(Code.MESSAGE_CORRUPTED, "the messages are of different topics")
        now = self._clock.now_ms()
        stored = [to_stored(each, topic, caller.host, now) for each in messages]
        await self._check_types(topic, stored)
        queues = await self._brokers.publish_queues(topic)
        if (
            len(stored) == 1
            and stored[0].message_type == "NORMAL"
            and not topic.startswith(_UNTYPED_PREFIXES)
        ):
            place = await self._sent(queues, stored[0])
            if place is not None:
                return _response([place], stored)
        queue = self._queue(queues, stored)
        asked = send_request(queue, stored)
        answer = await self._brokers.call(self._brokers.master(queue.broker_name), asked)
        return _response(places_of(answer, queue, len(stored)), stored, queue)

    async def _sent(self, queues: Sequence[MessageQueue], form: StoredForm) -> SentPlace | None:
        """Where a message was stored that was sent with others; None when too many are being sent."""
        told: asyncio.Future[SentPlace] = asyncio.get_running_loop().create_future()
        if not self._batches.add(queues, form, partial(_tell, told)):
            return None
        return await told

    async def _check_types(self, topic: str, stored: Sequence[StoredForm]) -> None:
        if topic.startswith(_UNTYPED_PREFIXES):
            return
        allowed = await self._brokers.message_type(topic)
        for each in stored:
            check_type(topic, allowed, each.message_type)
        if len(stored) > 1 and {each.message_type for each in stored} & {"DELAY", "TRANSACTION"}:
            raise ProxyRefusal(
                Code.BAD_REQUEST, "delayed messages and those of transactions cannot be sent in a batch"
            )

    def _queue(self, queues: Sequence[MessageQueue], stored: Sequence[StoredForm]) -> MessageQueue:
        """The queue of the message group, for a single message with one, else the next queue."""
        if len(stored) == 1 and stored[0].message_group:
            return queue_of_group(queues, stored[0].message_group)
        return self._batches.next_queue(queues)

    async def recall_message(self, caller: GrpcCaller, request: Any) -> Any:
        """Recall a message before it is due."""
        topic = topic_name(request.topic)
        check_type(topic, await self._brokers.message_type(topic), "DELAY")
        try:
            handle = parse_recall_handle(request.recall_handle)
        except ClientError as error:
            raise ProxyRefusal(Code.BAD_REQUEST, str(error)) from None
        address = await self._brokers.master_for(handle.broker_name, topic)
        header = headers.RecallMessageRequest(
            topic=topic,
            recall_handle=request.recall_handle,
            producer_group=topic,
            broker_name=handle.broker_name,
        )
        message_id = await self._brokers.recall(address, header)
        return v2.RecallMessageResponse(status=ok(), message_id=message_id)


def _tell(told: asyncio.Future[SentPlace], form: StoredForm, found: SentPlace | Exception) -> None:
    if told.done():  # the client has left
        return
    if isinstance(found, Exception):
        told.set_exception(found)
    else:
        told.set_result(found)


def _response(
    places: Sequence[SentPlace], stored: Sequence[StoredForm], queue: MessageQueue | None = None
) -> Any:
    """One entry for each message; `queue` is needed for half messages."""
    found = v2.SendMessageResponse()
    for place, each in zip(places, stored, strict=True):
        entry = found.entries.add(status=status(place.code))
        entry.message_id, entry.offset = each.message_id, place.queue_offset
        entry.recall_handle = place.recall_handle
        if queue is not None and each.sys_flag & TRANSACTION_PREPARED:
            _, _, physical = parse_offset_message_id(place.message_id)
            half = HalfPlace(queue.broker_name, place.queue_offset, physical, each.message_id)
            entry.transaction_id = half.encode()
    found.status.CopyFrom(status_of_all(found.entries))
    return found
