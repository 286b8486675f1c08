"""The consumers of a walk: one group of each kind, each with one member that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.simulation.whole.books import Books
from tests.simulation.whole.world import NAME_SERVER

from sparrowmq.aio import ConsumerSettings, PullConsumer, PullSettings, PushConsumer, ReceivedMessage, Retry
from sparrowmq.core.errors import SparrowError

CONCURRENT, ORDERED, POLLED = "concurrent", "ordered", "polled"
GROUPS = (CONCURRENT, ORDERED, POLLED)


class Members:
    """The members that run. Each group reads all topics from their beginning."""

    def __init__(self, books: Books, topics: tuple[str, ...]) -> None:
        self._books = books
        self._topics = topics
        self._running: dict[str, Callable[[], Any]] = {}
        self._number = 0

    async def join(self, group: str) -> None:
        """Start the group's member, if there is none."""
        if group not in self._running:
            self._number += 1
            begin = self._poll if group == POLLED else self._push
            self._running[group] = await begin(group)

    async def leave(self, group: str) -> None:
        """A clean end of the group's member."""
        close = self._running.pop(group, None)
        if close is not None:
            with suppress(SparrowError):
                await close()

    async def join_all(self) -> None:
        for group in GROUPS:
            await self.join(group)

    async def leave_all(self) -> None:
        for group in GROUPS:
            await self.leave(group)

    def _settings(self) -> dict[str, Any]:
        return {
            "namesrv": NAME_SERVER,
            "client_ip": "127.0.0.1",
            "instance_name": f"member-{self._number}",
            "consume_from": "first",
        }

    async def _push(self, group: str) -> Callable[[], Any]:
        async def handle(message: ReceivedMessage) -> None:
            if self._books.fails(group, int(message.body)):
                raise Retry

        consumer = PushConsumer(
            group, settings=ConsumerSettings(ordered=group == ORDERED, pull_batch=8, **self._settings())
        )
        for topic in self._topics:
            consumer.subscribe(topic, handler=handle)
        await consumer.start()
        return consumer.close

    async def _poll(self, group: str) -> Callable[[], Any]:
        consumer = PullConsumer(group, settings=PullSettings(auto_commit=False, **self._settings()))
        for topic in self._topics:
            consumer.subscribe(topic)
        await consumer.start()
        task = asyncio.get_running_loop().create_task(self._polling(group, consumer))

        async def close() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await consumer.close()

        return close

    async def _polling(self, group: str, consumer: PullConsumer) -> None:
        while True:
            for message in await consumer.poll(5.0):
                while self._books.fails(group, int(message.body)):  # noqa: ASYNC110 - virtual time
                    await asyncio.sleep(1)
            with suppress(SparrowError):
                await consumer.commit()
