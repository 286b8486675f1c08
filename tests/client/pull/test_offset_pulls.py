"""Pulls by offset with dynamic settings, without brokers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.client.consumer.test_min_age import records
from tests.support import about, run, until

from sparrowmq.client.base.settings import PullSettings
from sparrowmq.client.cluster.broker_api import PullAnswer
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.consumer.queue_reader import PullParameters
from sparrowmq.client.pull import offset_pulls
from sparrowmq.client.pull.offset_pulls import OffsetPulls
from sparrowmq.client.pull.unfinished_pulls import UnfinishedPulls
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus

Q, OTHER = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
NOTHING = PullAnswer(PullStatus.NO_NEW_MESSAGE, 7, 0, 7, 0, b"")


class StandingClock(SystemClock):
    """Both times are stopped until a test moves them."""

    elapsed = 100.0
    ms = 10_000

    def monotonic(self) -> float:
        return self.elapsed

    def now_ms(self) -> int:
        return self.ms


@dataclass
class World:
    """Pulls of a granted queue, and the broker's requests."""

    clock: StandingClock = field(default_factory=StandingClock)
    wishes: list[PullParameters] = field(default_factory=list)
    gives: list[PullAnswer | Awaitable[PullAnswer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dynamic = DynamicSettings(PullSettings(), self.clock.now_ms, self.clock.monotonic)
        self.handed = UnfinishedPulls(ProcessQueue, self.clock.monotonic)
        self.pulls = OffsetPulls(self.dynamic, self.handed, self.clock)
        for queue in (Q, OTHER):
            self.handed.add(queue)

    async def ask(self, wish: PullParameters) -> PullAnswer:
        self.wishes.append(wish)
        given = self.gives.pop(0) if self.gives else NOTHING
        return given if isinstance(given, PullAnswer) else await given

    def tell(self, place: SettingPlace | None = None, **values: Any) -> None:
        told = [SettingValue(name, place or SettingPlace(), value) for name, value in values.items()]
        self.dynamic.take(self.dynamic.revision + 1, told)

    async def pull(self, queue: MessageQueue = Q, **wish: Any) -> PullAnswer:
        return await self.pulls.pull(queue, 7, PullParameters(**wish), self.ask)


def flow(test: Callable[[World], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_pulls, "STEP_SECONDS", 0.005)

    async def main() -> None:
        await test(World())

    run(main())


def found(*stored_ms: int) -> PullAnswer:
    return PullAnswer(PullStatus.FOUND, 7 + len(stored_ms), 0, 99, 0, records(*stored_ms))


def test_pull_follows_the_application_without_dynamic_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        answer = found(9_999, 20_000)
        world.gives = [answer]
        assert await world.pull(max_messages=500, expression="A", wait=1.0) is answer
        assert world.wishes == [PullParameters(max_messages=500, expression="A", wait=1.0)]
        assert await world.pull() is NOTHING

    flow(test, monkeypatch)


def test_pulls_by_offset_use_the_set_batch_and_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.tell(pull_batch=100)
        assert (world.pulls.usual("T"), world.pulls.expression("T", "A")) == (100, "A")
        world.tell(SettingPlace("T"), pull_batch=20, tags="B")
        assert (world.pulls.usual("T"), world.pulls.expression("T", "A")) == (20, "B")
        assert (world.pulls.usual("U"), world.pulls.expression("U", "A")) == (32, "A")
        await world.pull(max_messages=500, expression="A")
        await world.pull(max_messages=5)
        assert [(one.max_messages, one.expression) for one in world.wishes] == [(20, "B"), (5, "B")]

    flow(test, monkeypatch)


def test_pull_interval_applies_to_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.tell(pull_interval=60)
        await world.pull()
        await world.pull(OTHER)
        assert len(world.wishes) == 2
        waiting = asyncio.ensure_future(world.pull())
        world.clock.elapsed += 59.9
        await asyncio.sleep(0.02)
        assert len(world.wishes) == 2
        world.clock.elapsed += 0.2
        await waiting
        waiting = asyncio.ensure_future(world.pull())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        world.tell()
        await waiting
        assert len(world.wishes) == 4, "at once when the interval is unset"

    flow(test, monkeypatch)


def test_queue_can_be_revoked_while_its_pull_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.tell(pull_interval=60)
        world.gives = [found(1)]
        await world.pull()
        held = world.handed.need(Q)
        assert held.running == 1
        waiting = asyncio.ensure_future(world.pull())
        await until(lambda: not held.running), "what was pulled is done, and a rest is no work"
        world.handed.rest(Q)
        with pytest.raises(ClientError, check=about(what="queue", value=Q)):
            await waiting
        with pytest.raises(ClientError, check=about(what="queue", value=Q)):
            await world.pull()
        assert len(world.wishes) == 1

    flow(test, monkeypatch)


def test_too_young_messages_are_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.tell(delay=5)
        world.gives = [found(4_000, 5_000, 5_001), found(5_001)]
        answer = await world.pull()
        assert (answer.status, answer.next_offset, answer.max_offset) == (PullStatus.FOUND, 2, 99)
        assert answer.body == records(4_000, 5_000)
        answer = await world.pull()
        assert (answer.status, answer.next_offset, answer.body) == (PullStatus.NO_NEW_MESSAGE, 7, b"")
        assert (answer.min_offset, answer.max_offset) == (0, 99)

    flow(test, monkeypatch)


def test_waiting_pull_waits_for_too_young_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.tell(delay=5)
        world.gives = [found(6_000) for _ in range(10_000)]
        waiting = asyncio.ensure_future(world.pull(wait=30))
        await until(lambda: len(world.wishes) > 2)
        world.clock.ms += 1_000
        assert (await waiting).body == records(6_000)
        world.clock.ms -= 1_000
        waiting = asyncio.ensure_future(world.pull(wait=30))
        await asyncio.sleep(0.01)
        world.clock.elapsed += 12
        await until(lambda: world.wishes[-1].wait == 18.0), "of its time the rest is left"
        world.clock.elapsed += 18
        answer = await waiting
        assert (answer.status, answer.next_offset) == (PullStatus.NO_NEW_MESSAGE, 7)

    flow(test, monkeypatch)


def test_paused_queue_returns_nothing_until_it_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.tell(SettingPlace("T", 0), pause=True)
        world.gives = [found(1), found(1), found(1), found(1)]
        assert (await world.pull()).status is PullStatus.NO_NEW_MESSAGE
        assert (await world.pull(OTHER)).status is PullStatus.FOUND
        waiting = asyncio.ensure_future(world.pull(wait=1))
        await asyncio.sleep(0)
        world.tell()
        assert (await waiting).status is PullStatus.FOUND

    flow(test, monkeypatch)


def test_changed_settings_restart_a_held_pull(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(world: World) -> None:
        held = asyncio.Event()
        world.gives = [_held(held), found(1)]
        waiting = asyncio.ensure_future(world.pull(wait=60))
        await until(lambda: len(world.wishes) == 1)
        world.clock.elapsed += 10
        world.tell(SettingPlace("T"), tags="B")
        assert (await waiting).status is PullStatus.FOUND
        assert held.is_set(), "it was cancelled"
        assert [(one.expression, one.wait) for one in world.wishes] == [("*", 60), ("B", 50)]

    flow(test, monkeypatch)


async def _held(cancelled: asyncio.Event) -> PullAnswer:
    try:
        await asyncio.sleep(math.inf)
    finally:
        cancelled.set()
    return NOTHING


def test_errors_and_cancellation_end_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused() -> PullAnswer:
        raise ClientError("no")

    async def test(world: World) -> None:
        world.gives = [refused(), refused()]
        for wait in (0, 60):
            with pytest.raises(ClientError, check=about(args=("no",))):
                await world.pull(wait=wait)
        held = asyncio.Event()
        world.gives = [_held(held)]
        waiting = asyncio.ensure_future(world.pull(wait=60))
        await until(lambda: len(world.wishes) == 3)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert held.is_set()
        assert not world.handed.need(Q).running

    flow(test, monkeypatch)


def test_pulled_messages_are_done_when_the_application_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(world: World) -> None:
        world.gives = [found(1), found(1)]
        await world.pull()
        await world.pull(OTHER)
        world.pulls.finish(Q)
        assert (world.handed.need(Q).running, world.handed.need(OTHER).running) == (0, 1)
        world.pulls.finish(topic="T")
        assert world.handed.need(OTHER).running == 0
        assert "given=0" in repr(world.pulls)

    flow(test, monkeypatch)
