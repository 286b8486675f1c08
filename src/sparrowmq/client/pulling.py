"""The pull loop of one queue: ask, take the answer in hand, hand it on, ask again (client:D.4 to D.7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sparrowmq.client.aging import hand_out_old
from sparrowmq.client.decoding import decode_messages
from sparrowmq.client.delivery import HandedMessage
from sparrowmq.client.hooks import FilterMessageContext, Hooks
from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.knobs import LiveKnobs, PullKnobs
from sparrowmq.client.namespaces import unwrap_messages
from sparrowmq.client.offset_store import OffsetStore
from sparrowmq.client.process_queue import ProcessQueue
from sparrowmq.client.requests import (
    PULL_COMMIT,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullAnswer,
    decode_pull,
    need_address,
    pull_request,
)
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.client.statistics import ConsumeStatistics
from sparrowmq.core.errors import BrokerError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.core.route import MASTER_ID
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

_FLOW_CONTROL_DELAY: Final = 0.02
"""Seconds until a pull that the broker refused under load is repeated (client:D-28)."""
_INTRODUCED_DELAY: Final = 0.02
"""Seconds until a pull is repeated that a broker refused because it had not heard of us, and has now."""
_PAUSED_SECONDS: Final = 1.0
"""Steps in which a paused queue looks whether it goes on (client:D-80)."""
_ROOM_SECONDS: Final = 30.0
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

Submit = Callable[[ProcessQueue, Sequence[HandedMessage], bool], None]
"""(process queue, messages, whether an ordered run should start): messages came."""
Illegal = Callable[[ProcessQueue, int], Awaitable[None]]
"""(process queue, offset to go on from): the broker has no such offset."""


def how_many(process_queue: ProcessQueue, knobs: PullKnobs) -> int:
    """How many messages to ask for: more than usual while the queue is far behind and there is room."""
    usual = knobs.batch
    if process_queue.backlog <= usual:
        return usual
    room = process_queue.limits.messages - len(process_queue)
    return max(usual, min(knobs.behind, room, process_queue.backlog))


class Puller:
    """Pulls for one consumer. `run` is the loop of one queue; state is in its process queue."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        instance: ClientInstance,
        store: OffsetStore,
        *,
        message_type: type[HandedMessage],
        find_subscription: Callable[[str], SubscriptionData | None],
        submit: Submit,
        illegal_offset: Illegal,
        statistics: ConsumeStatistics,
        knobs: LiveKnobs,
    ) -> None:
        self._group = group
        self._knobs = knobs
        self.generation_of: Callable[[MessageQueue], int | None] = lambda queue: None
        """What pulls carry in a managed group."""
        self._settings = settings
        self._instance = instance
        self._store = store
        self._message_type = message_type
        self._find_subscription = find_subscription
        self._submit = submit
        self._illegal_offset = illegal_offset
        self._statistics = statistics
        self._is_broadcasting = settings.model == "broadcasting"
        self._hooks = Hooks(settings.hooks)
        self.paused = False
        """Whether queues rest; what was pulled is still consumed (client:D-80)."""
        self._occasional = OccasionalLog(log)
        self.last_success_ms = 0
        """Epoch milliseconds of the last pull any queue got an answer to; 0 before the first."""
        self.last_error: SparrowError | None = None
        """Why the last failed pull failed; None once a pull worked again."""

    async def run(self, process_queue: ProcessQueue) -> None:
        """Pull until the queue is dropped or this is cancelled."""
        broker_id, settings, unmoved, failures = MASTER_ID, self._settings, 0, 0
        monotonic = self._instance.clock.monotonic
        while not process_queue.leaving:
            start = process_queue.last_pull = monotonic()
            if self.paused or self._knobs.is_paused(process_queue.queue):
                await asyncio.sleep(_PAUSED_SECONDS)
                continue
            if process_queue.is_full:
                await self._wait_for_room(process_queue)
                continue
            if settings.ordered and not process_queue.locked:
                await asyncio.sleep(settings.error_delay)
                continue
            asked = process_queue.next_offset
            try:
                answer = await self._pull(process_queue, broker_id)
                if process_queue.leaving:
                    return
                broker_id = answer.suggested_broker_id
                await self._take(process_queue, answer, start)
            except SparrowError as error:
                broker_id = MASTER_ID
                failures += 1
                await asyncio.sleep(await self._failed(process_queue, error, failures))
                continue
            failures = 0
            self.last_success_ms = self._instance.clock.now_ms()
            self.last_error = None
            unmoved = unmoved + 1 if answer.stays_at(asked) else 0
            if unmoved > 1:
                await asyncio.sleep(settings.error_delay)
            if interval := self._knobs.pull(process_queue.queue.topic).interval:
                await asyncio.sleep(interval)

    async def _wait_for_room(self, process_queue: ProcessQueue) -> None:
        """Wait until there is room, but not so long that the queue looks forgotten."""
        self._occasional.write(
            logging.INFO,
            "full",
            f"pulling {process_queue.queue} for group {self._group} pauses: {len(process_queue)} messages, "
            f"{process_queue.bytes} bytes, a span of {process_queue.span} offsets are in hand "
            f"({process_queue.limits}); handlers are slower than the broker",
        )
        try:
            async with asyncio.timeout(_ROOM_SECONDS):
                await process_queue.room()
        except TimeoutError:
            pass

    async def _pull(self, process_queue: ProcessQueue, broker_id: int) -> PullAnswer:
        queue, routes = process_queue.queue, self._instance.routes
        address = routes.readable(queue.broker_name, broker_id)
        if address is None:
            await self._instance.update_route(queue.topic)
            address = routes.readable(queue.broker_name, broker_id)
        address = need_address(address, queue, "broker")
        subscription = self._find_subscription(queue.topic) or SubscriptionData(queue.topic)
        commit_offset = 0 if self._is_broadcasting else self._store.get(queue) or 0
        sys_flag = PULL_SUSPEND
        if self._settings.post_subscription:
            sys_flag |= PULL_SUBSCRIPTION
        if commit_offset > 0 and not routes.is_slave(queue.broker_name, address):
            sys_flag |= PULL_COMMIT  # a slave takes no commits (client:D-21)
        settings = self._settings
        count = how_many(process_queue, self._knobs.pull(queue.topic))
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
            generation=self.generation_of(queue),
        )
        answer = await self._instance.remoting.call(address, request, settings.pull_timeout)
        return decode_pull(answer, address, queue)

    async def _take(self, process_queue: ProcessQueue, answer: PullAnswer, start: float) -> None:
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
            unwrap_messages(self._instance.namespace, messages)
            seconds = self._instance.clock.monotonic() - start
            self._statistics.pulled(queue.topic, len(messages), seconds)
            if self._hooks.filter_message and messages:
                messages = self._filtered(queue, messages)
        process_queue.broker_max_offset = answer.max_offset
        if messages and (delay := self._knobs.pull(queue.topic).delay):

            def submit(old: list[HandedMessage]) -> None:
                self._submit(process_queue, old, process_queue.put(old))

            messages = await hand_out_old(process_queue, messages, delay, self._instance.clock, submit)
        process_queue.next_offset = answer.next_offset
        if messages:
            self._submit(process_queue, messages, process_queue.put(messages))
        elif not len(process_queue):
            self._store.advance(queue, answer.next_offset)

    def _filtered(self, queue: MessageQueue, messages: list[HandedMessage]) -> list[HandedMessage]:
        """What the filter hooks leave (client:D-90)."""
        context = FilterMessageContext(
            group=self._group, queue=queue, messages=messages, unit_mode=self._settings.unit_mode
        )
        self._hooks.filter(context)
        return list(context.messages)

    async def _failed(self, process_queue: ProcessQueue, error: SparrowError, failures: int) -> float:
        """Note the last of so many failed pulls in a row, and say how many seconds the queue rests.

        A pull may come before the heartbeat that tells a broker of a new subscription. That is mended by one
        more, and nobody has to hear of it.
        """
        self.last_error = error
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_DELAY
        is_unknown = isinstance(error, BrokerError) and error.code in _UNKNOWN_MEMBER
        if is_unknown and await self._instance.heartbeat() and failures == 1:
            return _INTRODUCED_DELAY
        self._occasional.write(
            logging.WARNING,
            f"pull {process_queue.queue.broker_name}",
            f"pulling {process_queue.queue} for group {self._group} failed and goes on in "
            f"{self._settings.error_delay:g} s: {error}",
        )
        if isinstance(error, TransportError):
            try:
                await self._instance.update_route(process_queue.queue.topic)
            except SparrowError as also:
                log.debug("nor is the route of %s known: %s", process_queue.queue.topic, also)
        return self._settings.error_delay
