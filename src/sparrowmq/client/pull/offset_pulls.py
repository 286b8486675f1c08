"""Pulls by offset of one consumer: the rules of a managed group, and the effect of dynamic settings.

In a managed group, a pull returns at most `pull_batch` messages, filters by `tags` instead of its own
expression, and waits `pull_interval` after the previous pull of its queue. Messages younger than `delay`, and
messages of a paused queue, are treated as not stored yet: the pull waits for them up to its timeout.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from sparrowmq.client.cluster.broker_api import PullAnswer
from sparrowmq.client.consumer import min_age
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.queue_reader import USUAL_MESSAGES, PullParameters
from sparrowmq.client.pull.unfinished_pulls import UnfinishedPulls
from sparrowmq.core.clock import Clock
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.core.subscription import Expression

T = TypeVar("T")

Ask = Callable[[PullParameters], Awaitable[PullAnswer]]
"""Pulls once."""

STEP_SECONDS: Final = 1.0
"""How often a waiting pull checks whether its queue is still granted and still paused."""
SOON_SECONDS: Final = 2.0
"""A pull that a broker may hold longer than this is restarted when dynamic settings change."""


class OffsetPulls:
    """The pulls by offset of one member of a managed group; `handed` holds its queues."""

    def __init__(self, dynamic: DynamicSettings, handed: UnfinishedPulls, clock: Clock) -> None:
        self._dynamic = dynamic
        self._handed = handed
        self._clock = clock
        self._pulled: dict[MessageQueue, float] = {}

    def __repr__(self) -> str:
        return f"<OffsetPulls {self._handed!r} {self._dynamic!r}>"

    def usual(self, topic: str) -> int:
        """The default number of messages of a pull."""
        known = self._dynamic.pull(topic)
        return known.batch if known.told else USUAL_MESSAGES

    def expression(self, topic: str, own: Expression) -> Expression:
        """The filter of a pull: the dynamic setting `tags`, or else the pull's own expression."""
        return self._dynamic.tags.get(topic, own)

    def finish(self, queue: MessageQueue | None = None, topic: str | None = None) -> None:
        """Mark pulled messages as processed: those of a queue, of a topic, or all."""
        self._handed.finish(queue, topic)

    async def pull(self, queue: MessageQueue, offset: int, wish: PullParameters, ask: Ask) -> PullAnswer:
        """Pull from `offset` under the dynamic settings. The messages of the previous pull count as
        processed.

        Raises `ClientError` for a queue that is not granted, and the errors of `ask`.
        """
        self._handed.need(queue)
        self._handed.finish(queue)
        await self.rest(queue)
        return await self._handed.pull(queue, lambda: self._seen(queue, offset, wish, ask))

    async def rest(self, queue: MessageQueue) -> None:
        """Wait until a queue may be pulled again. Raises `ClientError` once it is no longer granted."""
        known = self._dynamic
        while (left := self._next(queue) - self._clock.monotonic()) > 0:
            await known.sleep(min(left, STEP_SECONDS))
            self._handed.need(queue)

    def _next(self, queue: MessageQueue) -> float:
        interval = self._dynamic.pull(queue.topic).interval
        return self._pulled.get(queue, -math.inf) + interval if interval else -math.inf

    async def _seen(self, queue: MessageQueue, offset: int, wish: PullParameters, ask: Ask) -> PullAnswer:
        end = self._clock.monotonic() + wish.wait
        left = wish.wait
        while True:
            revision = self._dynamic.revision
            asked = self._with_settings(queue.topic, replace(wish, wait=left))
            answer = await self._unless_told(ask(asked), left)
            seconds = math.inf
            if answer is not None and self._dynamic.revision == revision:  # otherwise the tags may differ
                if not self._dynamic.revision or answer.status is not PullStatus.FOUND:
                    return self._noted(queue, answer)
                answer, seconds = self._cut(queue, offset, answer)
                left = end - self._clock.monotonic()
                if answer.status is PullStatus.FOUND or left <= 0 or self._is_leaving(queue):
                    return self._noted(queue, answer)
                await self._dynamic.sleep(min(seconds, left, STEP_SECONDS))
            left = max(0.0, end - self._clock.monotonic())

    def _noted(self, queue: MessageQueue, answer: PullAnswer) -> PullAnswer:
        self._pulled[queue] = self._clock.monotonic()
        return answer

    def _is_leaving(self, queue: MessageQueue) -> bool:
        held = self._handed.find(queue)
        return held is None or not held.may_start()

    def _with_settings(self, topic: str, wish: PullParameters) -> PullParameters:
        known, expression = self._dynamic.pull(topic), self.expression(topic, wish.expression)
        count = min(wish.max_messages, known.batch) if known.told else wish.max_messages
        return replace(wish, max_messages=count, expression=expression)

    def _cut(self, queue: MessageQueue, offset: int, answer: PullAnswer) -> tuple[PullAnswer, float]:
        """The visible part of an answer, and the seconds until more becomes visible."""
        nothing = msgspec.structs.replace(
            answer, status=PullStatus.NO_NEW_MESSAGE, body=b"", next_offset=offset
        )
        if self._dynamic.is_paused(queue):
            return nothing, math.inf
        delay = self._dynamic.pull(queue.topic).delay
        if not delay:
            return answer, math.inf
        old_ms = self._clock.now_ms() - delay * 1000
        young = min_age.first_young(answer.body, old_ms)
        if young is None:
            return answer, math.inf
        if not young.at:
            return nothing, (young.stored_ms - old_ms) / 1000
        body = answer.body[: young.at]
        return msgspec.structs.replace(answer, body=body, next_offset=young.queue_offset), math.inf

    async def _unless_told(self, call: Awaitable[T], held: float) -> T | None:
        """The answer to a call held up to `held` seconds; None if dynamic settings changed first."""
        if held <= SOON_SECONDS:
            return await call
        task = asyncio.ensure_future(call)
        changed = asyncio.ensure_future(self._dynamic.sleep(math.inf))
        try:
            await asyncio.wait((task, changed), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            changed.cancel()
            await asyncio.gather(task, changed, return_exceptions=True)
