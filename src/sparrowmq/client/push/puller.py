"""Pulls of push consumers: the requests, and where their messages go (client:D.4 to D.7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.client.base.hooks import FilterMessageContext, Hooks, PullLoopContext
from sparrowmq.client.base.offset_store_protocol import births_of
from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.cluster.broker_api import (
    PULL_COMMIT,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    GenerationOf,
    PullAnswer,
    decode_pull,
    pull_request,
)
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings, PullPace
from sparrowmq.client.consumer.offset_store import OffsetStore
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.consumer.pull_loop import PAUSED_SECONDS, PullLoop
from sparrowmq.client.consumer.statistics import ConsumeStatistics
from sparrowmq.client.push.message_stream import StreamedMessage
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

_ROOM_SECONDS: Final = 30.0

Submit = Callable[[ProcessQueue, Sequence[StreamedMessage], bool], None]
"""(process queue, messages, whether an ordered run should start): messages arrived."""
Illegal = Callable[[ProcessQueue, int], Awaitable[None]]
"""(process queue, offset to continue from): the broker does not have the requested offset."""
Gone = Callable[[ProcessQueue], Awaitable[None]]
"""The topic of a process queue was deleted."""


@dataclass(frozen=True, slots=True)
class PullTarget:
    """Where pulled messages go. They are decoded as `message_type`; `submit` takes them, `illegal_offset` is
    called when the broker does not have the requested offset, `topic_gone` when it does not know the topic.
    """

    message_type: type[StreamedMessage]
    submit: Submit
    illegal_offset: Illegal
    topic_gone: Gone


def how_many(process_queue: ProcessQueue, pace: PullPace) -> int:
    """The number of messages to request: larger while the queue is far behind and there is room."""
    usual = pace.batch
    if process_queue.backlog <= usual:
        return usual
    room = process_queue.limits.messages - len(process_queue)
    return max(usual, min(pace.behind, room, process_queue.backlog))


class Puller:
    """Pulls for one push consumer. `run` is the loop of one queue, whose state is in its process queue."""

    def __init__(
        self,
        group: str,
        settings: ConsumerSettings,
        instance: ClientInstance,
        store: OffsetStore,
        target: PullTarget,
        *,
        find_subscription: Callable[[str], SubscriptionData | None],
        statistics: ConsumeStatistics,
        dynamic: DynamicSettings,
        generation_of: GenerationOf,
    ) -> None:
        self._group = group
        self.dynamic = dynamic
        self._generation_of = generation_of
        self._settings = settings
        self._instance = instance
        self._store = store
        self.births = births_of(store)
        self._find_subscription = find_subscription
        self._target = target
        self._statistics = statistics
        self._is_broadcasting = settings.model == "broadcasting"
        self._hooks = Hooks(settings.hooks)
        self._paused = False
        self._occasional = OccasionalLog(log)
        self._loop = PullLoop(group, instance, self, target.message_type, error_delay=settings.error_delay)
        self.run = self._loop.run

    @property
    def last_success_ms(self) -> int:
        """Epoch milliseconds of the last response to a pull of any queue; 0 before the first."""
        return self._loop.last_success_ms

    @property
    def last_error(self) -> SparrowError | None:
        """The error of the last failed pull; None after a successful one."""
        return self._loop.last_error

    # For queues that are read by POP

    def subscription(self, topic: str) -> SubscriptionData:
        """The subscription of a topic; everything if there is none."""
        return self._find_subscription(topic) or SubscriptionData(topic)

    def answered(self) -> None:
        """A broker answered a POP."""
        self._loop.answered()

    def failed(self, error: SparrowError) -> None:
        """A POP failed."""
        self._loop.failed(error)

    @property
    def paused(self) -> bool:
        """Whether pulling is paused; pulled messages are still consumed (client:D-80)."""
        return self._paused

    def pause(self) -> None:
        """Pull no queue until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Resume pulling."""
        self._paused = False

    # Called by the pull loop

    async def held_up(self, process_queue: ProcessQueue) -> bool:
        """Wait while the queue is paused or full, or its lock is missing. Returns whether it had to wait."""
        if self._paused or self.dynamic.is_paused(process_queue.queue):
            await self._instance.sleep(PAUSED_SECONDS)
        elif process_queue.is_full:
            await self._wait_for_room(process_queue)
        elif self._settings.ordered and not process_queue.locked:
            await self._instance.sleep(self._settings.error_delay)
        else:
            return False
        return True

    async def _wait_for_room(self, process_queue: ProcessQueue) -> None:
        """Wait for room, but not so long that the queue counts as forgotten."""
        self._occasional.write(
            logging.INFO,
            "full",
            f"pulling {process_queue.queue} for group {self._group} pauses: {len(process_queue)} messages, "
            f"{process_queue.bytes} bytes, a span of {process_queue.span} offsets are unfinished "
            f"({process_queue.limits}); handlers are slower than the broker",
        )
        try:
            async with asyncio.timeout(_ROOM_SECONDS):
                await process_queue.room()
        except TimeoutError:
            pass

    async def ask(self, process_queue: ProcessQueue, address: str) -> PullAnswer:
        """Pull once. The request also commits the offset in memory."""
        queue, routes = process_queue.queue, self._instance.routes
        subscription = self.subscription(queue.topic)
        commit_offset = 0 if self._is_broadcasting else self._store.get(queue) or 0
        sys_flag = PULL_SUSPEND
        if self._settings.post_subscription:
            sys_flag |= PULL_SUBSCRIPTION
        if commit_offset > 0 and not routes.is_slave(queue.broker_name, address):
            sys_flag |= PULL_COMMIT  # slaves accept no commits (client:D-21)
        settings = self._settings
        count = how_many(process_queue, self.dynamic.pull(queue.topic))
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
            generation=self._generation_of(queue),
            birth=self.births.get(queue, 0),
        )
        answer = await self._instance.remoting.call(address, request, settings.pull_timeout)
        return decode_pull(answer, address, queue)

    def tags(self, topic: str) -> frozenset[str]:
        """The subscribed tags."""
        subscription = self._find_subscription(topic)
        return frozenset() if subscription is None else subscription.tags

    def pulled(self, topic: str, count: int, seconds: float) -> None:
        """Update the statistics of a pull."""
        self._statistics.pulled(topic, count, seconds)

    def after_pull(self, context: PullLoopContext) -> None:
        """Call the pull hooks."""
        self._hooks.after_pull(context)

    def filtered(self, queue: MessageQueue, messages: list[StreamedMessage]) -> list[StreamedMessage]:
        """The messages that pass the filter hooks (client:D-90)."""
        if not messages or not self._hooks.filter_message:
            return messages
        context = FilterMessageContext(
            group=self._group, queue=queue, messages=messages, unit_mode=self._settings.unit_mode
        )
        self._hooks.filter(context)
        return list(context.messages)

    async def not_stored(self, process_queue: ProcessQueue, offset: int) -> None:
        """Commit `offset` and restart the queue there (client:D.7, D-27)."""
        await self._target.illegal_offset(process_queue, offset)

    async def topic_gone(self, process_queue: ProcessQueue) -> None:
        """Restart the queue at the group's offset."""
        await self._target.topic_gone(process_queue)

    def hand_out(
        self, process_queue: ProcessQueue, messages: list[StreamedMessage], starts_run: bool
    ) -> None:
        """Pass messages to the handlers."""
        self._target.submit(process_queue, messages, starts_run)

    def left_out(self, process_queue: ProcessQueue, answer: PullAnswer) -> None:
        """Mark messages that were filtered out as consumed."""
        self._store.advance(process_queue.queue, answer.next_offset)
