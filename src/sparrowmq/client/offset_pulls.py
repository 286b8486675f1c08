"""Pulls by offset of one consumer: what a managed group has to say about them, and what live knobs change.

A pull of a managed group asks for no more messages than `pull_batch` says, filters by `tags` in place of its
own expression, and comes `pull_interval` after the one before of its queue. What is younger than `delay`, or
of a queue that is paused, is as if it were not there yet: the pull waits for it as long as it may wait.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import msgspec

from sparrowmq.client import aging
from sparrowmq.client.handed_queues import HandedQueues
from sparrowmq.client.knobs import LiveKnobs
from sparrowmq.client.queue_reader import PullWish
from sparrowmq.client.requests import PullAnswer
from sparrowmq.core.clock import Clock
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.core.subscription import Expression

T = TypeVar("T")

Ask = Callable[[PullWish], Awaitable[PullAnswer]]
"""Pulls once."""

USUAL_MESSAGES: Final = 32
"""Messages of a pull that does not say how many it wants."""
STEP_SECONDS: Final = 1.0
"""Steps in which a pull that waits looks whether its queue is still granted, and whether a pause is over."""
SOON_SECONDS: Final = 2.0
"""A pull that may be held longer is made anew when other knobs are told."""


class OffsetPulls:
    """The pulls by offset of one member of a managed group, whose queues `handed` has."""

    def __init__(self, knobs: LiveKnobs, handed: HandedQueues, clock: Clock) -> None:
        self._knobs = knobs
        self._handed = handed
        self._clock = clock
        self._pulled: dict[MessageQueue, float] = {}

    def __repr__(self) -> str:
        return f"<OffsetPulls {self._handed!r} {self._knobs!r}>"

    def usual(self, topic: str) -> int:
        """How many messages a pull asks for that does not say."""
        known = self._knobs.pull(topic)
        return known.batch if known.told else USUAL_MESSAGES

    def expression(self, topic: str, own: Expression) -> Expression:
        """What the last answer is filtered by: tags that are told, else a pull's own."""
        return self._knobs.tags.get(topic, own)

    def finish(self, queue: MessageQueue | None = None, topic: str | None = None) -> None:
        """What was pulled is done: of a queue, of a topic, or all."""
        self._handed.finish(queue, topic)

    async def pull(self, queue: MessageQueue, offset: int, wish: PullWish, ask: Ask) -> PullAnswer:
        """What is there from `offset` on, as knobs let it be seen. What was pulled before is done.

        Raises `ClientError` for a queue that is not granted, and as `ask`.
        """
        self._handed.need(queue)
        self._handed.finish(queue)
        await self.rest(queue)
        return await self._handed.pull(queue, lambda: self._seen(queue, offset, wish, ask))

    async def rest(self, queue: MessageQueue) -> None:
        """Wait until a queue may be pulled again. Raises `ClientError` once it is not granted any more."""
        known = self._knobs
        while (left := self._next(queue) - self._clock.monotonic()) > 0:
            await known.sleep(min(left, STEP_SECONDS))
            self._handed.need(queue)

    def _next(self, queue: MessageQueue) -> float:
        interval = self._knobs.pull(queue.topic).interval
        return self._pulled.get(queue, -math.inf) + interval if interval else -math.inf

    async def _seen(self, queue: MessageQueue, offset: int, wish: PullWish, ask: Ask) -> PullAnswer:
        end = self._clock.monotonic() + wish.wait
        left = wish.wait
        while True:
            revision = self._knobs.revision
            asked = self._under_knobs(queue.topic, replace(wish, wait=left))
            answer = await self._unless_told(ask(asked), left)
            seconds = math.inf
            if answer is not None and self._knobs.revision == revision:  # else it is of other tags
                if not self._knobs.revision or answer.status is not PullStatus.FOUND:
                    return self._noted(queue, answer)
                answer, seconds = self._cut(queue, offset, answer)
                left = end - self._clock.monotonic()
                if answer.status is PullStatus.FOUND or left <= 0 or self._is_leaving(queue):
                    return self._noted(queue, answer)
                await self._knobs.sleep(min(seconds, left, STEP_SECONDS))
            left = max(0.0, end - self._clock.monotonic())

    def _noted(self, queue: MessageQueue, answer: PullAnswer) -> PullAnswer:
        self._pulled[queue] = self._clock.monotonic()
        return answer

    def _is_leaving(self, queue: MessageQueue) -> bool:
        held = self._handed.find(queue)
        return held is None or held.leaving

    def _under_knobs(self, topic: str, wish: PullWish) -> PullWish:
        known, expression = self._knobs.pull(topic), self.expression(topic, wish.expression)
        count = min(wish.max_messages, known.batch) if known.told else wish.max_messages
        return replace(wish, max_messages=count, expression=expression)

    def _cut(self, queue: MessageQueue, offset: int, answer: PullAnswer) -> tuple[PullAnswer, float]:
        """What may be seen of an answer, and in how many seconds more may be."""
        nothing = msgspec.structs.replace(
            answer, status=PullStatus.NO_NEW_MESSAGE, body=b"", next_offset=offset
        )
        if self._knobs.is_paused(queue):
            return nothing, math.inf
        delay = self._knobs.pull(queue.topic).delay
        if not delay:
            return answer, math.inf
        old_ms = self._clock.now_ms() - delay * 1000
        young = aging.first_young(answer.body, old_ms)
        if young is None:
            return answer, math.inf
        if not young.at:
            return nothing, (young.stored_ms - old_ms) / 1000
        body = answer.body[: young.at]
        return msgspec.structs.replace(answer, body=body, next_offset=young.queue_offset), math.inf

    async def _unless_told(self, call: Awaitable[T], held: float) -> T | None:
        """The answer of a call that a broker may hold so many seconds; None when other knobs came first."""
        if held <= SOON_SECONDS:
            return await call
        task = asyncio.ensure_future(call)
        changed = asyncio.ensure_future(self._knobs.sleep(math.inf))
        try:
            await asyncio.wait((task, changed), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            changed.cancel()
            await asyncio.gather(task, changed, return_exceptions=True)
