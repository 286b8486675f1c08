"""Dynamic settings from the API to running pull consumers, and the members' reports about them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.coordinator.groups.running_world import World, owned
from tests.support import run, until, until_sync

import sparrowmq as mq
from sparrowmq import aio

PULL = mq.PullSettings(
    managed=True, consume_from="first", pull_hold=0.5, persist_interval=0.1, auto_commit_interval=1
)
USUAL = {"threads": 3, "batch": 4, "consume_timeout": 60}
"""What no pull consumer can go by."""


@asynccontextmanager
async def poller(world: World) -> AsyncIterator[aio.PullConsumer]:
    consumer = aio.PullConsumer(world.group, namesrv=world.namesrv, settings=PULL)
    consumer.subscribe(world.topic)
    async with consumer:
        await until(lambda: consumer.assignment)
        yield consumer


@asynccontextmanager
async def puller(world: World) -> AsyncIterator[aio.PullConsumer]:
    consumer = aio.PullConsumer(world.group, namesrv=world.namesrv, settings=PULL)
    consumer.register_topic(world.topic)
    async with consumer:
        await until(lambda: len(consumer.fetch_message_queues_in_balance(world.topic)) == 2)
        yield consumer


def told(consumer: aio.PullConsumer) -> str:
    """The dynamic settings that a consumer applies, as tools show them."""
    member = consumer._member
    assert member is not None
    return member.running_info().properties["dynamicSettings"]


async def everybody_goes_by(world: World, members: int = 1) -> dict[str, Any]:
    """The settings, once all members reported that they apply them."""

    async def shown() -> Any:
        found = await world.call("GET", f"/groups/{world.group}/settings")
        return found if (found["members"], found["newest"]) == (members, members) else None

    found: dict[str, Any] = await until(shown)
    return found


async def polled(consumer: aio.PullConsumer, wanted: set[bytes]) -> None:
    """Poll until these messages arrived."""
    found: set[bytes] = set()

    async def enough() -> bool:
        found.update(message.body for message in await consumer.poll(0.1))
        return found >= wanted

    await until(enough)


@pytest.mark.proves("pmq:9.1", "pmq:6.4")
def test_polls_apply_batch_tags_interval_delay_and_pause(
    world: World,
) -> None:
    async def main() -> None:
        async with poller(world) as consumer:
            await world.set("pull_batch", 3)
            await world.set("tags", "A", world.topic)
            await everybody_goes_by(world)
            await world.send(0, 8, "A")
            await world.send(8, 4, "B")
            sizes: list[int] = []
            while sum(sizes) < 8:
                sizes.append(len(await consumer.poll(5)))
            assert max(sizes) <= 3
            await world.set("pause", True, world.topic)
            await everybody_goes_by(world)
            await world.unset("pull_batch")
            await world.unset("tags", world.topic)
            await everybody_goes_by(world)
            await world.send(12, 2, "B")
            assert await consumer.poll(0.2) == []
            await world.unset("pause", world.topic)
            await polled(consumer, {b"12", b"13"})
            await world.set("delay", 3600)
            await everybody_goes_by(world)
            await world.send(14, 2)
            assert await consumer.poll(0.2) == []
            await world.unset("delay")
            await polled(consumer, {b"14", b"15"})
            assert told(consumer) == ""

    run(main())


@pytest.mark.proves("pmq:6.4")
def test_pulls_by_offset_apply_dynamic_settings(world: World) -> None:
    async def main() -> None:
        queue = aio.MessageQueue(world.topic, "broker-a", 0)
        await world.send(0, 20, "A")
        await world.send(20, 2, "B")
        async with puller(world) as consumer:
            assert len((await consumer.pull(queue, 0)).messages) == 11
            await world.set("pull_batch", 3)
            await world.set("tags", "B", world.topic)
            await everybody_goes_by(world)
            result = await consumer.pull(queue, 8)
            assert [message.body for message in result.messages] == [b"20"]
            await world.unset("tags", world.topic)
            await everybody_goes_by(world)
            assert len((await consumer.pull(queue, 0)).messages) == 3
            assert (await consumer.fetch_raw(queue, 0)).next_offset == 3
            await world.set("pull_interval", 60)
            await everybody_goes_by(world)
            waiting = asyncio.ensure_future(consumer.pull(queue, 0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await world.unset("pull_interval")
            assert len((await waiting).messages) == 3
            await world.set("delay", 3600)
            await everybody_goes_by(world)
            assert (await consumer.pull(queue, 0)).status is mq.PullStatus.NO_NEW_MESSAGE
            await world.set("pause", True, f"{world.topic}/0")
            await world.unset("delay")
            await everybody_goes_by(world)
            assert (await consumer.pull(queue, 0)).messages == []

    run(main())


def test_running_pull_applies_changed_tags(world: World) -> None:
    async def main() -> None:
        queue = aio.MessageQueue(world.topic, "broker-a", 0)
        async with puller(world) as consumer:
            waiting = asyncio.ensure_future(consumer.pull(queue, 0, expression="A", wait=30))
            await asyncio.sleep(0)
            await world.set("tags", "B", world.topic)
            await everybody_goes_by(world)
            await world.send(0, 1, "B")
            result = await waiting
            assert [message.body for message in result.messages] == [b"0"]
            waiting = asyncio.ensure_future(consumer.pull(queue, 1, expression="A", wait=30))
            await asyncio.sleep(0)
            await world.unset("tags", world.topic)
            await everybody_goes_by(world)
            await world.send(2, 1, "A")
            result = await waiting
            assert [message.body for message in result.messages] == [b"2"]

    run(main())


def test_next_call_of_a_schedule_waits_for_the_pull_interval(world: World) -> None:
    async def main() -> None:
        calls: list[int] = []

        async def work(queue: aio.MessageQueue, context: aio.PullContext) -> None:
            context.next_delay = 0.01
            offset = await context.consumer.fetch_consume_offset(queue) or 0
            result = await context.consumer.pull(queue, offset)
            calls.append(queue.queue_id)
            context.consumer.update_consume_offset(queue, result.next_offset)

        schedule = aio.PullSchedule(world.group, namesrv=world.namesrv, settings=PULL)
        schedule.register(world.topic, work)
        async with schedule:
            await until(lambda: {0, 1} <= set(calls))
            await world.set("pull_interval", 60)
            await everybody_goes_by(world)
            await until(lambda: len(schedule._at_work) == 0)
            before = len(calls)
            await asyncio.sleep(0.1)
            assert len(calls) <= before + 2
            await world.unset("pull_interval")
            await until(lambda: len(calls) > before + 4)

    run(main())


def test_synchronous_pull_consumer_applies_dynamic_settings(world: World) -> None:
    async def main() -> None:
        await world.send(0, 12)
        await world.set("pull_batch", 2)
        await asyncio.to_thread(polls, world)

    def polls(world: World) -> None:
        with mq.PullConsumer(world.group, namesrv=world.namesrv, settings=PULL) as consumer:
            consumer.subscribe(world.topic)
            found: list[int] = []

            def enough() -> bool:
                found.append(len(consumer.poll(0.1)))
                return sum(found) == 12

            until_sync(enough)
            assert max(found) == 2

    run(main())


@pytest.mark.proves("pmq:6.4")
def test_members_with_the_newest_settings_and_unable_ones_are_shown(world: World) -> None:
    async def main() -> None:
        async with world.member() as push, poller(world) as pull:
            await until(lambda: owned(world, push) == [0] or owned(world, push) == [1])
            for name, value in USUAL.items():
                await world.set(name, value)
            found = await everybody_goes_by(world, 2)
            unable = {one["setting"]: one["unable"] for one in found["settings"]}
            reasons = {setting: sorted(why.values()) for setting, why in unable.items()}
            pulls = "it pulls: its application decides"
            assert reasons == {
                "threads": [pulls],
                "consume_timeout": [pulls],
                "batch": ["it pulls: its application decides",
                          "its handlers take single messages (its own batch is 1)"],
            }  # fmt: skip
            members = await world.call("GET", f"/groups/{world.group}/members")
            assert [one["settings"] for one in members] == ["newest", "newest"]
            assert {tuple(sorted(one["unable"])) for one in members} == {
                ("batch",), ("batch", "consume_timeout", "threads"),
            }  # fmt: skip
            assert push.client_id != pull.client_id

    run(main())
