"""The pull loop of one queue: ask, take the answer in hand, hand it on, ask again (client:D.4 to D.7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sparrowmq.client.decoding import decode_messages
from sparrowmq.client.delivery import HandedMessage
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.offset_store import BrokerOffsetStore
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.client.requests import (
    PULL_COMMIT,
    PULL_SUSPEND,
    PullAnswer,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.core.errors import BrokerError, SparrowError, TransportError
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import MASTER_ID
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

_FLOW_CONTROL_DELAY: Final = 0.02
"""Seconds until a pull that the broker refused under load is repeated (client:D-28)."""
_UNKNOWN_MEMBER: Final = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)
"""Answers of a broker that has not had our heartbeat."""

Submit = Callable[[ProcessQueue, Sequence[HandedMessage]], None]
Illegal = Callable[[ProcessQueue, int], Awaitable[None]]
"""(process queue, offset to go on from): the broker has no such offset."""


def how_many(process_queue: ProcessQueue, settings: ConsumerSettings) -> int:
    """How many messages to ask for: more than usual while the queue is far behind and there is room."""
    usual = settings.pull_batch
    if process_queue.backlog <= usual:
        return usual
    room = process_queue.limits.messages - len(process_queue)
    return max(usual, min(settings.pull_batch_behind, room, process_queue.backlog))


class Puller:
    """Pulls for one consumer. `run` is the loop of one queue; state is in its process queue."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        instance: ClientInstance,
        store: BrokerOffsetStore,
        *,
        message_type: type[HandedMessage],
        find_subscription: Callable[[str], SubscriptionData | None],
        submit: Submit,
        illegal_offset: Illegal,
    ) -> None:
        self._group = group
        self._settings = settings
        self._instance = instance
        self._store = store
        self._message_type = message_type
        self._find_subscription = find_subscription
        self._submit = submit
        self._illegal_offset = illegal_offset
        self._occasional = OccasionalLog(log)
        self.last_success_ms = 0
        """Epoch milliseconds of the last pull any queue got an answer to; 0 before the first."""
        self.last_error: SparrowError | None = None
        """Why the last failed pull failed; None once a pull worked again."""

    async def run(self, process_queue: ProcessQueue) -> None:
        """Pull until the queue is dropped or this is cancelled."""
        broker_id = MASTER_ID
        settings = self._settings
        while not process_queue.dropped:
            if process_queue.is_full:
                await process_queue.room()
                continue
            try:
                answer = await self._pull(process_queue, broker_id)
                if process_queue.dropped:
                    return
                broker_id = answer.suggested_broker_id
                await self._take(process_queue, answer)
            except SparrowError as error:
                broker_id = MASTER_ID
                await asyncio.sleep(await self._failed(process_queue, error))
                continue
            self.last_success_ms = self._instance.clock.now_ms()
            self.last_error = None
            if settings.pull_interval:
                await asyncio.sleep(settings.pull_interval)

    async def _pull(self, process_queue: ProcessQueue, broker_id: int) -> PullAnswer:
        queue, routes = process_queue.queue, self._instance.routes
        address = routes.readable(queue.broker_name, broker_id)
        if address is None:
            await self._instance.update_route(queue.topic)
            address = routes.readable(queue.broker_name, broker_id)
        address = need_address(address, queue, "broker")
        subscription = self._find_subscription(queue.topic) or SubscriptionData(queue.topic)
        commit_offset = self._store.get(queue) or 0
        sys_flag = PULL_SUSPEND
        if commit_offset > 0 and not routes.is_slave(queue.broker_name, address):
            sys_flag |= PULL_COMMIT  # a slave takes no commits (client:D-21)
        settings = self._settings
        count = how_many(process_queue, settings)
        request = pull_request(
            group=self._group,
            queue=queue,
            offset=process_queue.next_offset,
            max_messages=count,
            max_bytes=settings.pull_bytes,
            hold=settings.pull_hold,
            subscription=subscription,
            sys_flag=sys_flag,
            commit_offset=commit_offset,
            bulk_bytes=settings.pull_bytes if count > settings.pull_batch else None,
        )
        answer = await self._instance.remoting.call(address, request, settings.pull_timeout)
        return decode_pull(answer, address, queue)

    async def _take(self, process_queue: ProcessQueue, answer: PullAnswer) -> None:
        queue = process_queue.queue
        if answer.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset %d of %s is not stored (%d to %d); going on from %d",
                process_queue.next_offset,
                queue,
                answer.min_offset,
                answer.max_offset,
                answer.next_offset,
            )
            await self._illegal_offset(process_queue, answer.next_offset)
            return
        messages: list[HandedMessage] = []
        if answer.status is PullStatus.FOUND:
            subscription = self._find_subscription(queue.topic)
            messages = decode_messages(
                answer.body,
                queue,
                self._message_type,
                frozenset() if subscription is None else subscription.tags,
                answer.min_offset,
                answer.max_offset,
            )
        process_queue.next_offset = answer.next_offset
        process_queue.broker_max_offset = answer.max_offset
        if messages:
            process_queue.put(messages)
            self._submit(process_queue, messages)
        elif not len(process_queue):
            self._store.advance(queue, answer.next_offset)

    async def _failed(self, process_queue: ProcessQueue, error: SparrowError) -> float:
        """Note a failed pull and say how many seconds the queue rests."""
        self.last_error = error
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_DELAY
        self._occasional.write(
            logging.WARNING,
            f"pull {process_queue.queue.broker_name}",
            f"pulling {process_queue.queue} for group {self._group} failed and goes on in "
            f"{self._settings.error_delay:g} s: {error}",
        )
        if isinstance(error, BrokerError) and error.code in _UNKNOWN_MEMBER:
            await self._instance.heartbeat()
        elif isinstance(error, TransportError):
            try:
                await self._instance.update_route(process_queue.queue.topic)
            except SparrowError as also:
                log.debug("nor is the route of %s known: %s", process_queue.queue.topic, also)
        return self._settings.error_delay
