"""Periodic calls of the application for each of its queues: it pulls, then returns when to call it next
(client:E.2). In RocketMQ this is `MQPullConsumerScheduleService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from sparrowmq.client.base.callables import CallThreads, call
from sparrowmq.client.base.lifecycle import ClientObject, State
from sparrowmq.client.base.settings import ClientSettings, check_range
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import ClientError, InvalidStateError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group

if TYPE_CHECKING:
    from sparrowmq.client.base.options import PullOptions

log = logging.getLogger("sparrowmq.client")

NEXT_DELAY: Final = 0.2
"""Seconds until a queue's next call unless the callback says otherwise."""
NEXT_DELAY_MAX: Final = 86400.0
ERROR_DELAY: Final = 1.0
"""Seconds until the next call after an exception or an invalid delay."""


@dataclass(slots=True)
class PullContext:
    """The second argument of a callback: the consumer to pull with, and the next delay to set."""

    consumer: Any
    """The `PullConsumer` of the schedule; synchronous in a synchronous schedule."""
    next_delay: float = NEXT_DELAY
    """Seconds until this queue's next call, 0 to 86400; set it."""


PullCallback = Callable[[MessageQueue, PullContext], Awaitable[None] | None]


class PullSchedule(ClientObject):
    """Calls a callback for each queue of the member's share of a topic, over and over.

        async def work(queue: MessageQueue, context: PullContext) -> None:
            offset = await context.consumer.fetch_consume_offset(queue) or 0
            result = await context.consumer.pull(queue, offset)
            ...
            context.consumer.store_offset(queue, result.next_offset)

        schedule = PullSchedule("audit", name_server="127.0.0.1:9876")
        schedule.register("TopicTest", work)
        async with schedule:
            ...

    An `async def` callback runs on the loop, a plain function in one of `threads` threads. One queue's calls
    never overlap. Calls for a queue stop when it leaves the share. A running call does not delay this, except
    in a managed group: there the queue moves when the call has ended, and the dynamic setting `pull_interval`
    delays the next call.
    """

    def __init__(
        self,
        group: str,
        *,
        threads: int = 20,
        settings: ClientSettings | None = None,
        **options: Unpack[PullOptions],
    ) -> None:
        """`settings` and `options` are as for `PullConsumer`. Raises `InvalidNameError`, `SettingsError`."""
        check_group(group)
        check_range("threads", threads, 1, 1000)
        self.consumer = PullConsumer(group, settings=settings, **options)
        self._life = self.consumer._life
        self.context_consumer: Any = self.consumer
        """The consumer that callbacks get."""
        self._threads = threads
        self._pool: CallThreads | None = None
        self._closing = False
        self._callbacks: dict[str, PullCallback] = {}
        self._running: dict[MessageQueue, asyncio.Task[None]] = {}
        self._at_work: set[asyncio.Task[None] | None] = set()

    def __repr__(self) -> str:
        return f"<PullSchedule {self.consumer.group!r} {self.state.value} queues={len(self._running)}>"

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues with active calls, sorted."""
        return sorted(self._running)

    def register(self, topic: str, callback: PullCallback) -> None:
        """Call `callback` for this member's queues of `topic`; before the start only.

        Raises `InvalidNameError` or `InvalidStateError`.
        """
        if self.state is not State.CREATED:
            raise InvalidStateError(
                f"the pull schedule is {self.state.value}: register callbacks before the start",
                what="created",
                value=self.state.value,
            )
        self.consumer.register_topic(topic, self._queues_changed)
        self._callbacks[topic] = callback

    async def start(self) -> None:
        """Join the group. Raises the same errors as `PullConsumer.start`."""
        before, self._pool = self._pool, CallThreads(self._threads, "sparrowmq-schedule")
        try:
            await self.consumer.start()
        except BaseException:
            self._pool = before  # a second start must not affect the running pool
            raise

    async def close(self) -> None:
        """Stop the calls, commit and leave the group. Idempotent. A callback that calls this goes on."""
        self._closing = True
        for task in {*self._running.values(), *self._at_work} - {asyncio.current_task()}:
            if task is not None:
                task.cancel()
        self._running.clear()
        if self._pool is not None:
            self._pool.close()
        await self.consumer.close()

    async def _queues_changed(self, topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
        """Stop the calls for removed queues, start those for new ones immediately (client:E-19)."""
        for queue in [one for one in self._running if one.topic == topic and one not in mine]:
            task = self._running.pop(queue)
            if not (self.consumer.settings.managed and task in self._at_work):
                task.cancel()
        for queue in mine:
            if queue not in self._running and self.state is State.RUNNING and not self._closing:
                self._running[queue] = asyncio.get_running_loop().create_task(self._run(queue))

    async def _run(self, queue: MessageQueue) -> None:
        me = asyncio.current_task()
        while (callback := self._callbacks.get(queue.topic)) is not None:  # also ends by cancellation
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
            with suppress(ClientError):  # no longer granted: a next call gets the error
                if (pulls := self.consumer._offset_pulls()) is not None:
                    await pulls.rest(queue)
