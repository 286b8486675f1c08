"""PullMessage, GetOffset, UpdateOffset and QueryOffset: consumption by queue and offset."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from sparrowmq.core.errors import ProxyRefusal, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.protocol.record import decode_records
from sparrowmq.protocol.record import to_message as to_received
from sparrowmq.proxy.base.caller import GrpcCaller
from sparrowmq.proxy.base.checks import group_name, subscription, topic_name
from sparrowmq.proxy.base.converting import resource, weight_of
from sparrowmq.proxy.base.limits import POLL_MS_MAX, RECEIVE_BATCH_MAX
from sparrowmq.proxy.base.refusals import ok, status_of
from sparrowmq.proxy.calls.abandoned import Abandoned
from sparrowmq.proxy.calls.answers import MessageAnswers
from sparrowmq.proxy.cluster.brokers import Brokers
from sparrowmq.proxy.definition.messages import Code, OffsetPolicy, v2
from sparrowmq.transport.slices import TurnGate

PULL_BYTES_MAX: Final = 4 * 1024 * 1024
READ_WEIGHT: Final = 8
"""To read a broker's answer takes as long as to make so many messages of it."""
COPIES: Final = 2
"""While a client reads a pulled message, it is in memory as it was stored and in the form of the API."""


class QueueOffsets:
    """Reads queues, and stores the offsets of groups at the brokers."""

    def __init__(
        self, brokers: Brokers, abandoned: Abandoned, gate: TurnGate, answers: MessageAnswers
    ) -> None:
        self._brokers = brokers
        self._abandoned = abandoned
        self._gate = gate
        self._answers = answers

    async def pull_message(self, caller: GrpcCaller, request: Any) -> AsyncGenerator[Any, None]:
        """The messages from an offset on: a status, the messages, and the next offset."""
        try:
            caller.need_memory()
            self._abandoned.check(caller.host)
            async with aclosing(self._pull(caller, request)) as answers:
                async for answer in answers:
                    yield answer
        except SparrowError as error:
            yield v2.PullMessageResponse(status=status_of(error))

    async def _pull(self, caller: GrpcCaller, request: Any) -> AsyncGenerator[Any, None]:
        queue, address = await self._place(request.message_queue)
        group = group_name(request.group)
        if request.offset < 0:
            raise ProxyRefusal(Code.ILLEGAL_OFFSET, f"the offset {request.offset} is negative")
        wanted = subscription(queue.topic, request.filter_expression)
        asking = asyncio.ensure_future(
            self._brokers.pull(
                address,
                group,
                queue,
                request.offset,
                count=max(1, min(request.batch_size, RECEIVE_BATCH_MAX)),
                bytes_max=PULL_BYTES_MAX,
                hold=min(max(request.long_polling_timeout.ToMilliseconds(), 0), POLL_MS_MAX) / 1000,
                subscription=wanted,
            )
        )
        try:
            found = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._abandoned.add(caller.host, asking)
            raise
        if found.status is PullStatus.OFFSET_ILLEGAL:
            raise ProxyRefusal(
                Code.ILLEGAL_OFFSET,
                f"the offset {request.offset} of {queue} is not stored; continue from {found.next_offset}",
            )
        caller.need_memory()  # many may have been asked for at once
        caller.memory.hold(COPIES * len(found.body))
        await self._gate.passed(READ_WEIGHT + weight_of(len(found.body)))
        records = decode_records(found.body) if found.status is PullStatus.FOUND else []
        messages = [to_received(each, queue.broker_name, decompress=False) for each in records]
        matching = [each for each in messages if wanted.matches(each.tags)]
        next_offset = found.next_offset
        del found, records, messages  # the broker's answer is free while the client reads
        if matching:
            yield v2.PullMessageResponse(status=ok())
        else:
            nothing = ProxyRefusal(Code.MESSAGE_NOT_FOUND, "no new message")
            yield v2.PullMessageResponse(status=status_of(nothing))
        shown = resource(queue.topic)
        for each in matching:
            yield await self._answers.of(v2.PullMessageResponse, each, shown)
        yield v2.PullMessageResponse(next_offset=next_offset)

    async def get_offset(self, caller: GrpcCaller, request: Any) -> Any:
        """The next offset that a group reads of a queue."""
        queue, address = await self._place(request.message_queue)
        group = group_name(request.group)
        found = await self._brokers.instance.brokers.query_offset(address, group, queue)
        if found is None:
            raise ProxyRefusal(Code.OFFSET_NOT_FOUND, f"the group {group!r} has no offset of {queue}")
        return v2.GetOffsetResponse(status=ok(), offset=found)

    async def update_offset(self, caller: GrpcCaller, request: Any) -> Any:
        """Store the next offset that a group reads of a queue."""
        queue, address = await self._place(request.message_queue)
        group = group_name(request.group)
        if request.offset < 0:
            raise ProxyRefusal(Code.ILLEGAL_OFFSET, f"the offset {request.offset} is negative")
        brokers = self._brokers.instance.brokers
        await brokers.update_offset(address, group, queue, request.offset, oneway=False)
        return v2.UpdateOffsetResponse(status=ok())

    async def query_offset(self, caller: GrpcCaller, request: Any) -> Any:
        """The first or last offset of a queue, or the offset at a time."""
        queue, address = await self._place(request.message_queue)
        brokers, policy = self._brokers.instance.brokers, request.query_offset_policy
        if policy == OffsetPolicy.BEGINNING:
            found = await brokers.min_offset(address, queue)
        elif policy == OffsetPolicy.END:
            found = await brokers.max_offset(address, queue)
        elif policy == OffsetPolicy.TIMESTAMP and request.HasField("timestamp"):
            found = await brokers.search_offset(address, queue, request.timestamp.ToMilliseconds())
        else:
            raise ProxyRefusal(Code.BAD_REQUEST, f"the policy {policy} is not known, or its time is missing")
        return v2.QueryOffsetResponse(status=ok(), offset=found)

    async def _place(self, named: Any) -> tuple[MessageQueue, str]:
        """A queue of the API, and the address of its broker."""
        topic = topic_name(named.topic)
        queue = MessageQueue(topic, named.broker.name, named.id)
        await self._brokers.route(topic)
        if queue.queue_id < 0:
            raise ProxyRefusal(Code.BAD_REQUEST, f"the queue {queue.queue_id} of {topic!r} does not exist")
        return queue, self._brokers.master(queue.broker_name)
