"""The consumers of a walk: one group of each kind, each with one member that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.simulation.whole.books import Books, Sent
from tests.simulation.whole.world import NAME_SERVER

from sparrowmq.aio import (
    ClientSettings,
    ConsumerSettings,
    PullConsumer,
    PullSettings,
    PushConsumer,
    ReceivedMessage,
    Retry,
    SimpleConsumer,
    Sql,
)
from sparrowmq.core.errors import SparrowError

CONCURRENT, ORDERED, POLLED, TAGGED, BROADCAST = "concurrent", "ordered", "polled", "tagged", "broadcast"
POPPED = "popped"
GROUPS: Final = (CONCURRENT, ORDERED, POLLED, TAGGED, BROADCAST, POPPED)
FAILING: Final = (CONCURRENT, TAGGED)
"""Groups whose failed messages are tried again by the broker, and become dead letters."""
INVISIBLE_SECONDS: Final = 5.0
"""How long a message that was received by POP is hidden from others."""
TAG_FILTERS: Final = ("x", "*", "y", Sql("TAGS = 'x'"), "x || y")


def matches(expression: str | Sql, tag: str) -> bool:
    """Whether one of the filters takes messages with a tag."""
    return expression == "*" or (bool(tag) and tag in str(expression))


class Members:
    """The members that run. Each group reads all topics from their beginning."""

    def __init__(self, books: Books, topics: tuple[str, ...], offsets: Path) -> None:
        self._books = books
        self._topics = topics
        self._offsets = offsets
        self._running: dict[str, Callable[[], Any]] = {}
        self._consumers: dict[str, PushConsumer | PullConsumer] = {}
        self._paused: set[str] = set()
        self._filter: str | Sql = "*"
        self._number = 0

    async def join(self, group: str) -> None:
        """Start the group's member, if there is none."""
        if group not in self._running:
            self._number += 1
            begin = {POLLED: self._poll, POPPED: self._pop}.get(group, self._push)
            self._running[group] = await begin(group)

    async def leave(self, group: str) -> None:
        """A clean end of the group's member."""
        close = self._running.pop(group, None)
        self._paused.discard(group)
        if close is not None:
            with suppress(SparrowError):
                await close()

    @property
    def running(self) -> list[str]:
        """The groups that have a member."""
        return list(self._running)

    async def join_all(self) -> None:
        for group in GROUPS:
            await self.join(group)

    async def leave_all(self) -> None:
        for group in GROUPS:
            await self.leave(group)

    def pause(self, group: str) -> None:
        """The group's member stops pulling, or goes on if it had stopped. A member that pops cannot pause."""
        if group not in self._consumers or group not in self._running:
            return
        consumer, is_paused = self._consumers[group], group in self._paused
        self._paused ^= {group}
        if isinstance(consumer, PullConsumer):
            (consumer.resume if is_paused else consumer.pause)(consumer.assignment)
        elif is_paused:
            consumer.resume()
        else:
            consumer.pause()

    def filter(self, expression: str | Sql) -> None:
        """The tagged group wants messages that match from now on, and no others of those before."""
        self.sort_out()
        self._filter = expression
        self.sort_out()
        consumer = self._consumers.get(TAGGED)
        if isinstance(consumer, PushConsumer) and TAGGED in self._running:
            for topic in self._topics:
                consumer.subscribe(topic, expression, handler=self._handler(TAGGED))

    def sort_out(self) -> None:
        """What the tagged group does not want now is not missed."""

        def is_unwanted(sent: Sent) -> bool:
            return not matches(self._filter, sent.tag)

        self._books.lose("another tag", groups=[TAGGED], which=is_unwanted)

    def _settings(self, group: str) -> dict[str, Any]:
        name = group if group == BROADCAST else f"member-{self._number}"
        return {
            "namesrv": NAME_SERVER,
            "client_ip": "127.0.0.1",
            "instance_name": name,
        }

    def _handler(self, group: str) -> Any:
        async def handle(message: ReceivedMessage) -> None:
            if self._books.fails(group, int(message.body)):
                raise Retry

        return handle

    async def _push(self, group: str) -> Callable[[], Any]:
        settings = ConsumerSettings(
            ordered=group == ORDERED,
            model="broadcasting" if group == BROADCAST else "clustering",
            offset_dir=self._offsets,
            pull_batch=8,
            consume_from="first",
            **self._settings(group),
        )
        consumer = PushConsumer(group, settings=settings)
        for topic in self._topics:
            consumer.subscribe(topic, self._filter if group == TAGGED else "*", handler=self._handler(group))
        self._consumers[group] = consumer
        await consumer.start()
        return consumer.close

    async def _pop(self, group: str) -> Callable[[], Any]:
        consumer = SimpleConsumer(group, settings=ClientSettings(**self._settings(group)))
        for topic in self._topics:
            consumer.subscribe(topic)
        await consumer.start()
        task = asyncio.get_running_loop().create_task(self._popping(group, consumer))

        async def close() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await consumer.close()

        return close

    async def _popping(self, group: str, consumer: SimpleConsumer) -> None:
        """Acknowledge what is handled. Of what fails, one half comes again soon, the other when it is due."""
        while True:
            try:
                for message in await consumer.receive(8, invisible=INVISIBLE_SECONDS, wait=5.0):
                    number = int(message.body)
                    if not self._books.fails(group, number):
                        await consumer.ack(message)
                    elif number % 2:
                        await consumer.change_invisible(message, 1.0)
            except SparrowError:
                await asyncio.sleep(1)

    async def _poll(self, group: str) -> Callable[[], Any]:
        settings = PullSettings(auto_commit=False, consume_from="first", **self._settings(group))
        consumer = PullConsumer(group, settings=settings)
        for topic in self._topics:
            consumer.subscribe(topic)
        self._consumers[group] = consumer
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
