"""ReceiveMessage, AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from typing import Any, Final

from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import ProxyRefusal, SparrowError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.proxy.base.caller import Answer, GrpcCaller
from sparrowmq.proxy.base.checks import group_name, invisible_ms, subscription, topic_name
from sparrowmq.proxy.base.converting import resource
from sparrowmq.proxy.base.handles import ReceiptHandle, parse_handle
from sparrowmq.proxy.base.limits import (
    ACK_BYTES,
    INVISIBLE_MS_MIN,
    MESSAGES_OF_SEND_MAX,
    NACK_INVISIBLE_MS,
    POLL_MS_MAX,
    POLL_MS_MIN,
    RECEIVE_BATCH_MAX,
    RENEWED_INVISIBLE_MS,
    RETRY_TIMES,
)
from sparrowmq.proxy.base.refusals import ok, status, status_of, status_of_all
from sparrowmq.proxy.base.routing import readable_brokers
from sparrowmq.proxy.calls.abandoned import Abandoned
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.calls.renewing import Ending, Renewing
from sparrowmq.proxy.cluster.ack_batches import AckBatches
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.cluster.pop import Received
from sparrowmq.proxy.definition.messages import Code, v2

_log = logging.getLogger("sparrowmq.proxy")
RESERVE_MS: Final = 1_000
"""A receive is answered this long before the client's deadline."""
_RECEIVED: Final = v2.ReceiveMessageResponse(status=ok())


