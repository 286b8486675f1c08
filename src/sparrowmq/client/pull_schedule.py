"""Calling the application for each queue of its share, again and again: it pulls, then says when to be called
next (client:E.2). RocketMQ has it as `MQPullConsumerScheduleService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from sparrowmq.client.callables import CallThreads, call
from sparrowmq.client.lifecycle import State
from sparrowmq.client.pull_consumer import PullConsumer
from sparrowmq.client.settings import ClientSettings, check_range
from sparrowmq.core.errors import ClientError, InvalidStateError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group

log = logging.getLogger("sparrowmq.client")

NEXT_DELAY: Final = 0.2
"""Seconds until a queue's next call unless the callback says otherwise."""
NEXT_DELAY_MAX: Final = 86400.0
ERROR_DELAY: Final = 1.0
"""Seconds until the next call after one that raised, or that asked for a delay there is not."""


@dataclass(slots=True)
class PullContext:
    """What a call gets besides its queue: the consumer to pull with, and room for its wish."""

    consumer: Any
    """The `PullConsumer` of the schedule: the asyncio one, or a synchronous schedule's synchronous one."""
    next_delay: float = NEXT_DELAY
    """Seconds until this queue's next call, 0 to 86400; set it."""


PullCallback = Callable[[MessageQueue, PullContext], Awaitable[None] | None]


class PullSchedule:
    """Calls a callback for each queue of the member's share of a topic, over and over.

        async def work(queue: MessageQueue, context: PullContext) -> None:
            offset = await context.consumer.fetch_consume_offset(queue) or 0
            result = await context.consumer.pull(queue, offset)
            ...
            context.consumer.update_consume_offset(queue, result.next_offset)

        schedule = PullSchedule("audit", namesrv="127.0.0.1:9876")
        schedule.register("TopicTest", work)
        async with schedule:
            ...

    An `async def` callback runs on the loop, a plain function in one of `threads` threads. One queue's calls
    never overlap. A queue that leaves the share is called no more; a call that runs is not waited for, but in
    a managed group, where the queue moves when it has ended, and the next call waits for the live knob
    `pull_interval`.
    """

    def __init__(
        self,
        group: str,
        *,
        namesrv: str | None = None,
        threads: int = 20,
        settings: ClientSettings | None = None,
    ) -> None:
        """`namesrv` and `settings` are as for `PullConsumer`. Raises `InvalidNameError`, `SettingsError`."""
        check_group(group)
        check_range("threads", threads, 1, 1000)
        self.consumer = PullConsumer(group, namesrv=namesrv, settings=settings)
        self.context_consumer: Any = self.consumer
        """What callbacks get to pull with."""
        self._threads = threads
        self._pool: CallThreads | None = None
        self._closing = False
        self._callbacks: dict[str, PullCallback] = {}
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self._at_work: set[asyncio.Task[None] | None] = set()

    def __repr__(self) -> str:
        return f"<PullSchedule {self.consumer.group!r} {self.state.value} queues={len(self._running)}>"

    @property
    def state(self) -> State:
        """Where the schedule is in its life."""
        return self.consumer.state

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are called for now, sorted."""
        return sorted(self._running)

    def register(self, topic: str, callback: PullCallback) -> None:
        """Call `callback` for this member's queues of `topic`; before the start only.

        Raises `InvalidNameError` or `InvalidStateError`.
        """
        if self.state is not State.CREATED:
            raise InvalidStateError(
                f"the pull schedule is {self.state.value}: callbacks are registered before the start"
            )
        self.consumer.register_topic(topic, self._queues_changed)
        self._callbacks[topic] = callback

    async def start(self) -> None:
        """Join the group. Raises as `PullConsumer.start`."""
        before, self._pool = self._pool, CallThreads(self._threads, "sparrowmq-schedule")
        try:
            await self.consumer.start()
        except BaseException:
            self._pool = before  # the one that runs goes on when it is started a second time
            raise

    async def close(self) -> None:
        """Call no more, commit and leave the group. Idempotent."""
        self._closing = True
        for task in {*self._running.values(), *self._at_work}:
            if task is not None:
                task.cancel()
        self._running.clear()
        if self._pool is not None:
            self._pool.close()
        await self.consumer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _queues_changed(self, topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
        """End the calls for queues that left, begin those for new ones at once (client:E-19)."""
        for queue in [one for one in self._running if one.topic == topic and one not in mine]:
            task = self._running.pop(queue)
            if not (self.consumer.settings.managed and task in self._at_work):
                task.cancel()
        for queue in mine:
            if queue not in self._running and self.state is State.RUNNING and not self._closing:
                self._running[queue] = asyncio.get_running_loop().create_task(self._run(queue))

    async def _run(self, queue: MessageQueue) -> None:
        me = asyncio.current_task()
        while (callback := self._callbacks.get(queue.topic)) is not None:  # ends by cancellation, too
            self._at_work.add(me)
            context = PullContext(self.context_consumer)
            try:
                await call(callback, queue, context, threads=self._pool)
                context.next_delay = max(0.0, context.next_delay)
                check_range("next_delay", context.next_delay, 0, NEXT_DELAY_MAX, "seconds")
            except Exception:
                log.exception("the pull callback of %s failed and is called again in 1 s", queue)
                context.next_delay = ERROR_DELAY
            finally:
                self._at_work.discard(me)
            if self.state is State.RUNNING:
                self.consumer.finish(queue)
            if self._running.get(queue) is not me:
                return
            await asyncio.sleep(context.next_delay)
            with suppress(
                ClientError
            ):  # it is not granted any more: the next call is told so, if there is one
                await self.consumer._rest(queue)