class MessageReceives:
    """Hands out messages, and handles what consumers do with them."""

    def __init__(
        self,
        brokers: Brokers,
        renewing: Renewing,
        tasks: TaskGroup,
        abandoned: Abandoned,
        acks: AckBatches,
        clock: Clock,
        answers: MessageAnswers,
    ) -> None:
        self._answers = answers
        self._brokers = brokers
        self._acks = acks
        self._abandoned = abandoned
        self._renewing = renewing
        self._tasks = tasks
        self._clock = clock
        self._turn = 0
        self._told = v2.AckMessageResponse(status=ok())
        """The response to one acknowledgement, which is written anew for each: to make one takes longer."""
        self._told_entry = self._told.entries.add(status=ok())

    async def receive_message(self, caller: GrpcCaller, request: Any) -> AsyncGenerator[Any, None]:
        """The answers of one receive: a status, the messages, and the time of their delivery."""
        try:
            kept = await self._receive(caller, request)
        except SparrowError as error:
            yield v2.ReceiveMessageResponse(status=status_of(error))
        else:
            topic, group = request.message_queue.topic.name, request.group.name
            left = deque(kept)
            caller.memory.hold(sum(len(one.message.body) for one in kept))
            try:
                yield _RECEIVED
                shown = resource(topic)
                while left:
                    message = left[0].message
                    yield await self._answers.of(v2.ReceiveMessageResponse, message, shown)
                    left.popleft()
                    caller.memory.hold(-len(message.body))
            finally:
                if left:
                    self._tasks.start(self._give_back(handles_of(left), topic, group), "give back")
        finished = v2.ReceiveMessageResponse()
        finished.delivery_timestamp.FromMilliseconds(self._clock.now_ms())
        yield finished

    async def _receive(self, caller: GrpcCaller, request: Any) -> list[Received]:
        """The messages for a receive, at least one. Refuses it when there are none, too."""
        caller.need_memory()
        self._abandoned.check(caller.host)
        poll_ms = _poll_ms(caller, request)
        topic, group = topic_name(request.message_queue.topic), group_name(request.group)
        renewed = request.auto_renew and self._renewing.renews_for(caller.client_id)
        invisible = RENEWED_INVISIBLE_MS
        if not request.auto_renew:
            invisible = invisible_ms(request.invisible_duration, INVISIBLE_MS_MIN)
        wanted = subscription(topic, request.filter_expression)
        broker_name = await self._broker(topic, request.message_queue.broker.name)
        config = await self._brokers.group(group)
        header = self._brokers.pop_request(
            topic,
            group,
            count=max(1, min(request.batch_size, RECEIVE_BATCH_MAX)),
            invisible_ms=invisible,
            poll_ms=poll_ms,
            subscription=wanted,
            ordered=config is not None and config.consume_message_orderly,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        address = self._brokers.master(broker_name)
        asking = asyncio.ensure_future(self._brokers.pop(address, broker_name, header))
        try:
            found = await asyncio.shield(asking)
        except asyncio.CancelledError:  # the client has left; its messages become visible again
            self._abandoned.add(caller.host, asking)
            self._tasks.start(self._give_back_later(asking, topic, group), "give back")
            raise
        if found:
            try:
                caller.need_memory()
            except ProxyRefusal:
                self._tasks.start(self._give_back(handles_of(found), topic, group), "give back")
                raise
        if found is None:
            raise ProxyRefusal(Code.TOO_MANY_REQUESTS, f"the broker {broker_name!r} holds too many receives")
        limit = (RETRY_TIMES if config is None else config.retry_max_times) + 1
        kept = await self._keep(found, topic, group, wanted, limit)
        if not kept:
            raise ProxyRefusal(Code.MESSAGE_NOT_FOUND, "no new message")
        if renewed:
            self._renewing.begin(caller.client_id, topic, group, kept)
        return kept

    async def _broker(self, topic: str, named: str) -> str:
        """The broker that the client names, or the next one with readable queues."""
        names = readable_brokers(await self._brokers.route(topic))
        if named in names:
            return named
        if not names:
            raise ProxyRefusal(Code.FORBIDDEN, f"the topic {topic!r} has no readable queue")
        self._turn += 1
        return names[self._turn % len(names)]

    async def _keep(
        self, found: Sequence[Received], topic: str, group: str, wanted: SubscriptionData, limit: int
    ) -> list[Received]:
        """The messages for the client, without those whose tag only has the same hash, and without those that
        were tried too often.
        """
        kept: list[Received] = []
        for one in found:
            if not wanted.matches(one.message.tags):
                self._tasks.start(self._quietly(self._ack(topic, group, one.handle)), "ack of another tag")
            elif one.message.reconsume_times >= limit:
                work = self._bury(topic, group, one.handle, one.message.message_id)
                self._tasks.start(self._quietly(work), "dead letter")
            else:
                kept.append(one)
        return kept

    async def _quietly(self, work: Any) -> None:
        try:
            await work
        except SparrowError as error:
            _log.info("a message could not be settled and will be delivered again: %s", error)

    async def _give_back_later(
        self, asking: asyncio.Future[list[Received] | None], topic: str, group: str
    ) -> None:
        try:
            found = await asking
        except SparrowError:
            return
        handles = handles_of(found or ())
        del asking, found  # the messages are free while brokers are asked
        await self._give_back(handles, topic, group)

    async def _give_back(self, handles: Sequence[ReceiptHandle], topic: str, group: str) -> None:
        """Make messages that the client did not get visible again soon."""
        for handle in handles:
            address = self._brokers.master(handle.receipt.broker_name)
            await self._quietly(
                self._brokers.change_invisible(address, topic, group, handle, NACK_INVISIBLE_MS)
            )

    # Requests about received messages

    async def ack_message(self, caller: GrpcCaller, request: Any) -> Any:
        """Acknowledge messages of one topic; each has its own status."""
        topic, group = topic_name(request.topic), group_name(request.group)
        if len(request.entries) > MESSAGES_OF_SEND_MAX:
            raise ProxyRefusal(
                Code.BAD_REQUEST, f"{len(request.entries)} entries, the limit is {MESSAGES_OF_SEND_MAX}"
            )
        caller.need_memory()
        caller.memory.hold(2 * request.ByteSize() + len(request.entries) * ACK_BYTES)
        statuses = await asyncio.gather(
            *(self._ack_entry(caller, topic, group, entry) for entry in request.entries)
        )
        found = v2.AckMessageResponse()
        for entry, result in zip(request.entries, statuses, strict=True):
            found.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=result)
        found.status.CopyFrom(status_of_all(found.entries))
        return found

    def ack_now(self, caller: GrpcCaller, request: Any, answer: Answer) -> bool:
        """Acknowledge one message without a task of its own. False, with nothing done, for other requests and
        when something must be asked for first: `ack_message` then takes the request. Refuses as it does.
        """
        if len(request.entries) != 1:
            return False
        topic, group = topic_name(request.topic), group_name(request.group)
        entry = request.entries[0]
        ending = self._renewing.end_now(caller.client_id, group, entry.receipt_handle)
        if ending is None:
            return False
        try:
            handle = parse_handle(ending.text, self._clock.now_ms())
        except ProxyRefusal:
            ending.failed()
            return False
        address = self._brokers.known_master(handle.receipt.broker_name)
        told = partial(self._answer_ack, answer, entry, ending)
        if address is not None and self._acks.add(address, topic, group, handle, told):
            return True
        ending.failed()
        return False

    def _answer_ack(self, answer: Answer, entry: Any, ending: Ending, error: Exception | None) -> None:
        one = self._told_entry
        one.message_id, one.receipt_handle = entry.message_id, entry.receipt_handle
        if error is None:
            answer.respond(self._told)
            return
        ending.failed()
        if isinstance(error, SparrowError):
            refused = v2.AckMessageResponse(entries=(one,))
            refused.entries[0].status.CopyFrom(status_of(error))
            refused.status.CopyFrom(status_of_all(refused.entries))
            answer.respond(refused)
        else:
            answer.refuse(error)

    async def _ack_entry(self, caller: GrpcCaller, topic: str, group: str, entry: Any) -> Any:
        try:
            async with self._renewing.ending(caller.client_id, group, entry.receipt_handle) as text:
                handle = parse_handle(text, self._clock.now_ms())
                address = await self._brokers.master_for(handle.receipt.broker_name, topic)
                told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                if self._acks.add(address, topic, group, handle, partial(_tell, told)):
                    await told
                else:
                    await self._brokers.ack(address, topic, group, handle)
        except SparrowError as error:
            return status_of(error)
        return status(Code.OK)

    async def _ack(self, topic: str, group: str, handle: ReceiptHandle) -> None:
        address = await self._brokers.master_for(handle.receipt.broker_name, topic)
        await self._brokers.ack(address, topic, group, handle)

    async def change_invisible_duration(self, caller: GrpcCaller, request: Any) -> Any:
        """Hide a message for a time; the response has its new handle."""
        topic, group = topic_name(request.topic), group_name(request.group)
        wanted = invisible_ms(request.invisible_duration)
        async with self._renewing.ending(caller.client_id, group, request.receipt_handle) as text:
            handle = parse_handle(text, self._clock.now_ms())
            address = await self._brokers.master_for(handle.receipt.broker_name, topic)
            changed = await self._brokers.change_invisible(address, topic, group, handle, wanted)
        return v2.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=changed.encode())

    async def forward_to_dead_letters(self, caller: GrpcCaller, request: Any) -> Any:
        """Store a message among the group's dead letters, and acknowledge it."""
        topic, group = topic_name(request.topic), group_name(request.group)
        async with self._renewing.ending(caller.client_id, group, request.receipt_handle) as text:
            handle = parse_handle(text)
            if handle.physical_offset < 0:
                raise ProxyRefusal(
                    Code.INVALID_RECEIPT_HANDLE, "the handle does not say where the message is"
                )
            await self._bury(topic, group, handle, request.message_id)
        return v2.ForwardMessageToDeadLetterQueueResponse(status=ok())

    async def _bury(self, topic: str, group: str, handle: ReceiptHandle, message_id: str) -> None:
        address = await self._brokers.master_for(handle.receipt.broker_name, topic)
        await self._brokers.to_dead_letters(address, topic, group, handle, message_id)
        await self._quietly(self._brokers.ack(address, topic, group, handle))


def handles_of(found: Iterable[Received]) -> list[ReceiptHandle]:
    """Where the messages are. Pure."""
    return [one.handle for one in found]


def _tell(told: asyncio.Future[None], error: Exception | None) -> None:
    if told.done():  # the client has left
        return
    if error is None:
        told.set_result(None)
    else:
        told.set_exception(error)


def _poll_ms(caller: GrpcCaller, request: Any) -> int:
    """How long a receive may wait for messages: the client's value, within the limits and its deadline."""
    left = POLL_MS_MAX if caller.remaining is None else int(caller.remaining * 1000) - RESERVE_MS
    asked = (
        request.long_polling_timeout.ToMilliseconds() if request.HasField("long_polling_timeout") else left
    )
    wanted = max(POLL_MS_MIN, min(asked, POLL_MS_MAX))
    if wanted <= left:
        return wanted
    if left < POLL_MS_MIN // 2:
        raise ProxyRefusal(
            Code.ILLEGAL_POLLING_TIME,
            f"the deadline is {max(0, left)} ms away; a receive needs {POLL_MS_MIN} ms and more",
        )
    return left
